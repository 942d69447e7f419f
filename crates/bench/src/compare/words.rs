//! A command line as one string, cut into words as a shell would, without a shell.
//!
//! Single quotes keep everything, double quotes keep everything but `\"` and `\\`, and outside of
//! quotes a backslash keeps the next character. Variables, globs and pipes mean nothing.

/// The words of `line`.
///
/// # Errors
/// When a quote is not closed or nothing follows a backslash.
pub(crate) fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(character) = rest.next() {
        match character {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => single_quoted(&mut rest, word.get_or_insert_default())?,
            '"' => double_quoted(&mut rest, word.get_or_insert_default())?,
            '\\' => {
                let kept = rest.next().ok_or("a backslash at the end of a command line")?;
                word.get_or_insert_default().push(kept);
            }
            plain => word.get_or_insert_default().push(plain),
        }
    }
    words.extend(word);
    Ok(words)
}

fn single_quoted(rest: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), String> {
    for character in rest {
        match character {
            '\'' => return Ok(()),
            kept => word.push(kept),
        }
    }
    Err("a ' in a command line is not closed".into())
}

fn double_quoted(rest: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), String> {
    while let Some(character) = rest.next() {
        match character {
            '"' => return Ok(()),
            '\\' => match rest.next() {
                Some(escaped @ ('"' | '\\')) => word.push(escaped),
                Some(other) => word.extend(['\\', other]),
                None => break,
            },
            kept => word.push(kept),
        }
    }
    Err("a \" in a command line is not closed".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &[&str]) {
        assert_eq!(split(line).unwrap(), expected, "{line}");
    }

    #[test]
    fn words_are_cut_as_a_shell_would() {
        check("", &[]);
        check("  a  b\tc ", &["a", "b", "c"]);
        check(r#"redis-server --save "" --x 'a b'"#, &["redis-server", "--save", "", "--x", "a b"]);
        check(r#"a"b c"d'e'f\ g"#, &["ab cdef g"]);
        check(r#""q\"\\\n""#, &[r#"q"\\n"#]);
    }

    #[test]
    fn open_ends_are_refused() {
        for line in ["'a", "\"a", "a\\", "\"a\\"] {
            assert!(split(line).is_err(), "{line}");
        }
    }
}
