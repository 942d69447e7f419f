//! Skips values of modules, which only the module can decode.
//!
//! A module's data begin with a 64-bit number: 54 bits for the name of the type (nine characters of 6 bits), and 10
//! bits for a version. Then come numbers and strings, each behind a type code, up to the code 0.

use std::io::Read;

use crate::error::{Error, Result};
use crate::input::Input;

const END: u64 = 0;
const SIGNED: u64 = 1;
const UNSIGNED: u64 = 2;
const FLOAT: u64 = 3;
const DOUBLE: u64 = 4;
const STRING: u64 = 5;

/// Characters of a name.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const VERSION_BITS: u32 = 10;

fn type_name(id: u64) -> String {
    let letter = |at: u32| LETTERS[(id >> (VERSION_BITS + 6 * at)) as usize & 0x3f];
    (0..9).rev().map(|at| char::from(letter(at))).collect()
}

/// Skips a value and returns the error that reports it.
pub(super) fn skip<R: Read>(input: &mut Input<R>) -> Result<Error> {
    let name = type_name(input.length("the type of a module")?);
    skip_data(input)?;
    Ok(Error::Module { offset: input.offset(), name })
}

/// Skips data that belong to no key, and returns the name of their type.
pub(crate) fn skip_module_aux<R: Read>(input: &mut Input<R>) -> Result<String> {
    let name = type_name(input.length("the type of a module")?);
    if input.length("a number of a module")? != UNSIGNED {
        return Err(input.corrupt("a number of a module"));
    }
    input.length("when a module wants its data")?;
    skip_data(input)?;
    Ok(name)
}

fn skip_data<R: Read>(input: &mut Input<R>) -> Result<()> {
    loop {
        match input.length("data of a module")? {
            END => return Ok(()),
            SIGNED | UNSIGNED => input.length("a number of a module").map(drop)?,
            FLOAT => input.skip(4, "a number of a module")?,
            DOUBLE => input.skip(8, "a number of a module")?,
            STRING => input.skip_string("a string of a module")?,
            _ => return Err(input.corrupt("data of a module")),
        }
    }
}
