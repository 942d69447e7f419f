//! `cmsgpack`: converts values of Lua to MessagePack and back.

mod pack;
mod unpack;

use crate::native::{Stack, add};

/// Pushes the library.
pub fn push(stack: Stack<'_>) {
    stack.push_table(0, 8);
    add(stack, c"pack", pack::pack);
    add(stack, c"unpack", unpack::unpack);
    add(stack, c"unpack_one", unpack::unpack_one);
    add(stack, c"unpack_limit", unpack::unpack_limit);
    for (name, value) in [
        (c"_NAME", "cmsgpack"),
        (c"_VERSION", "lua-cmsgpack 0.4.0"),
        (c"_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo"),
        (c"_DESCRIPTION", "MessagePack C implementation for Lua"),
    ] {
        stack.push_bytes(value.as_bytes());
        stack.set_field(-2, name);
    }
}
