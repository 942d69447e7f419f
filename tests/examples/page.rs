//! The examples as they are printed in `docs/commands/`.

/// The calls shown for one command.
pub(super) struct Example {
    /// Heading of its group.
    pub(super) chapter: String,
    /// The name in the form of `COMMAND LIST`: `get`, `client|list`.
    pub(super) command: String,
    /// Calls in order.
    pub(super) calls: Vec<Call>,
}

/// A call and its shown reply.
pub(super) struct Call {
    /// The line as a user types it.
    pub(super) line: String,
    /// Lines of the reply; empty if there is no reply.
    pub(super) reply: Vec<String>,
    /// The reply in RESP3, if it has another form.
    pub(super) resp3: Option<Vec<String>>,
}

/// Returns all examples, page by page in the order of the index.
pub(super) fn read() -> Vec<Example> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands");
    let page = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).expect(name);
    let index = page("README.md");
    let headings = index.lines().filter_map(|line| line.strip_prefix("## [")?.strip_suffix(')'));
    let names = headings.map(|heading| heading.split_once("](").expect("a link to a page").1);
    names.flat_map(|name| parse(&page(name))).collect()
}

fn parse(page: &str) -> Vec<Example> {
    let (mut chapter, mut command) = (String::new(), String::new());
    let mut examples: Vec<Example> = Vec::new();
    let mut is_inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_inside = line == "```text";
            if is_inside {
                let (chapter, command) = (chapter.clone(), command.clone());
                examples.push(Example { chapter, command, calls: Vec::new() });
            }
        } else if is_inside {
            add_line(&mut examples.last_mut().expect("begun above").calls, line);
        } else if let Some(name) = line.strip_prefix("## ") {
            command = name.to_lowercase().replace(' ', "|");
        } else if let Some(title) = line.strip_prefix("# ") {
            chapter = title.to_owned();
        }
    }
    examples
}

fn add_line(calls: &mut Vec<Call>, line: &str) {
    if let Some(call) = line.strip_prefix("> ") {
        calls.push(Call { line: call.to_owned(), reply: Vec::new(), resp3: None });
        return;
    }
    let call = calls.last_mut().expect("a call before its reply");
    if line == "RESP3:" {
        call.resp3 = Some(Vec::new());
    } else {
        call.resp3.as_mut().unwrap_or(&mut call.reply).push(line.to_owned());
    }
}

/// Parses the arguments of a call: words, and texts in double quotes with the escapes of redis-cli.
pub(super) fn arguments(line: &str) -> Vec<Vec<u8>> {
    let mut arguments = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let argument;
        (argument, rest) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                (word.into(), rest)
            }
        };
        arguments.push(argument);
        rest = rest.trim_start();
    }
    arguments
}

/// Returns the text up to the closing quote, and the text after it.
fn unquote(quoted: &str) -> (Vec<u8>, &str) {
    let mut text = Vec::new();
    let mut chars = quoted.chars();
    while let Some(char) = chars.next() {
        match char {
            '"' => return (text, chars.as_str()),
            '\\' => match chars.next() {
                Some('x') => {
                    let (code, rest) = chars.as_str().split_at(2);
                    text.push(u8::from_str_radix(code, 16).expect("two hexadecimal digits"));
                    chars = rest.chars();
                }
                Some('n') => text.push(b'\n'),
                Some('r') => text.push(b'\r'),
                Some('t') => text.push(b'\t'),
                escaped => text.extend(escaped.expect("an escape").to_string().bytes()),
            },
            char => text.extend(char.to_string().bytes()),
        }
    }
    panic!("no closing quote: {quoted}");
}

#[test]
fn arguments_are_read_as_by_redis_cli() {
    let read = arguments(r#"SET  a "b \"c\"\x00\n" d"#);
    assert_eq!(read, [&b"SET"[..], b"a", b"b \"c\"\x00\n", b"d"]);
}

#[test]
fn a_page_is_read() {
    let page =
        "# Keys\n| `DEL key` |\n## OBJECT FREQ\n```text\n> ONE\n1) a\n> TWO\nb\nRESP3:\nc\n```\n";
    let examples = parse(page);
    assert_eq!(examples.len(), 1);
    assert_eq!((&*examples[0].chapter, &*examples[0].command), ("Keys", "object|freq"));
    let [one, two] = &examples[0].calls[..] else { panic!("two calls") };
    assert_eq!((&*one.line, &one.reply[..], &one.resp3), ("ONE", &["1) a".to_owned()][..], &None));
    assert_eq!((&two.reply[..], &two.resp3), (&["b".to_owned()][..], &Some(vec!["c".to_owned()])));
}
