//! Classes and sets of single characters in patterns. Only ASCII has letters.

/// Returns true if `byte` is in the class of the letter after a `%`; any other character stands for itself.
pub fn in_class(byte: u8, name: u8) -> bool {
    let is_in = match name.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | b'\t'..=b'\r'),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return byte == name,
    };
    is_in == name.is_ascii_lowercase()
}

/// Returns true if `byte` is in a set. `set` is the text between its brackets.
pub fn in_set(byte: u8, set: &[u8]) -> bool {
    match set.strip_prefix(b"^") {
        Some(members) => !is_member(byte, members),
        None => is_member(byte, set),
    }
}

fn is_member(byte: u8, mut members: &[u8]) -> bool {
    loop {
        let (is_in, rest) = match members {
            [] => return false,
            [b'%', name, rest @ ..] => (in_class(byte, *name), rest),
            [low, b'-', high, rest @ ..] => ((*low..=*high).contains(&byte), rest),
            [member, rest @ ..] => (*member == byte, rest),
        };
        if is_in {
            return true;
        }
        members = rest;
    }
}
