//! Decodes values, for files and DUMP payloads alike.
//!
//! Each function passes the parts of the value to `visit`. An error of `visit` ends the reading.

mod module;
mod pack;
mod plain;
mod stream;

use std::io::Read;

pub(crate) use module::skip_module_aux;

use crate::error::{Error, Result};
use crate::format::Encoding;
use crate::input::Input;
use crate::packed::Packing;
use crate::value::ValuePart;

/// Reads a value with this encoding.
pub(crate) fn value<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    encoding: Encoding,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    use Encoding as Form;
    match encoding {
        Form::String => plain::string(input, visit),
        Form::List => plain::list(input, visit),
        Form::ListZiplist => pack::list(input, visit),
        Form::ListQuicklist => pack::quicklist(input, visit),
        Form::ListQuicklist2 => pack::quicklist2(input, visit),
        Form::Set => plain::set(input, visit),
        Form::SetIntset => pack::set(input, Packing::Intset, visit),
        Form::SetListpack => pack::set(input, Packing::Listpack, visit),
        Form::SortedSet => plain::sorted_set(input, visit),
        Form::SortedSetText => plain::sorted_set_text(input, visit),
        Form::SortedSetZiplist => pack::sorted_set(input, Packing::Ziplist, visit),
        Form::SortedSetListpack => pack::sorted_set(input, Packing::Listpack, visit),
        Form::Hash => plain::hash(input, visit),
        Form::HashZipmap => pack::hash(input, Packing::Zipmap, visit),
        Form::HashZiplist => pack::hash(input, Packing::Ziplist, visit),
        Form::HashListpack => pack::hash(input, Packing::Listpack, visit),
        Form::HashExpiring => plain::hash_expiring(input, visit),
        Form::HashExpiringUnreleased => plain::hash_expiring_unreleased(input, visit),
        Form::HashListpackExpiring => pack::hash_expiring(input, visit),
        Form::HashListpackExpiringUnreleased => pack::hash_expiring_unreleased(input, visit),
        Form::Stream | Form::Stream2 | Form::Stream3 => stream::stream(input, encoding, visit),
        Form::Module => Err(module::skip(input)?.into()),
        Form::ModuleUnreleased => {
            let what = "a module's value of a release candidate of Redis 4.0";
            Err(Error::Unreleased { offset: input.offset(), what }.into())
        }
    }
}

/// Reads a time, which is a signed number in the format. Times before 1970 become 0.
pub(crate) fn time_ms<R: Read>(input: &mut Input<R>, expected: &'static str) -> Result<u64> {
    let ms = i64::from_le_bytes(input.array(expected)?);
    Ok(u64::try_from(ms).unwrap_or(0))
}
