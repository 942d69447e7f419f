//! The first line of scripts.

use tierce_lua::{Flags, Script};

#[track_caller]
fn check(source: &str, expected: Result<Flags, &str>) {
    let script = Script::parse(source.as_bytes());
    assert_eq!(script.as_ref().map(Script::flags).map_err(|text| &**text), expected, "{source:?}");
}

#[test]
fn flags() {
    check("return 1", Ok(Flags::default()));
    check("#!lua\nreturn 1", Ok(Flags::default()));
    check("#!lua\r\nreturn 1", Ok(Flags::default()));
    check("#!lua flags=\nreturn 1", Ok(Flags::default()));
    check("#!lua flags=no-writes\nreturn 1", Ok(Flags::NO_WRITES));
    check("#!lua flags=\"no-writes\"\nreturn 1", Ok(Flags::NO_WRITES));
    check(
        "#!lua flags=no-writes flags=allow-oom\nreturn 1",
        Ok(Flags::NO_WRITES.with(Flags::ALLOW_OOM)),
    );
    check("#!lua flags=atomic,allow-stale\nreturn 1", Ok(Flags::ATOMIC.with(Flags::ALLOW_STALE)));
}

#[test]
fn what_is_refused() {
    check("#!lua", Err("ERR Invalid script shebang"));
    check("#!lua \"\n", Err("ERR Invalid engine in script shebang"));
    check("#!\n", Err("ERR Unexpected engine in script shebang: #!"));
    check("#! lua\n", Err("ERR Unexpected engine in script shebang: #!"));
    check("#!LUA\n", Err("ERR Unexpected engine in script shebang: #!LUA"));
    check("#!lua name=x\n", Err("ERR Unknown lua shebang option: name=x"));
    check("#!lua flags=bad\n", Err("ERR Unexpected flag in script shebang: bad"));
    check("#!lua flags=no-writes,\n", Err("ERR Unexpected flag in script shebang: "));
}
