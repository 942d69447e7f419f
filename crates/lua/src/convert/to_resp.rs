//! Converts a Lua value to a reply in RESP.

use std::ffi::c_int;

use mlua_sys::{
    LUA_TBOOLEAN, LUA_TNIL, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, lua_State, lua_checkstack,
    lua_gettop, lua_next, lua_pop, lua_pushnil, lua_pushvalue, lua_rawget_, lua_rawgeti_,
    lua_toboolean, lua_tonumber, lua_type,
};
use tierce_wire::resp::{Encoder, Proto};

use crate::memory::INSTRUCTIONS_PER_LOOK;
use crate::shared::{count_error, look};
use crate::values::{bytes, push_bytes, string};

/// Maximum nesting of tables. It also ends a table that contains itself.
const DEPTH_MAX: usize = 500;

/// Longest reply, in bytes, in a machine whose memory is not limited.
const REPLY_LEN_MAX: usize = 1 << 30;

/// Reason why a value cannot be written as a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwritable {
    /// It is nested too deep, or contains itself.
    TooDeep,
    /// It is longer than the script's memory limit allows.
    TooLong,
    /// The script is being stopped.
    Stopped,
}

/// Writer of a reply.
pub(crate) struct Writer<'a> {
    state: *mut lua_State,
    encoder: Encoder<'a>,
    /// Protocol chosen by `redis.setresp`.
    of_script: Proto,
    len_max: usize,
    elements: u32,
}

/// Appends the value on top of the stack to `out`, and pops it. `true` if it is an error.
///
/// # Safety
///
/// See [`values`](crate::values).
pub(crate) unsafe fn write_reply(
    state: *mut lua_State,
    out: &mut Vec<u8>,
    proto: Proto,
    of_script: Proto,
    memory_left: usize,
) -> Result<bool, Unwritable> {
    let len_max = out.len().saturating_add(memory_left.min(REPLY_LEN_MAX));
    let encoder = Encoder::new(out, proto);
    // SAFETY: the writer owns nothing.
    unsafe { Writer { state, encoder, of_script, len_max, elements: 0 }.write(0) }
}

impl Writer<'_> {
    /// Writes the value on top of the stack, and pops it.
    unsafe fn write(&mut self, depth: usize) -> Result<bool, Unwritable> {
        let state = self.state;
        let mut is_error = false;
        // SAFETY: every kind leaves the stack as it was, and then the value is popped.
        unsafe {
            match lua_type(state, -1) {
                LUA_TSTRING => self.encoder.bulk(bytes(state, -1).unwrap_or_default()),
                LUA_TNUMBER => self.encoder.int(truncate(lua_tonumber(state, -1))),
                LUA_TBOOLEAN => self.boolean(lua_toboolean(state, -1) != 0),
                LUA_TTABLE => is_error = self.table(depth)?,
                _ => self.encoder.null(),
            }
            lua_pop(state, 1);
        }
        Ok(is_error)
    }

    fn boolean(&mut self, value: bool) {
        match (self.of_script, value) {
            (Proto::Resp3, _) => self.encoder.boolean(value),
            (Proto::Resp2, true) => self.encoder.int(1),
            (Proto::Resp2, false) => self.encoder.null(),
        }
    }

    /// Checks the length of the reply. Must be called for each element of a table.
    fn check_length(&mut self) -> Result<(), Unwritable> {
        if self.encoder.out().len() > self.len_max {
            return Err(Unwritable::TooLong);
        }
        self.elements += 1;
        match self.elements.is_multiple_of(INSTRUCTIONS_PER_LOOK) && look(self.state).is_err() {
            true => Err(Unwritable::Stopped),
            false => Ok(()),
        }
    }

    unsafe fn table(&mut self, depth: usize) -> Result<bool, Unwritable> {
        // SAFETY: there is room for a key and a value at every depth.
        unsafe {
            if depth == DEPTH_MAX || lua_checkstack(self.state, 6) == 0 {
                return Err(Unwritable::TooDeep);
            }
            if let Some(len) = self.count_list() {
                return self.array(depth, len);
            }
            if let Some(is_error) = self.special(depth)? {
                return Ok(is_error);
            }
            let len = self.count_elements();
            self.array(depth, len)
        }
    }

    /// Returns the number of elements of the table on top, if it is a plain list in order, as most tables are. Such a
    /// table need not be searched for the seven special fields.
    unsafe fn count_list(&mut self) -> Option<c_int> {
        let state = self.state;
        let mut count = 0;
        // SAFETY: key and value of each are pushed, and the last key is taken here or by the end of the table.
        unsafe {
            lua_pushnil(state);
            while lua_next(state, -2) != 0 {
                count += 1;
                lua_pop(state, 1);
                if lua_type(state, -1) != LUA_TNUMBER || lua_tonumber(state, -1) != f64::from(count)
                {
                    lua_pop(state, 1);
                    return None;
                }
            }
        }
        Some(count)
    }

    /// Pushes a field of the table on top, and returns its type.
    unsafe fn field(&mut self, name: &[u8]) -> c_int {
        // SAFETY: the name is replaced by the value.
        unsafe {
            push_bytes(self.state, name);
            lua_rawget_(self.state, -2);
            lua_type(self.state, -1)
        }
    }

    /// Writes the table on top by its special field; `None` if it has no such field.
    unsafe fn special(&mut self, depth: usize) -> Result<Option<bool>, Unwritable> {
        let state = self.state;
        // SAFETY: only reads.
        let top = unsafe { lua_gettop(state) };
        // SAFETY: pushed values are popped at the end.
        let written = unsafe {
            if self.field(b"err") == LUA_TSTRING {
                let begin = self.encoder.out().len() + 1;
                self.line(b'-', bytes(state, -1).unwrap_or_default());
                self.field_below(top, b"ignore_error_stats_update");
                if lua_toboolean(state, -1) == 0 {
                    count_error(state, self.encoder.out()[begin..].trim_ascii_end());
                }
                Some(true)
            } else if self.field_below(top, b"ok") == LUA_TSTRING {
                self.line(b'+', bytes(state, -1).unwrap_or_default());
                Some(false)
            } else if self.field_below(top, b"double") == LUA_TNUMBER {
                self.encoder.double(lua_tonumber(state, -1));
                Some(false)
            } else if self.field_below(top, b"big_number") == LUA_TSTRING {
                self.big_number();
                Some(false)
            } else if self.field_below(top, b"verbatim_string") == LUA_TTABLE && self.verbatim() {
                Some(false)
            } else if self.field_below(top, b"map") == LUA_TTABLE {
                self.map(depth + 1)?;
                Some(false)
            } else if self.field_below(top, b"set") == LUA_TTABLE {
                self.set(depth + 1)?;
                Some(false)
            } else {
                None
            }
        };
        // SAFETY: the table itself stays.
        unsafe { mlua_sys::lua_settop(state, top) };
        Ok(written)
    }

    /// Pushes a field of the table at `top`, and nothing else above it.
    unsafe fn field_below(&mut self, top: c_int, name: &[u8]) -> c_int {
        // SAFETY: the caller no longer needs its values above `top`.
        unsafe {
            mlua_sys::lua_settop(self.state, top);
            self.field(name)
        }
    }

    /// Writes a line of text, with spaces in place of line ends.
    fn line(&mut self, kind: u8, text: &[u8]) {
        let out = self.encoder.out();
        out.push(kind);
        let text = match kind {
            b'-' => trim_line_end(text),
            _ => text,
        };
        out.extend(
            text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }),
        );
        out.extend_from_slice(b"\r\n");
    }

    /// Writes the string on top. In RESP2, as a bulk string.
    unsafe fn big_number(&mut self) {
        // SAFETY: the caller has checked its type.
        let digits = unsafe { bytes(self.state, -1).unwrap_or_default() };
        match self.encoder.proto() {
            Proto::Resp3 => self.line(b'(', digits),
            Proto::Resp2 => {
                self.encoder.bulk_header(digits.len());
                let out = self.encoder.out();
                out.extend(
                    digits
                        .iter()
                        .map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }),
                );
                self.encoder.crlf();
            }
        }
    }

    /// Writes the table on top, if it has the two fields.
    unsafe fn verbatim(&mut self) -> bool {
        // SAFETY: two values are pushed, which the caller takes.
        unsafe {
            push_bytes(self.state, b"format");
            lua_rawget_(self.state, -2);
            push_bytes(self.state, b"string");
            lua_rawget_(self.state, -3);
            let (Some(format), Some(text)) = (string(self.state, -2), string(self.state, -1))
            else {
                return false;
            };
            // The name has three characters: longer ones are truncated, and missing ones are zero bytes, as in Redis.
            let mut name = [0; 3];
            for (to, from) in name.iter_mut().zip(format) {
                *to = *from;
            }
            self.encoder.verbatim(&name, text);
            true
        }
    }

    /// Writes the pairs of the table on top.
    unsafe fn map(&mut self, depth: usize) -> Result<(), Unwritable> {
        let state = self.state;
        // SAFETY: each key is kept for `lua_next`, and written from a copy; the value is taken.
        unsafe {
            if depth == DEPTH_MAX || lua_checkstack(state, 8) == 0 {
                return Err(Unwritable::TooDeep);
            }
            let len = self.count_pairs();
            self.encoder.map(len);
            lua_pushnil(state);
            while lua_next(state, -2) != 0 {
                self.check_length()?;
                lua_pushvalue(state, -2);
                self.write(depth)?;
                self.write(depth)?;
            }
        }
        Ok(())
    }

    /// Writes the keys of the table on top.
    unsafe fn set(&mut self, depth: usize) -> Result<(), Unwritable> {
        let state = self.state;
        // SAFETY: as for a map.
        unsafe {
            if depth == DEPTH_MAX || lua_checkstack(state, 8) == 0 {
                return Err(Unwritable::TooDeep);
            }
            let len = self.count_pairs();
            self.encoder.set(len);
            lua_pushnil(state);
            while lua_next(state, -2) != 0 {
                self.check_length()?;
                lua_pop(state, 1);
                lua_pushvalue(state, -1);
                self.write(depth)?;
            }
        }
        Ok(())
    }

    unsafe fn count_pairs(&mut self) -> usize {
        let mut count = 0;
        // SAFETY: values are taken, and the last key by the end of the iteration.
        unsafe {
            lua_pushnil(self.state);
            while lua_next(self.state, -2) != 0 {
                lua_pop(self.state, 1);
                count += 1;
            }
        }
        count
    }

    /// Writes the first `len` elements of the table on top.
    unsafe fn array(&mut self, depth: usize, len: c_int) -> Result<bool, Unwritable> {
        let state = self.state;
        // SAFETY: each element is pushed, and taken when it is written.
        unsafe {
            self.encoder.array(len as usize);
            for place in 1..=len {
                self.check_length()?;
                lua_rawgeti_(state, -1, place);
                self.write(depth + 1)?;
            }
        }
        Ok(false)
    }

    /// Returns the number of elements of the table on top up to the first nil.
    unsafe fn count_elements(&mut self) -> c_int {
        let mut count = 0;
        loop {
            // SAFETY: the element is taken.
            unsafe {
                lua_rawgeti_(self.state, -1, count + 1);
                let kind = lua_type(self.state, -1);
                lua_pop(self.state, 1);
                if kind == LUA_TNIL {
                    return count;
                }
            }
            count += 1;
        }
    }
}

/// Truncates a number. One that does not fit in an integer becomes the least integer, as in C on x86-64.
fn truncate(number: f64) -> i64 {
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    if fits { number as i64 } else { i64::MIN }
}

/// Trims line ends at the end.
pub(crate) fn trim_line_end(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |at| at + 1);
    &text[..end]
}
