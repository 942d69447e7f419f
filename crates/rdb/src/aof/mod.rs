//! Redis' append-only files.
//!
//! Since Redis 7, a directory holds a base, files of commands that followed it, and a manifest that
//! says which of them count and in which order ([`Manifest`]). Each file, and the single file of
//! earlier versions, is read by [`Reader`]: an RDB file at its beginning if there is one, then
//! commands.
//!
//! Files are opened by the caller. To write a directory: write an RDB file with the remark
//! [`BASE_REMARK`] under the name of [`Manifest::fresh`]'s base, make an empty file for its
//! increment, sync both, and write the manifest last.

mod manifest;
mod reader;

pub use manifest::{Manifest, ManifestError, Member};
pub use reader::{Item, Reader};

/// Name and value of the remark in an RDB file that is the base of an append-only directory.
pub const BASE_REMARK: (&[u8], &[u8]) = (b"aof-base", b"1");

/// Appends a command as it stands in an append-only file.
pub fn encode_command<T: AsRef<[u8]>>(args: &[T], output: &mut Vec<u8>) {
    let mut number = itoa::Buffer::new();
    let mut header = |output: &mut Vec<u8>, kind: u8, len: usize| {
        output.push(kind);
        output.extend_from_slice(number.format(len).as_bytes());
        output.extend_from_slice(b"\r\n");
    };
    header(output, b'*', args.len());
    for arg in args {
        let arg = arg.as_ref();
        header(output, b'$', arg.len());
        output.extend_from_slice(arg);
        output.extend_from_slice(b"\r\n");
    }
}
