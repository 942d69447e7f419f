//! Converts a reply in RESP to a Lua value.

use std::ffi::{CStr, c_int};

use memchr::memchr;
use mlua_sys::{
    LUA_TNIL, lua_State, lua_checkstack, lua_createtable, lua_gettop, lua_pop, lua_pushboolean,
    lua_pushnil, lua_pushnumber, lua_rawequal, lua_rawset, lua_rawseti_, lua_setfield, lua_settop,
    lua_type,
};
use tierce_wire::number::{parse_f64, parse_i64};

use crate::values::{mark_counted, push_bytes, push_error};

/// Maximum nesting of replies. Those of commands are nested at most four deep.
const DEPTH_MAX: usize = 64;

/// Length of the shortest element of an aggregate, `_\r\n`. No table is created for more elements than the bytes
/// allow.
const ELEMENT_LEN_MIN: usize = 3;

/// The bytes are not a valid reply.
struct Malformed;

/// Pushes a reply. Malformed bytes become an error.
///
/// # Safety
///
/// See [`values`](crate::values).
pub(crate) unsafe fn push_reply(state: *mut lua_State, reply: &[u8]) {
    let mut reader = Reader { state, rest: reply };
    // SAFETY: the reader owns nothing.
    unsafe {
        let top = lua_gettop(state);
        if reader.push(0).is_err() {
            lua_settop(state, top);
            push_error(state, b"ERR malformed reply");
        }
    }
}

struct Reader<'a> {
    state: *mut lua_State,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads a line, without its end.
    #[inline]
    fn line(&mut self) -> Result<&'a [u8], Malformed> {
        let end = memchr(b'\r', self.rest).ok_or(Malformed)?;
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest.strip_prefix(b"\r\n").ok_or(Malformed)?;
        Ok(line)
    }

    /// Reads a line with a length; `None` for that of a null.
    fn length(&mut self) -> Result<Option<usize>, Malformed> {
        match parse_i64(self.line()?).ok_or(Malformed)? {
            -1 => Ok(None),
            length => usize::try_from(length).map(Some).map_err(|_| Malformed),
        }
    }

    /// Reads that many bytes, and the end of line after them.
    #[inline]
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Malformed)?;
        self.rest = rest.strip_prefix(b"\r\n").ok_or(Malformed)?;
        Ok(bytes)
    }

    /// Reads a value, and pushes it.
    unsafe fn push(&mut self, depth: usize) -> Result<(), Malformed> {
        let (&kind, rest) = self.rest.split_first().ok_or(Malformed)?;
        self.rest = rest;
        // SAFETY: every kind pushes one value; aggregates make room for what they need.
        unsafe {
            match kind {
                b'$' => self.bulk(),
                b':' => {
                    let number = parse_i64(self.line()?).ok_or(Malformed)?;
                    lua_pushnumber(self.state, number as f64);
                    Ok(())
                }
                b'+' => self.in_field(c"ok"),
                b'-' => self.error(),
                b'_' => {
                    self.line()?;
                    lua_pushnil(self.state);
                    Ok(())
                }
                b'#' => {
                    let is_true = self.line()? == b"t";
                    lua_pushboolean(self.state, c_int::from(is_true));
                    Ok(())
                }
                b',' => self.double(),
                b'(' => self.in_field(c"big_number"),
                b'=' => self.verbatim(),
                _ if depth == DEPTH_MAX || lua_checkstack(self.state, 8) == 0 => Err(Malformed),
                b'*' | b'>' => self.array(depth + 1),
                b'%' => self.map(depth + 1),
                b'~' => self.set(depth + 1),
                b'|' => self.attribute(depth + 1),
                _ => Err(Malformed),
            }
        }
    }

    unsafe fn bulk(&mut self) -> Result<(), Malformed> {
        // SAFETY: pushes one value.
        unsafe {
            match self.length()? {
                Some(len) => push_bytes(self.state, self.bytes(len)?),
                None => lua_pushboolean(self.state, 0),
            }
        }
        Ok(())
    }

    /// Pushes a table with the line in this field.
    unsafe fn in_field(&mut self, name: &CStr) -> Result<(), Malformed> {
        let line = self.line()?;
        // SAFETY: the text is taken by the table.
        unsafe {
            lua_createtable(self.state, 0, 1);
            push_bytes(self.state, line);
            lua_setfield(self.state, -2, name.as_ptr());
        }
        Ok(())
    }

    unsafe fn error(&mut self) -> Result<(), Malformed> {
        let line = self.line()?;
        // SAFETY: a single word gets the kind `ERR` before it, put together by Lua.
        unsafe {
            if line.contains(&b' ') {
                push_error(self.state, line);
            } else {
                lua_createtable(self.state, 0, 4);
                push_bytes(self.state, b"ERR ");
                push_bytes(self.state, line);
                mlua_sys::lua_concat(self.state, 2);
                lua_setfield(self.state, -2, c"err".as_ptr());
            }
            mark_counted(self.state);
        }
        Ok(())
    }

    unsafe fn double(&mut self) -> Result<(), Malformed> {
        let number = match self.line()? {
            b"nan" | b"-nan" => f64::NAN,
            text => parse_f64(text).ok_or(Malformed)?,
        };
        // SAFETY: the number is taken by the table.
        unsafe {
            lua_createtable(self.state, 0, 1);
            lua_pushnumber(self.state, number);
            lua_setfield(self.state, -2, c"double".as_ptr());
        }
        Ok(())
    }

    unsafe fn verbatim(&mut self) -> Result<(), Malformed> {
        let len = self.length()?.ok_or(Malformed)?;
        let text = self.bytes(len)?;
        let [format @ .., b':'] = text.get(..4).ok_or(Malformed)? else { return Err(Malformed) };
        // SAFETY: the texts are taken by the inner table, and that by the outer one.
        unsafe {
            lua_createtable(self.state, 0, 1);
            lua_createtable(self.state, 0, 2);
            push_bytes(self.state, &text[4..]);
            lua_setfield(self.state, -2, c"string".as_ptr());
            push_bytes(self.state, format);
            lua_setfield(self.state, -2, c"format".as_ptr());
            lua_setfield(self.state, -2, c"verbatim_string".as_ptr());
        }
        Ok(())
    }

    /// Returns the initial size of a table for `len` elements, bounded by the remaining bytes.
    fn room(&self, len: usize) -> c_int {
        len.min(self.rest.len() / ELEMENT_LEN_MIN) as c_int
    }

    unsafe fn array(&mut self, depth: usize) -> Result<(), Malformed> {
        // SAFETY: each element is taken by the table.
        unsafe {
            let Some(len) = self.length()? else {
                lua_pushboolean(self.state, 0);
                return Ok(());
            };
            lua_createtable(self.state, self.room(len), 0);
            for place in 1..=len {
                self.push(depth)?;
                lua_rawseti_(self.state, -2, place as c_int);
            }
        }
        Ok(())
    }

    unsafe fn map(&mut self, depth: usize) -> Result<(), Malformed> {
        let len = self.length()?.ok_or(Malformed)?;
        // SAFETY: keys and values are taken by the inner table, and that by the outer one.
        unsafe {
            lua_createtable(self.state, 0, 1);
            lua_createtable(self.state, 0, self.room(len));
            for _ in 0..len {
                self.push(depth)?;
                self.push(depth)?;
                self.insert();
            }
            lua_setfield(self.state, -2, c"map".as_ptr());
        }
        Ok(())
    }

    unsafe fn set(&mut self, depth: usize) -> Result<(), Malformed> {
        let len = self.length()?.ok_or(Malformed)?;
        // SAFETY: as for a map.
        unsafe {
            lua_createtable(self.state, 0, 1);
            lua_createtable(self.state, 0, self.room(len));
            for _ in 0..len {
                self.push(depth)?;
                lua_pushboolean(self.state, 1);
                self.insert();
            }
            lua_setfield(self.state, -2, c"set".as_ptr());
        }
        Ok(())
    }

    /// Inserts key and value on top into the table below, unless the key cannot be one.
    unsafe fn insert(&mut self) {
        // SAFETY: both are on the stack; nil and what is not equal to itself is no key.
        unsafe {
            if lua_type(self.state, -2) == LUA_TNIL || lua_rawequal(self.state, -2, -2) == 0 {
                lua_pop(self.state, 2);
            } else {
                lua_rawset(self.state, -3);
            }
        }
    }

    /// Skips an attribute, which scripts do not see.
    unsafe fn attribute(&mut self, depth: usize) -> Result<(), Malformed> {
        let len = self.length()?.ok_or(Malformed)?;
        // SAFETY: the attribute's values are pushed and popped, and then the value itself is pushed.
        unsafe {
            for _ in 0..len.saturating_mul(2) {
                self.push(depth)?;
                lua_pop(self.state, 1);
            }
            self.push(depth)
        }
    }
}
