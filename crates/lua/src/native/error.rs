//! Errors of native functions, in the words of Lua's own library.

use std::ffi::c_int;
use std::fmt;

use mlua_sys as ffi;

use super::{Buffer, Stack, Type};

/// Slots that a message needs while it is made: a position, a buffer and its memory, and the text.
const MESSAGE_SLOTS: c_int = 4;

/// What a native function, or a part of one, ends with.
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
    /// Hands the error to Lua.
    ///
    /// # Safety
    ///
    /// `state` runs a native function whose frames own nothing, and its last value is the message.
    pub(super) unsafe fn raise(self, state: *mut ffi::lua_State) -> ! {
        // SAFETY: as the caller says. The message is a string, so it ends with a zero as strings of Lua do.
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
    /// An error with the position of the function that called this one, if that is written in Lua.
    pub fn error(self, message: fmt::Arguments<'_>) -> Error {
        self.make_room();
        // SAFETY: there is room.
        unsafe { ffi::luaL_where(self.state, 1) };
        self.push_message(message);
        // SAFETY: the last two values are strings.
        unsafe { ffi::lua_concat(self.state, 2) };
        Error(Kind::Value)
    }

    /// An error without a position.
    pub fn plain_error(self, message: fmt::Arguments<'_>) -> Error {
        self.make_room();
        self.push_message(message);
        Error(Kind::Value)
    }

    /// An error about argument `index`, which names the function as its caller did.
    pub fn argument_error(self, index: c_int, message: fmt::Arguments<'_>) -> Error {
        self.make_room();
        self.push_message(message);
        Error(Kind::Argument(index))
    }

    /// Like [`Stack::argument_error`], for a message that may not be text.
    pub fn argument_error_bytes(self, index: c_int, message: &[u8]) -> Error {
        self.push_bytes(message);
        Error(Kind::Argument(index))
    }

    fn type_error(self, index: c_int, expected: &str) -> Error {
        let found = self.kind(index).name();
        self.argument_error(index, format_args!("{expected} expected, got {found}"))
    }

    /// Makes room for a message. What a function leaves on a full stack is lost with its error anyway.
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

    /// The string that argument `index` has to be. A number becomes one.
    pub fn check_bytes(self, index: c_int) -> Outcome<&'call [u8]> {
        self.bytes(index).ok_or_else(|| self.type_error(index, "string"))
    }

    /// The number that argument `index` has to be. A string that reads as a number is one.
    pub fn check_number(self, index: c_int) -> Outcome<f64> {
        let number = self.number(index);
        if number == 0.0 && !self.is_number(index) {
            return Err(self.type_error(index, "number"));
        }
        Ok(number)
    }

    /// The number that argument `index` has to be, without its fraction.
    pub fn check_integer(self, index: c_int) -> Outcome<i64> {
        self.check_number(index).map(truncate)
    }

    /// The integer of argument `index`, or `default` without one.
    pub fn integer_or(self, index: c_int, default: i64) -> Outcome<i64> {
        match self.kind(index) {
            Type::None | Type::Nil => Ok(default),
            _ => self.check_integer(index),
        }
    }
}

/// A double as an integer in the way of x86-64, which scripts see: what does not fit is the smallest integer.
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
