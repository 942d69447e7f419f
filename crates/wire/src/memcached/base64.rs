//! Keys of meta commands in base64, standard alphabet with padding.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

/// Decoder that accepts unused bits in the last character, as memcached does.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Returns how many bytes `len` characters decode to at most.
pub const fn decoded_len_max(len: usize) -> usize {
    len / 4 * 3
}

/// Appends `bytes` as characters.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = ENGINE.encode_slice(bytes, &mut out[start..]);
    debug_assert_eq!(written, Ok(out.len() - start), "four characters for each three bytes");
}

/// Decodes the characters into `out` and returns that part of it; `None` if they are not base64 or
/// decode to more bytes than fit.
pub fn decode<'o>(text: &[u8], out: &'o mut [u8]) -> Option<&'o [u8]> {
    let len = ENGINE.decode_slice(text, out).ok().filter(|&len| len > 0)?;
    Some(&out[..len])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierce_harness::effort;

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
            let mut room = vec![0; plain.len()];
            assert_eq!(decode(text.as_bytes(), &mut room), Some(plain.as_bytes()));
        }
    }

    #[test]
    fn bits_that_mean_nothing_are_ignored() {
        assert_eq!(decode(b"Zh==", &mut [0; 1]), Some(&b"f"[..]));
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in ["", "Zg", "Zg=", "Z===", "====", "Zm9v!g==", "Zm=v", "Zm9vZm9vZm9v"] {
            assert_eq!(decode(text.as_bytes(), &mut [0; 6]), None, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 1..300)) {
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            let mut room = vec![0; decoded_len_max(text.len())];
            prop_assert_eq!(decode(&text, &mut room), Some(&bytes[..]));
        }
    }
}
