//! Numbers at the beginning of a text, in all forms that C's `strtod` takes: decimal, hexadecimal, infinities and NaN.

/// Returns the number at the beginning of the text, and its length.
pub fn read(text: &[u8]) -> Option<(f64, usize)> {
    if let Some(found) = read_short(text) {
        return Some(found);
    }
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let (magnitude, len) = read_magnitude(&text[sign..])?;
    let is_negative = text.first() == Some(&b'-');
    Some((if is_negative { -magnitude } else { magnitude }, sign + len))
}

/// Reads integers of few digits, the most common numbers.
fn read_short(text: &[u8]) -> Option<(f64, usize)> {
    const DIGITS_MAX: usize = 9;
    let sign = usize::from(text.first() == Some(&b'-'));
    let digits =
        text[sign..].iter().take(DIGITS_MAX + 1).take_while(|byte| byte.is_ascii_digit()).count();
    let len = sign + digits;
    if digits == 0
        || digits > DIGITS_MAX
        || matches!(text.get(len), Some(b'.' | b'e' | b'E' | b'x' | b'X'))
    {
        return None;
    }
    let value = text[sign..len].iter().fold(0, |all, digit| all * 10 + u32::from(digit - b'0'));
    let value = f64::from(value);
    Some((if sign == 1 { -value } else { value }, len))
}

fn read_magnitude(text: &[u8]) -> Option<(f64, usize)> {
    if starts_with(text, b"infinity") {
        return Some((f64::INFINITY, 8));
    }
    if starts_with(text, b"inf") {
        return Some((f64::INFINITY, 3));
    }
    if starts_with(text, b"nan") {
        return Some((f64::NAN, 3 + payload(&text[3..])));
    }
    if starts_with(text, b"0x")
        && let Some((number, len)) = read_hexadecimal(&text[2..])
    {
        return Some((number, 2 + len));
    }
    read_decimal(text)
}

fn starts_with(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// Returns the length of the text in parentheses that may follow `nan`.
fn payload(text: &[u8]) -> usize {
    let Some(rest) = text.strip_prefix(b"(") else { return 0 };
    let len = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    if rest.get(len) == Some(&b')') { len + 2 } else { 0 }
}

fn read_decimal(text: &[u8]) -> Option<(f64, usize)> {
    let digits = |from: usize| text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut len = whole;
    if text.get(whole) == Some(&b'.') {
        let fraction = digits(whole + 1);
        if whole + fraction == 0 {
            return None;
        }
        len += 1 + fraction;
    } else if whole == 0 {
        return None;
    }
    len += exponent(&text[len..], b'e').map_or(0, |(_, len)| len);
    let number = std::str::from_utf8(&text[..len]).ok()?.parse().ok()?;
    Some((number, len))
}

/// Reads an exponent after its letter, with its length. It is limited to a value beyond all numbers.
fn exponent(text: &[u8], letter: u8) -> Option<(i32, usize)> {
    const BEYOND_ALL: i32 = 100_000_000;
    if text.first()?.to_ascii_lowercase() != letter {
        return None;
    }
    let sign = usize::from(matches!(text.get(1), Some(b'-' | b'+')));
    let digits = text[1 + sign..].iter().take_while(|byte| byte.is_ascii_digit());
    let (value, count) = digits.fold((0_i32, 0), |(value, count), digit| {
        ((value * 10 + i32::from(digit - b'0')).min(BEYOND_ALL / 10), count + 1)
    });
    if count == 0 {
        return None;
    }
    Some((if text[1] == b'-' { -value } else { value }, 1 + sign + count))
}

/// Reads digits and an exponent of two, after `0x`.
fn read_hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    let (mut mantissa, mut scale, mut digits, mut point) = (0_u64, 0_i32, 0, None);
    let mut len = 0;
    for &byte in text {
        if let Some(digit) = char::from(byte).to_digit(16) {
            digits += 1;
            if mantissa >> 60 == 0 {
                mantissa = mantissa << 4 | u64::from(digit);
            } else {
                // Digits that do not fit only affect rounding.
                mantissa |= u64::from(digit != 0);
                scale = scale.saturating_add(4);
            }
            if point.is_some() {
                scale = scale.saturating_sub(4);
            }
        } else if byte == b'.' && point.is_none() {
            point = Some(len);
        } else {
            break;
        }
        len += 1;
    }
    if digits == 0 {
        return None;
    }
    if let Some((power, exponent_len)) = exponent(&text[len..], b'p') {
        scale = scale.saturating_add(power);
        len += exponent_len;
    }
    Some((scaled(mantissa as f64, scale), len))
}

/// Returns `number` times 2 to the power of `scale`, in steps that do not overflow on their own.
fn scaled(mut number: f64, mut scale: i32) -> f64 {
    const STEP: i32 = 1000;
    if number == 0.0 {
        return number;
    }
    while scale > STEP && number.is_finite() {
        number *= 2_f64.powi(STEP);
        scale -= STEP;
    }
    while scale < -STEP && number != 0.0 {
        number *= 2_f64.powi(-STEP);
        scale += STEP;
    }
    number * 2_f64.powi(scale.clamp(-STEP, STEP))
}

/// Returns true if the text begins with a number that C accepts, but JSON does not.
pub fn is_invalid(text: &[u8]) -> bool {
    if text.first() == Some(&b'+') {
        return true;
    }
    let text = text.strip_prefix(b"-").unwrap_or(text);
    match text {
        [b'0', b'x' | b'X' | b'0'..=b'9', ..] => true,
        _ => starts_with(text, b"inf") || starts_with(text, b"nan"),
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn numbers_end_where_c_ends_them() {
        for (text, number, len) in [
            ("12,", 12.0, 2),
            ("-0", -0.0, 2),
            ("+7", 7.0, 2),
            ("1e5x", 1e5, 3),
            ("1e", 1.0, 1),
            ("1e+", 1.0, 1),
            (".5", 0.5, 2),
            ("5.", 5.0, 2),
            ("5.e2", 500.0, 4),
            ("0x", 0.0, 1),
            ("0x.8p1", 1.0, 6),
            ("0x1p-1074", 5e-324, 9),
            ("0x10", 16.0, 4),
            ("0xfffffffffffffffffff", 75_557_863_725_914_323_419_135.0, 21),
            ("1e999", f64::INFINITY, 5),
            ("-1e-999", -0.0, 7),
            ("1e99999999999999999999", f64::INFINITY, 22),
            ("inf", f64::INFINITY, 3),
            ("-Infinityx", f64::NEG_INFINITY, 9),
            ("infinit", f64::INFINITY, 3),
            ("1234567890123", 1_234_567_890_123.0, 13),
            ("123456789", 123_456_789.0, 9),
        ] {
            let (read_number, read_len) = read(text.as_bytes()).unwrap();
            assert_eq!((read_number.to_bits(), read_len), (number.to_bits(), len), "{text}");
        }
        for text in ["", "-", "+", ".", "-.", "e5", "--1", "in", "x"] {
            assert!(read(text.as_bytes()).is_none(), "{text}");
        }
        assert_eq!(read(b"nan(x_1)y").map(|(_, len)| len), Some(8));
        assert_eq!(read(b"nan(x y)").map(|(_, len)| len), Some(3));
    }
}
