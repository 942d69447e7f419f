//! Base64 with padding, the standard alphabet, in which meta commands may write keys.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes that are written as `len` characters at most.
#[must_use]
pub const fn decoded_len_max(len: usize) -> usize {
    len / 4 * 3
}

/// Appends `bytes` as characters.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.chunks(3) {
        let mut word = 0u32;
        for index in 0..3 {
            word = word << 8 | u32::from(chunk.get(index).copied().unwrap_or(0));
        }
        for index in 0..4 {
            let digit = word >> (18 - 6 * index) & 63;
            out.push(if index > chunk.len() { b'=' } else { ALPHABET[digit as usize] });
        }
    }
}

/// Writes what the characters mean into `out` and returns that part of it; `None` if they are no
/// base64 or mean more bytes than fit.
#[must_use]
pub fn decode<'o>(text: &[u8], out: &'o mut [u8]) -> Option<&'o [u8]> {
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take(2).take_while(|&&byte| byte == b'=').count();
    let len = text.len() / 4 * 3 - padding;
    let digits = &text[..text.len() - padding];
    let (mut word, mut bits, mut at) = (0u32, 0, 0);
    for &digit in digits {
        word = word << 6 | u32::from(value_of(digit)?);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            *out.get_mut(at)? = (word >> bits) as u8;
            at += 1;
        }
    }
    debug_assert_eq!(at, len);
    Some(&out[..len])
}

fn value_of(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_the_standard() {
        for (plain, text) in [
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut out = Vec::new();
            encode(plain.as_bytes(), &mut out);
            assert_eq!(out, text.as_bytes());
            assert_eq!(decode(text.as_bytes(), &mut [0; 10]), Some(plain.as_bytes()));
        }
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in ["", "Zg", "Zg=", "Z===", "====", "Zm9v!g==", "Zm=v", "Zm9vZm9vZm9v"] {
            assert_eq!(decode(text.as_bytes(), &mut [0; 6]), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 1..300)) {
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            let mut room = vec![0; decoded_len_max(text.len())];
            prop_assert_eq!(decode(&text, &mut room), Some(&bytes[..]));
        }
    }
}
