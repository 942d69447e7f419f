//! Comparison of replies: byte for byte, except for versions, which each server makes on its own, and times to live,
//! because the clocks of the two tick at different moments.

/// Times to live in the stream are zero, over, or longer than this.
const SECONDS_LONG: u64 = 10_000;

/// Returns lines without the parts that may differ.
pub(super) fn masked(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    let mut masked = String::new();
    for line in text.split_inclusive("\r\n") {
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        let is_value = words[0] == "VALUE" && words.len() == 5;
        let is_meta = ["HD", "VA", "EX", "NS", "NF"].contains(&words[0]);
        for (index, word) in words.iter().enumerate() {
            masked.push_str(if index > 0 { " " } else { "" });
            match (word.split_at_checked(1), number(word)) {
                _ if is_value && index == 4 => masked.push_str("VERSION"),
                (Some(("c", _)), Some(_)) if is_meta => masked.push_str("cVERSION"),
                (Some(("t", _)), Some(seconds)) if is_meta && seconds >= SECONDS_LONG => {
                    masked.push_str("tLONG");
                }
                _ => masked.push_str(word),
            }
        }
        masked.push_str("\r\n");
    }
    masked
}

/// Returns the number after the letter of a flag.
fn number(word: &str) -> Option<u64> {
    word.get(1..)?.parse().ok()
}

/// A frame without its version.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) opcode: u8,
    key_len: [u8; 2],
    extras_len: u8,
    status: [u8; 2],
    opaque: [u8; 4],
    has_version: bool,
    body: &'a [u8],
}

/// Returns all frames of an answer, if it ends with a complete one.
pub(super) fn frames(answer: &[u8]) -> Option<Vec<Frame<'_>>> {
    let (mut frames, mut rest) = (Vec::new(), answer);
    while !rest.is_empty() {
        let (header, after) = rest.split_first_chunk::<24>()?;
        let len = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let (body, after) = after.split_at_checked(len)?;
        rest = after;
        frames.push(Frame {
            opcode: header[1],
            key_len: [header[2], header[3]],
            extras_len: header[4],
            status: [header[6], header[7]],
            opaque: [header[12], header[13], header[14], header[15]],
            has_version: header[16..24] != [0; 8],
            body,
        });
    }
    Some(frames)
}

/// Compares two answers except for versions.
pub(super) fn same_frames(tested: &[u8], reference: &[u8]) -> Result<(), String> {
    let (a, b) = (frames(tested).unwrap_or_default(), frames(reference).unwrap_or_default());
    let different = a.iter().zip(&b).find(|(a, b)| a != b);
    match different {
        Some((a, b)) => Err(format!("frames differ\n  tierce:    {a:?}\n  reference: {b:?}")),
        None if a.len() != b.len() => Err(format!("{} frames and {}", a.len(), b.len())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_long_times_are_masked() {
        assert_eq!(
            masked(b"VALUE k 0 1 17\r\nt5\r\nEND\r\n"),
            "VALUE k 0 1 VERSION\r\nt5\r\nEND\r\n"
        );
        assert_eq!(masked(b"HD c5 t-1 t20000 kc5\r\n"), "HD cVERSION t-1 tLONG kc5\r\n");
        assert_eq!(masked(b"HD t9\r\n"), "HD t9\r\n");
    }
}
