//! Converts JSON to values, without recursion: a text may nest as deep as Lua's stack has room.

use std::ffi::c_int;

use super::settings;
use super::token::{Token, Tokens};
use crate::native::{Buffer, Error, List, Outcome, Stack, Steps};

/// Levels that need no memory of the state.
const OPEN_INLINE: usize = 32;

pub fn decode(stack: Stack<'_>) -> Outcome<c_int> {
    if stack.top() != 1 {
        return Err(stack.argument_error(1, format_args!("expected 1 argument")));
    }
    let settings = *settings(stack);
    let text = stack.check_bytes(1)?;
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(stack.error(format_args!("JSON parser does not support UTF-16 or UTF-32")));
    }
    let mut decoder = Decoder {
        stack,
        tokens: Tokens::new(text, settings.decode_invalid_numbers != 0),
        unescaped: Buffer::new(stack),
        open: List::new(stack),
        depth_max: settings.decode_depth_max,
        steps: Steps::new(),
    };
    decoder.value()?;
    let last = decoder.next();
    if last != Token::End {
        return Err(decoder.unexpected("the end", last));
    }
    Ok(1)
}

/// An object or array that is being read. Its table is on the stack, and for an object the key of the next value too.
#[derive(Clone, Copy)]
enum Open {
    Object,
    /// The index of its next value.
    Array(c_int),
}

impl Open {
    fn end(self) -> u8 {
        match self {
            Self::Object => b'}',
            Self::Array(_) => b']',
        }
    }

    /// Returns the tokens expected after a value in it, in the words of errors.
    fn comma_or_end(self) -> &'static str {
        match self {
            Self::Object => "comma or object end",
            Self::Array(_) => "comma or array end",
        }
    }
}

struct Decoder<'call> {
    stack: Stack<'call>,
    tokens: Tokens<'call>,
    /// The text of the last string that had escapes.
    unescaped: Buffer<'call>,
    open: List<'call, Open, OPEN_INLINE>,
    depth_max: c_int,
    steps: Steps,
}

impl<'call> Decoder<'call> {
    fn next(&mut self) -> Token<'call> {
        self.steps.take(self.stack, 1);
        self.tokens.next(&mut self.unescaped)
    }

    fn unexpected(&self, expected: &str, found: Token<'_>) -> Error {
        let (name, character) = (found.name(), self.tokens.start() + 1);
        self.stack
            .error(format_args!("Expected {expected} but found {name} at character {character}"))
    }

    /// Pushes the next value, including its content.
    fn value(&mut self) -> Outcome<()> {
        let mut token = self.next();
        loop {
            let first_inside = match token {
                Token::ObjectBegin => self.begin(Open::Object, 3)?,
                Token::ArrayBegin => self.begin(Open::Array(1), 2)?,
                _ => {
                    self.scalar(token)?;
                    None
                }
            };
            token = match first_inside {
                Some(first) => first,
                None => match self.after_value()? {
                    Some(next) => next,
                    None => return Ok(()),
                },
            };
        }
    }

    fn scalar(&mut self, token: Token<'call>) -> Outcome<()> {
        match token {
            Token::String(bytes) => self.stack.push_bytes(bytes),
            Token::Unescaped => self.unescaped.push(),
            Token::Number(number) => self.stack.push_number(number),
            Token::Boolean(value) => self.stack.push_boolean(value),
            Token::Null => self.stack.push_null(),
            _ => return Err(self.unexpected("value", token)),
        }
        Ok(())
    }

    /// Pushes a table of `slots` slots, and returns the token of its first value. `None`: it is empty.
    fn begin(&mut self, open: Open, slots: c_int) -> Outcome<Option<Token<'call>>> {
        let depth = self.open.as_slice().len() + 1;
        let is_allowed = c_int::try_from(depth).is_ok_and(|depth| depth <= self.depth_max);
        if !is_allowed || !self.stack.reserve(slots) {
            let character = self.tokens.position();
            let text = format_args!(
                "Found too many nested data structures ({depth}) at character {character}"
            );
            return Err(self.stack.error(text));
        }
        self.stack.push_table(0, 0);
        if self.tokens.eat(open.end()) {
            return Ok(None);
        }
        self.open.push(open);
        self.next_inside(open).map(Some)
    }

    /// Returns the token of the next value in an object or array; in an object, the one after its key.
    fn next_inside(&mut self, open: Open) -> Outcome<Token<'call>> {
        let token = self.next();
        match open {
            Open::Object => self.key(token),
            Open::Array(_) => Ok(token),
        }
    }

    /// Pushes the key of this token, and returns the token of its value.
    fn key(&mut self, token: Token<'call>) -> Outcome<Token<'call>> {
        match token {
            Token::String(_) | Token::Unescaped => self.scalar(token)?,
            _ => return Err(self.unexpected("object key string", token)),
        }
        if !self.tokens.eat(b':') {
            let found = self.next();
            return Err(self.unexpected("colon", found));
        }
        Ok(self.next())
    }

    /// Adds the last value to its table, and tables that end with it to theirs. Returns the token of the next value,
    /// or `None` if that was the outermost.
    fn after_value(&mut self) -> Outcome<Option<Token<'call>>> {
        while let Some(open) = self.open.last_mut() {
            match open {
                Open::Object => self.stack.raw_set(-3),
                Open::Array(n) => {
                    self.stack.raw_set_element(-2, *n);
                    *n += 1;
                }
            }
            let open = *open;
            if self.tokens.eat(b',') {
                return self.next_inside(open).map(Some);
            }
            if !self.tokens.eat(open.end()) {
                let found = self.next();
                return Err(self.unexpected(open.comma_or_end(), found));
            }
            self.open.pop();
        }
        Ok(None)
    }
}
