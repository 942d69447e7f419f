//! The `tierce` program: the server, and its tools as subcommands.

fn main() {}
