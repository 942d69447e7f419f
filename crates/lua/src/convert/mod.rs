//! Conversion of values between the protocol and Lua.
//!
//! | RESP | Lua | back |
//! |---|---|---|
//! | integer | number | integer, truncated |
//! | bulk string | string | bulk string |
//! | simple string | `{ok=…}` | simple string |
//! | error | `{err=…}` | error |
//! | array | table | array, up to the first nil |
//! | null | `false`; `nil` in RESP3 | null |
//! | boolean (3) | boolean | `true` is 1 and `false` null, after `redis.setresp(3)` booleans |
//! | double (3) | `{double=…}` | double |
//! | map, set (3) | `{map={…}}`, `{set={…=true}}` | map, set |
//! | big number (3) | `{big_number=…}` | big number |
//! | verbatim (3) | `{verbatim_string={string=…, format=…}}` | verbatim string |

mod from_resp;
mod to_resp;

pub(crate) use from_resp::push_reply;
pub(crate) use to_resp::{Unwritable, trim_line_end, write_reply};
