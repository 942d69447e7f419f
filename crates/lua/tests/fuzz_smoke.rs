//! A short run of every fuzz target on seeded random bytes, for machines without a fuzzer. A failure prints the input;
//! `TIERCE_SEED` chooses another run, `TIERCE_FUZZ_ROUNDS` a longer one.

use tierce_harness::{Random, effort};
use tierce_lua::fuzzing;

const ROUNDS: u64 = 2_000;

/// Reports the input if a target panics.
struct Trace<'a>(&'a [u8]);

impl Drop for Trace<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input was b\"{}\"", self.0.escape_ascii());
        }
    }
}

fn below(random: &mut Random, end: usize) -> usize {
    (random.next_u64() % end as u64) as usize
}

fn mutate(random: &mut Random, input: &mut Vec<u8>, alphabet: &[u8]) {
    let byte = match below(random, 3) {
        0 => random.next_u64() as u8,
        _ => alphabet[below(random, alphabet.len())],
    };
    let at = below(random, input.len() + 1);
    match (below(random, 6), at < input.len()) {
        (0..=2, true) => input[at] = byte,
        (3, true) => drop(input.remove(at)),
        (4, _) => input.truncate(at),
        _ => input.insert(at, byte),
    }
}

/// Runs a target on the seeds, and on variants of them made with the alphabet.
fn run(target: fn(&[u8]), seeds: &[&[u8]], alphabet: &[u8], rounds: u64) {
    let seed = std::env::var("TIERCE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let rounds = effort(rounds);
    println!("TIERCE_SEED={seed}");
    let mut random = Random::new(seed);
    for round in 0..seeds.len() as u64 + rounds {
        let mut input = seeds[round as usize % seeds.len()].to_vec();
        if round >= seeds.len() as u64 {
            for _ in 0..1 + below(&mut random, 5) {
                mutate(&mut random, &mut input, alphabet);
            }
        }
        let _trace = Trace(&input);
        target(&input);
    }
}

#[test]
fn lua_json() {
    let seeds: &[&[u8]] = &[
        br#"{"name":"a","list":[1,-2.5e3,true,false,null,{"deep":[[]]}],"text":"\u00e4\ud83d\ude00\n\"\/"}"#,
        b"[0x1F,-inf,nan,01,+1,1e400,12345678901234567890]",
        b" [ ] ",
    ];
    run(fuzzing::lua_json, seeds, b"{}[]\",:\\u0123456789eE.-+xtfnaid \0", ROUNDS);
}

#[test]
fn lua_msgpack() {
    let seeds: &[&[u8]] = &[
        b"\x84\xa1a\x01\xa1b\x93\xc0\xc2\xc3\xcb?\xf0\x00\x00\x00\x00\x00\x01\xca?\x00\x00\x00\x01\xd9\x03abc",
        b"\xdd\x00\x00\x00\x02\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xd3\x80\x00\x00\x00\x00\x00\x00\x00",
        b"\xdf\xff\xff\xff\xff\x01\xdb\xff\xff\xff\xff",
        // Nested deeper than can be packed.
        b"\x07k\x96\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91jex\x01\0J\xd0\xd0",
    ];
    run(
        fuzzing::lua_msgpack,
        seeds,
        b"\x00\x01\x7f\x80\x81\x90\x91\xa0\xc0\xc1\xca\xcb\xd9\xdb\xdc\xdd\xde\xdf\xe0\xff",
        ROUNDS,
    );
}

#[test]
fn lua_struct() {
    let seeds: &[&[u8]] = &[
        b">i4<h!8 dsc0Bc0\0\x00\x00\x00\x07abcdefghijklmnopqrstuvwxyz\0abc\x03abc",
        b"!16I32i16xT\0abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
    ];
    run(fuzzing::lua_struct, seeds, b"bBhHlLTiIfdscx<>! 0123456789\x00\xff", ROUNDS);
}

#[test]
fn lua_pattern() {
    let seeds: &[&[u8]] = &[
        b"^(%a+)=%b()%f[%w]([^,]-)$/key=(a(b))c, d",
        b"(.-)%1[]a-c%]]*()/aabb]abc",
        b".-.-.-.-x/aaaaaaaaaaaaaaaaaaaaa",
    ];
    // Some use all the looks that they may.
    run(fuzzing::lua_pattern, seeds, b"^$()%.[]*+-?abdfswz019/ ", ROUNDS / 4);
}

#[test]
fn lua_reply() {
    let seeds: &[&[u8]] = &[
        b"*3\r\n:1\r\n$3\r\nabc\r\n*2\r\n+OK\r\n-ERR no\r\n",
        b"%2\r\n$1\r\na\r\n,1.5\r\n_\r\n#t\r\n",
        b"~2\r\n:1\r\n(123\r\n",
        b"|1\r\n+a\r\n+b\r\n=7\r\ntxt:abc\r\n",
        b"*2147483647\r\n*1\r\n$-1\r\n",
    ];
    run(fuzzing::lua_reply, seeds, b"*$+-:,(_#%~|=>0123456789tfx\r\n", ROUNDS);
}

#[test]
fn lua_source() {
    let seeds: &[&[u8]] = &[
        b"local t = {unpack({1, 2, 3}, -2, 9)} for i, v in ipairs(t) do t[i] = -v end return t",
        b"return [==[a]=]b]==] .. 'x' .. table.concat({1, 2}, \"\\065\", 1, 2)",
        b"local function f(a, b, ...) local x, y = ... return a and b or x end return f(1, f(2)), select('#', f())",
        b"local c = coroutine.wrap(function(a) while a do a = coroutine.yield(a) end end) return c(1), pcall(c, 2)",
        b"repeat local x = function() return x end until x goto = 1 --[[ a ]] return string.format('%5.1f', 0x1p4)",
        b"return load(function() collectgarbage() return nil end, '@' .. ('n'):rep(30))",
        b"a.b.c, a['d'] = 1, 2; local a <const> = {[1] = 2, x = 3; 4, f{}, f'', f[[]]} return -2 ^ 2 .. #a == not nil",
    ];
    run(fuzzing::lua_source, seeds, b"()[]{}=~<>.,;:'\"\\+-*/^%# \n0129abcdefxyz_", ROUNDS);
}
