//! Body of the fuzz target for requests; see `tierce_wire::fuzzing`.
//!
//! It panics when a guarantee is violated. Not part of the crate's interface.

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use tierce_wire::resp::OwnedArgs;

use crate::request;

/// Checks that a body or a path becomes commands or is refused, and that an accepted command stays the same when it
/// is written as JSON or as a path and read again.
pub fn http_request(data: &[u8]) {
    let Some((&parameters, input)) = data.split_first() else { return };
    let cut = usize::from(parameters / 2).min(input.len());
    match parameters % 2 {
        0 => body(input),
        _ => path(&input[..cut], &input[cut..]),
    }
}

fn body(body: &[u8]) {
    let alone = request::command(body).ok();
    let as_pipeline = request::commands(&[b"[", body, b"]"].concat()).ok();
    if let Some(args) = &alone {
        assert_eq!(as_pipeline.map(|commands| words(&commands[0])), Some(words(args)));
        let texts: Option<Vec<_>> =
            args.as_args().iter().map(|arg| str::from_utf8(arg).ok()).collect();
        let json = serde_json::to_vec(&texts.expect("JSON is text")).expect("strings");
        assert_eq!(request::command(&json).ok().map(|again| words(&again)), Some(words(args)));
    }
    for args in request::commands(body).unwrap_or_default() {
        assert!(!args.as_args().at(0).is_empty(), "every command has a name");
    }
}

/// Parses `target` as HTTP does: the query follows the first question mark.
fn path(target: &[u8], body: &[u8]) {
    let Ok(target) = str::from_utf8(target) else { return };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let Ok(args) = request::of_path(path, query, body) else { return };
    let segments =
        args.as_args().iter().map(|arg| percent_encode(arg, NON_ALPHANUMERIC).to_string());
    let written = format!("/{}", segments.collect::<Vec<_>>().join("/"));
    let again = request::of_path(&written, "", b"").expect("it was a command");
    assert_eq!(words(&again), words(&args));
}

fn words(args: &OwnedArgs) -> Vec<Vec<u8>> {
    args.as_args().iter().map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
#[test]
fn fuzz_smoke() {
    tierce_harness::fuzz_smoke(
        http_request,
        b"[]\"\\,{}:0123456789.eE-truefalsn /?&=%+u\0\x7f\xff",
        &[
            br#"0["SET","k","v\u0000\n\"",1.50e-3,true]"#,
            br#"0[["GET","a"],["MSET","a",-1,"b",false]]"#,
            br#"0["GET",[[[[{"a":null}]]]]]"#,
            b"\x0f/get/a%20b%2Fc%FF",
            b"\x1f/set/k?EX=100&NXthe body",
            b"\x0f/set/k/?a+b=&=x&&_token",
        ],
    );
}
