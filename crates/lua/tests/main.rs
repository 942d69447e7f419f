//! The machine and the libraries of Lua.
//!
//! One program for all files: linking one for each would take longer than running them.

mod arguments;
mod extreme_arguments;
mod first_lines;
mod functions;
mod fuzz_smoke;
mod libraries_of_redis;
mod machine;
mod patterns;
mod replies;
mod stops;

mod harness;
