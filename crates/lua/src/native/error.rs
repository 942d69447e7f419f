//! Errors of native functions, in the words of Lua's own library.

use std::ffi::c_int;
use std::fmt;

use mlua_sys as ffi;

use super::{Buffer, Stack, Type};

/// Stack slots needed to build a message: a position, a buffer and its memory, and the text.
const MESSAGE_SLOTS: c_int = 4;

/// Result of a native function, or of a part of one.
pub type Outcome<T> = Result<T, Error>;

/// An error whose message is the last value of the stack, on its way to Lua.
#[derive(Debug)]
#[must_use]
pub struct Error(Kind);

#[derive(Debug)]
enum Kind {
    /// The value as it is.
    Value,
    /// A message about this argument.
    Argument(c_int),
}

impl Error {
    /// Raises the error in Lua.
    ///
    /// # Safety
    ///
    /// `state` runs a native function whose frames own nothing, and its last value is the message.
    pub(super) unsafe fn raise(self, state: *mut ffi::lua_State) -> ! {
        // SAFETY: as the caller guarantees. The message is a string, so it ends with a zero as strings of Lua do.
        unsafe {
            if let Kind::Argument(index) = self.0 {
                let message = ffi::lua_tolstring(state, -1, std::ptr::null_mut());
                ffi::luaL_argerror(state, index, message);
            }
            ffi::lua_error(state)
        }
    }
}

impl<'call> Stack<'call> {
    /// Returns an error with the position of the function that called this one, if that is written in Lua.
    pub fn error(self, message: fmt::Arguments<'_>) -> Error {
        self.make_room();
        // SAFETY: there is room.
        unsafe { ffi::luaL_where(self.state, 1) };
        self.push_message(message);
        // SAFETY: the last two values are strings.
        unsafe { ffi::lua_concat(self.state, 2) };
        Error(Kind::Value)
    }

    /// Returns an error without a position.
    pub fn plain_error(self, message: fmt::Arguments<'_>) -> Error {
        self.make_room();
        self.push_message(message);
        Error(Kind::Value)
    }

    /// Returns an error about argument `index`, with the function's name as its caller gave it.
    pub fn argument_error(self, index: c_int, message: fmt::Arguments<'_>) -> Error {
        self.make_room();
        self.push_message(message);
        Error(Kind::Argument(index))
    }

    /// As [`Stack::argument_error`], for a message that may not be text.
    pub fn argument_error_bytes(self, index: c_int, message: &[u8]) -> Error {
        self.push_bytes(message);
        Error(Kind::Argument(index))
    }

    fn type_error(self, index: c_int, expected: &str) -> Error {
        let found = self.kind(index).name();
        self.argument_error(index, format_args!("{expected} expected, got {found}"))
    }

    /// Makes room for a message. The values that a function has on a full stack are lost with its error anyway.
    fn make_room(self) {
        if !self.reserve(MESSAGE_SLOTS) {
            self.pop(MESSAGE_SLOTS);
        }
    }

    fn push_message(self, message: fmt::Arguments<'_>) {
        let mut text = Buffer::new(self);
        // A buffer never refuses.
        let _ = fmt::write(&mut text, message);
        text.push();
        // The slot of the buffer is below the text.
        self.replace(-2);
    }

    /// Returns argument `index`, which has to be a string. A number is converted.
    pub fn check_bytes(self, index: c_int) -> Outcome<&'call [u8]> {
        self.bytes(index).ok_or_else(|| self.type_error(index, "string"))
    }

    /// Returns argument `index`, which has to be a number. A numeric string is converted.
    pub fn check_number(self, index: c_int) -> Outcome<f64> {
        let number = self.number(index);
        if number == 0.0 && !self.is_number(index) {
            return Err(self.type_error(index, "number"));
        }
        Ok(number)
    }

    /// Returns argument `index`, which has to be a number, without its fraction.
    pub fn check_integer(self, index: c_int) -> Outcome<i64> {
        self.check_number(index).map(truncate)
    }

    /// Returns argument `index` as an integer, or `default` if it is absent.
    pub fn integer_or(self, index: c_int, default: i64) -> Outcome<i64> {
        match self.kind(index) {
            Type::None | Type::Nil => Ok(default),
            _ => self.check_integer(index),
        }
    }
}

/// Converts a double to an integer as x86-64 does, which scripts can see: one that does not fit becomes the smallest
/// integer.
pub fn truncate(number: f64) -> i64 {
    // -2^63 and 2^63 are exact, and the comparison is false for NaN.
    if number >= i64::MIN as f64 && number < -(i64::MIN as f64) { number as i64 } else { i64::MIN }
}

#[cfg(test)]
mod tests {
    use super::truncate;

    #[test]
    fn what_does_not_fit_is_the_smallest_integer() {
        assert_eq!(truncate(-1.9), -1);
        assert_eq!(truncate(9_007_199_254_740_993.0), 9_007_199_254_740_992);
        for number in [f64::NAN, f64::INFINITY, -f64::INFINITY, 9.3e18, -9.3e18] {
            assert_eq!(truncate(number), i64::MIN, "{number}");
        }
    }
}
