//! Random requests of memcached's protocols.
//!
//! Numbers have ten digits and change by little. Memcached keeps the length of a number that decreases and pads it
//! with blanks, and Tierce need not imitate that.

use tierce_harness::Random;

/// All keys. Those that begin with an n hold numbers most of the time. Meta commands always write those with a b in
/// base64.
pub(super) const KEYS: [&str; 9] = ["k0", "k1", "k2", "k3", "n0", "n1", "n2", "b0", "b1"];

const BASE64: [(&str, &str); 2] = [("b0", "YjA="), ("b1", "YjE=")];

/// A version that no value ever has: memcached counts versions from 1.
const NO_VERSION: &str = "9000000000000000000";
const C_NONE: &str = "C9000000000000000000";

pub(super) struct Stream {
    pub(super) random: Random,
}

impl Stream {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed) }
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.random.below(from.len())]
    }

    /// Returns a key that all commands may use.
    pub(super) fn key(&mut self) -> &'static str {
        KEYS[self.random.below(7)]
    }

    fn value(&mut self, key: &str) -> String {
        if key.starts_with('n') && !self.random.one_in(6) {
            return (5_000_000_000 + self.random.below(1_000_000) as u64).to_string();
        }
        let len = match self.random.below(6) {
            0 => 0,
            1 => 200 + self.random.below(300),
            _ => self.random.below(30),
        };
        (0..len).map(|_| char::from(b'a' + self.random.below(26) as u8)).collect()
    }

    fn flags(&mut self) -> &'static str {
        self.pick(&["0", "0", "1", "255", "256", "65536", "4294967295"])
    }

    fn exptime(&mut self) -> &'static str {
        self.pick(&["0", "0", "0", "100000", "2000000", "-1", "2000000000"])
    }

    fn noreply(&mut self) -> &'static str {
        if self.random.one_in(6) { " noreply" } else { "" }
    }

    /// Returns a text or meta command.
    pub(super) fn line(&mut self) -> String {
        let key = self.key();
        match self.random.below(22) {
            0..=3 => {
                let names = ["set", "set", "set", "add", "replace", "append", "prepend"];
                // A number that append and prepend have built may begin with a zero.
                let names = if key.starts_with('n') { &names[..5] } else { &names };
                let name = self.pick(names);
                let (value, flags, exptime) = (self.value(key), self.flags(), self.exptime());
                let noreply = self.noreply();
                format!("{name} {key} {flags} {exptime} {}{noreply}\r\n{value}\r\n", value.len())
            }
            4 => format!("get {key} absent {}\r\n", self.key()),
            5 => format!("gets {} {key}\r\n", self.key()),
            6 => {
                let name = self.pick(&["gat", "gats"]);
                format!("{name} {} {key} {}\r\n", self.exptime(), self.key())
            }
            7 => format!("delete {key}{}\r\n", self.noreply()),
            8..=9 => {
                let name = self.pick(&["incr", "decr"]);
                let delta = self.random.below(1000);
                format!("{name} {} {delta}{}\r\n", self.pick(&["n0", "n1", "n2"]), self.noreply())
            }
            10 => format!("touch {key} {}{}\r\n", self.exptime(), self.noreply()),
            11 => self.nonsense(),
            12..=15 => self.meta_get(),
            16..=18 => self.meta_set(),
            19 => {
                let flags = self.some_flags(&["q", "k", "Oab", "I", "T100000"]);
                format!("md {key}{}\r\n", unmarked(key, &flags))
            }
            20 => {
                let all = ["N0 J6000000000", "D7", "MD", "MI", "t", "c", "v", "k"];
                let flags = self.some_flags(&all);
                let flags = if flags.contains("MD") { flags.replace(" MI", "") } else { flags };
                format!("ma {}{flags}\r\n", self.pick(&["n0", "n1", "n2"]))
            }
            _ if self.random.one_in(40) => "flush_all\r\n".to_owned(),
            _ => format!("get {}\r\n", KEYS.join(" ")),
        }
    }

    fn meta_key(&mut self) -> (&'static str, &'static str) {
        if self.random.one_in(5) {
            let (_, text) = BASE64[self.random.below(2)];
            return (text, " b");
        }
        (self.key(), "")
    }

    /// Returns some of `flags`, each at most once, in random order.
    fn some_flags(&mut self, flags: &[&str]) -> String {
        let mut left = flags.to_vec();
        let mut some = String::new();
        for _ in 0..self.random.below(flags.len().min(6)) {
            some.push(' ');
            some.push_str(left.swap_remove(self.random.below(left.len())));
        }
        some
    }

    fn meta_get(&mut self) -> String {
        let (key, base64) = self.meta_key();
        let flags = self.some_flags(&[
            "v", "v", "k", "s", "t", "f", "c", "q", "u", "Oxyz", "N100000", "R50000", "R200000",
            "T100000", "T0",
        ]);
        // The form in which a key is returned depends on the way it was stored.
        let flags = if base64.is_empty() { flags } else { flags.replace(" k", "") };
        format!("mg {key}{base64}{}\r\n", once(&unmarked(key, &flags)))
    }

    fn meta_set(&mut self) -> String {
        let (key, base64) = self.meta_key();
        let value = self.value(key);
        let flags = self.some_flags(&[
            "k", "c", "q", "Oabc", "F7", "F70000", "T0", "T100000", "T-1", "ME", "MA", "MP", "MR",
            "MS", "I", C_NONE,
        ]);
        let flags = if key.starts_with('n') { without(&flags, 'M') } else { flags };
        let flags = once(&unmarked(key, &flags));
        format!("ms {key} {}{base64}{flags}\r\n{value}\r\n", value.len())
    }

    fn nonsense(&mut self) -> String {
        let key = self.key();
        match self.random.below(8) {
            0 => "nonsense\r\n".to_owned(),
            1 => format!("incr {key} x\r\n"),
            2 => format!("mg {key} v v\r\n"),
            3 => format!("ms {key} 1 !\r\nx\r\n"),
            4 => format!("ms {key} 2 MX\r\nab\r\n"),
            5 => "ma n0 Dx\r\n".to_owned(),
            6 => format!("delete {key} 5\r\n"),
            _ => "\r\n".to_owned(),
        }
    }

    /// Returns a store by `VERSION`, or by a version that no value has.
    pub(super) fn line_by_version(&mut self, key: &str) -> String {
        let value = self.value(key);
        let version = if self.random.one_in(4) { NO_VERSION } else { "VERSION" };
        match self.random.below(4) {
            0 => format!("ms {key} {} C{version}\r\n{value}\r\n", value.len()),
            1 => format!("md {key} C{version}\r\n"),
            2 if key.starts_with('k') => {
                format!("ms {key} {} MA C{version}\r\n{value}\r\n", value.len())
            }
            _ => format!("cas {key} 3 0 {} {version}\r\n{value}\r\n", value.len()),
        }
    }

    /// Returns a binary request.
    pub(super) fn frame(&mut self, opaque: u32) -> Vec<u8> {
        let key = self.key();
        let value = self.value(key);
        let (key, value) = (key.as_bytes(), value.as_bytes());
        let number = |pick: usize| ["n0", "n1", "n2"][pick].as_bytes();
        let expiry: u32 = [0, 0, 100_000, 2_000_000_000][self.random.below(4)];
        match self.random.below(12) {
            0..=2 => {
                let opcode = [0x01, 0x02, 0x03, 0x11, 0x12, 0x13][self.random.below(6)];
                let flags = [0u32, 1, 300, u32::MAX][self.random.below(4)];
                let extras = [flags.to_be_bytes(), expiry.to_be_bytes()].concat();
                frame(opcode, opaque, &extras, key, value)
            }
            3..=5 => {
                let opcode = [0x00, 0x09, 0x0c, 0x0d][self.random.below(4)];
                frame(opcode, opaque, b"", key, b"")
            }
            6 => frame([0x04, 0x14][self.random.below(2)], opaque, b"", key, b""),
            7 => {
                let opcode = [0x05, 0x06, 0x15, 0x16][self.random.below(4)];
                let delta = self.random.below(1000) as u64;
                let expiry = if self.random.one_in(2) { u32::MAX } else { 0 };
                let extras = [
                    &delta.to_be_bytes()[..],
                    &7_000_000_000u64.to_be_bytes(),
                    &expiry.to_be_bytes(),
                ];
                frame(opcode, opaque, &extras.concat(), number(self.random.below(3)), b"")
            }
            8 => {
                let opcode = [0x0e, 0x0f, 0x19, 0x1a][self.random.below(4)];
                let key = ["k0", "k1", "k2", "k3"][self.random.below(4)].as_bytes();
                frame(opcode, opaque, b"", key, value)
            }
            9 => {
                let opcode = [0x1c, 0x1d, 0x1e, 0x23, 0x24][self.random.below(5)];
                frame(opcode, opaque, &expiry.to_be_bytes(), key, b"")
            }
            10 => frame(0x60, opaque, b"", b"", b""),
            _ => frame(0x0c, opaque, b"", b"absent", b""),
        }
    }
}

/// Removes flags that would mark a number. Memcached may change a number in place, and then keeps marks and a new
/// time to live with it. That depends on other readers of the item at this moment.
fn unmarked(key: &str, flags: &str) -> String {
    let letters = if key.starts_with('n') { "INR" } else { "" };
    letters.chars().fold(flags.to_owned(), |flags, letter| without(&flags, letter))
}

/// Returns the flags without those of a letter.
fn without(flags: &str, letter: char) -> String {
    let others = flags.split_ascii_whitespace().filter(|flag| !flag.starts_with(letter));
    others.map(|flag| format!(" {flag}")).collect()
}

/// Returns the flags without duplicates.
fn once(flags: &str) -> String {
    let mut seen = [false; 128];
    let mut kept = String::new();
    for flag in flags.split_ascii_whitespace() {
        if !std::mem::replace(&mut seen[usize::from(flag.as_bytes()[0])], true) {
            kept.push(' ');
            kept.push_str(flag);
        }
    }
    kept
}

pub(super) fn frame(opcode: u8, opaque: u32, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let len = (extras.len() + key.len() + value.len()) as u32;
    let mut frame = vec![0x80, opcode, 0, key.len() as u8, extras.len() as u8, 0, 0, 0];
    frame.extend(len.to_be_bytes());
    frame.extend(opaque.to_be_bytes());
    frame.extend([0; 8]);
    frame.extend([extras, key, value].concat());
    frame
}
