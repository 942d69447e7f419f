//! Conversion of command replies to Lua, and of Lua values to replies.

use crate::harness::{Commands, TestMachine};
use proptest::prelude::*;
use tierce_harness::effort;
use tierce_lua::Outcome;
use tierce_wire::resp::Proto;

fn quoted(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("\\{byte:03}"));
    format!("'{}'", digits.collect::<String>())
}

/// Returns the reply for a client of `proto` whose script passes on this reply, after
/// `redis.setresp(3)`.
fn pass(proto: Proto, reply: &[u8]) -> String {
    let mut machine = TestMachine::new();
    machine.proto = proto;
    machine.eval(&format!("redis.setresp(3) return redis.pcall('raw', {})", quoted(reply)))
}

#[test]
fn what_passes_as_it_is() {
    for reply in [
        ":12\r\n",
        ":-9007199254740992\r\n",
        "$3\r\na\r\n\r\n",
        "+OK\r\n",
        "-ERR some text\r\n",
        "_\r\n",
        "#t\r\n",
        "#f\r\n",
        ",1.5\r\n",
        ",inf\r\n",
        "(12345678901234567890\r\n",
        "=7\r\ntxt:abc\r\n",
        "*2\r\n:1\r\n*0\r\n",
        "%1\r\n$1\r\na\r\n*1\r\n:1\r\n",
        "~1\r\n:1\r\n",
    ] {
        assert_eq!(pass(Proto::Resp3, reply.as_bytes()), reply);
    }
}

#[test]
fn what_version_2_gets() {
    for (reply, expected) in [
        ("_\r\n", "$-1\r\n"),
        ("#t\r\n", ":1\r\n"),
        ("#f\r\n", ":0\r\n"),
        (",1.5\r\n", "$3\r\n1.5\r\n"),
        ("(123\r\n", "$3\r\n123\r\n"),
        ("=7\r\ntxt:abc\r\n", "$3\r\nabc\r\n"),
        ("%1\r\n:1\r\n:2\r\n", "*2\r\n:1\r\n:2\r\n"),
        ("~1\r\n:1\r\n", "*1\r\n:1\r\n"),
        ("*-1\r\n", ":0\r\n"),
        ("*3\r\n:1\r\n_\r\n:3\r\n", "*1\r\n:1\r\n"),
        ("|1\r\n+a\r\n+b\r\n:7\r\n", ":7\r\n"),
        ("-WORD\r\n", "-ERR WORD\r\n"),
    ] {
        assert_eq!(pass(Proto::Resp2, reply.as_bytes()), expected, "{reply:?}");
    }
}

#[test]
fn errors_of_commands_are_not_counted_again() {
    let mut machine = TestMachine::new();
    let Outcome::Failed(failure) = machine.run("redis.call('nosuch')", &mut Commands::default())
    else {
        panic!()
    };
    assert!(!failure.is_counted);
    let Outcome::Failed(failure) = machine.run("error('x')", &mut Commands::default()) else {
        panic!()
    };
    assert!(failure.is_counted);
    for (script, is_error, counted) in [
        ("return redis.pcall('nosuch')", true, &[][..]),
        ("return redis.error_reply('MY x')", true, &["MY x"]),
        ("return {1, redis.pcall('nosuch'), {err='MY x\\n'}, {{err='Y'}}}", false, &["MY x", "Y"]),
        ("return {map={a={err='X y'}}}", false, &["X y"]),
    ] {
        let mut commands = Commands::default();
        assert_eq!(machine.run(script, &mut commands), Outcome::Reply { is_error }, "{script}");
        assert_eq!(commands.errors, counted, "{script}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(256)))]

    /// For any reply of the host, the script gets a value, and the machine stays intact.
    #[test]
    fn no_reply_breaks_the_machine(reply in prop::collection::vec(prop::sample::select(
        b"*$%~|>+-:_#,(=0123456789tfx\r\n".to_vec()), 0..60), lines in any::<bool>())
    {
        let mut reply = reply;
        if lines {
            // Most random texts have no complete line.
            reply = reply.chunks(3).flat_map(|part| [part, b"\r\n"].concat()).collect();
        }
        let mut machine = TestMachine::new();
        machine.eval(&format!("redis.setresp(3) return {{redis.pcall('raw', {})}}", quoted(&reply)));
        prop_assert_eq!(machine.eval("return 1"), ":1\r\n");
    }
}

/// The layout of a table depends on the order of assignments; all orders give the same reply.
#[test]
fn fields_count_wherever_the_table_keeps_them() {
    for (field, expected) in [
        ("err = 'ERR x'", "-ERR x\r\n"),
        ("ok = 'x'", "+x\r\n"),
        ("double = 3.5", ",3.5\r\n"),
        ("big_number = '12'", "(12\r\n"),
        ("verbatim_string = {format = 'txt', string = 'x'}", "=5\r\ntxt:x\r\n"),
        ("map = {[1] = 2}", "%1\r\n:1\r\n:2\r\n"),
        ("set = {[1] = true}", "~1\r\n:1\r\n"),
        ("other = 1", "*1\r\n$1\r\nx\r\n"),
    ] {
        for source in [
            format!("return {{{field}, [1] = 'x'}}"),
            format!("return {{[1] = 'x', {field}}}"),
            format!("return {{'x', {field}}}"),
            format!("local t = {{}} t[1] = 'x' t.{field} return t"),
            format!("local t = {{}} t.{field} t[1] = 'x' return t"),
            format!(
                "local t = {{}} t.{field} for i = 1, 40 do t[i] = 'x' end for i = 40, 2, -1 do t[i] = nil end return t"
            ),
            format!(
                "local t = {{}} for i = 40, 2, -1 do t[i] = 'x' end t.{field} for i = 40, 2, -1 do t[i] = nil end t[1] = 'x' return t"
            ),
        ] {
            let mut machine = TestMachine::new();
            machine.proto = Proto::Resp3;
            assert_eq!(machine.eval(&source), expected, "{source}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(256)))]

    /// A list is a list, whatever else its table contains or has contained.
    #[test]
    fn elements_up_to_the_first_nil(
        changes in proptest::collection::vec((0..3u8, 1..40usize, any::<bool>()), 0..60)
    ) {
        let mut elements = [false; 41];
        let mut source = String::from("local t = {}");
        for (kind, place, is_set) in changes {
            let key = match kind {
                0 => format!("k{place}"),
                _ => place.to_string(),
            };
            let key = if kind == 0 { format!("'{key}'") } else { key };
            source += &format!(" t[{key}] = {}", if is_set { "7" } else { "nil" });
            if kind != 0 {
                elements[place] = is_set;
            }
        }
        let len = elements[1..].iter().take_while(|is_set| **is_set).count();
        let expected = format!("*{len}\r\n{}", ":7\r\n".repeat(len));
        prop_assert_eq!(TestMachine::new().eval(&(source + " return t")), expected);
    }
}
