//! DEBUG, and the permission to use it.

use crate::operations::support::TestServer;

const DENIED: &str = "-ERR DEBUG command not allowed. If the enable-debug-command option is set to \
                      \"local\", you can run it from a local connection, otherwise you need to set \
                      this option in the configuration file, and then restart the server.";

#[test]
fn debug_is_off_unless_configured() {
    let server = TestServer::start();
    server.client().check(&[
        ("DEBUG SLEEP 0", DENIED),
        ("DEBUG HELP", DENIED),
        ("DEBUG", "-ERR wrong number of arguments for 'debug' command"),
        (
            "CONFIG SET enable-debug-command yes",
            "-ERR CONFIG SET failed (possibly related to argument 'enable-debug-command') - can't \
             set immutable config",
        ),
    ]);
    for option in ["yes", "local"] {
        let server = TestServer::with(&format!("--enable-debug-command {option}"));
        server.client().check(&[("DEBUG SLEEP 0", "OK")]);
    }
}

#[test]
fn subcommands_that_test_suites_use() {
    let server =
        TestServer::with("--enable-debug-command yes --logfile {dir}/log.txt --loglevel notice");
    let mut client = server.client();
    let wrong = |name: &str| {
        format!(
            "-ERR unknown subcommand or wrong number of arguments for '{name}'. Try DEBUG HELP."
        )
    };
    client.check(&[
        ("DEBUG nosuch", &wrong("nosuch")),
        ("DEBUG SLEEP", &wrong("SLEEP")),
        ("DEBUG SLEEP x", "-ERR value is not a valid float"),
        ("DEBUG SLEEP -1", "-ERR value is out of range"),
        ("DEBUG SET-ACTIVE-EXPIRE 0", "OK"),
        ("DEBUG SET-ACTIVE-EXPIRE 1", "OK"),
        ("DEBUG OBJECT k", "-ERR no such key"),
        ("DEBUG LISTPACK k", "-ERR no such key"),
        ("SET k 12", "OK"),
        ("DEBUG LISTPACK k", "-ERR Not a listpack encoded object."),
        ("DEBUG JMAP", "OK"),
        ("DEBUG CHANGE-REPL-ID", "OK"),
        ("DEBUG QUICKLIST-PACKED-THRESHOLD 1k", "OK"),
        ("DEBUG STRINGMATCH-LEN 5 A*", ":1"),
        ("DEBUG STRINGMATCH-LEN 5 b*", ":0"),
        ("DEBUG ERROR \"BUSY come back\"", "-BUSY come back"),
        ("DEBUG POPULATE 3 p 5", "OK"),
        ("DEBUG POPULATE 2", "OK"),
        ("DBSIZE", ":6"),
        ("GET key:1", "value:1"),
        ("GET p:2", "value"),
        (
            "DEBUG POPULATE 9223372036854775807",
            "-ERR so many keys do not fit into the memory of this machine",
        ),
        ("DEBUG POPULATE 100000000 p 500mb", "-ERR value is out of range, must be positive"),
        (
            "DEBUG POPULATE 100000000 p 1000000",
            "-ERR so many keys do not fit into the memory of this machine",
        ),
        ("DEBUG POPULATE x", "-ERR value is out of range, must be positive"),
        ("DEBUG LOG hello", "OK"),
    ]);
    let object = client.call("DEBUG OBJECT k");
    assert!(object.starts_with("Value at:0x0 refcount:1 encoding:int "), "{object}");
    client.check(&[("DEBUG RELOAD", "OK"), ("DBSIZE", ":6")]);
    let load = client.call("DEBUG LOADAOF");
    assert!(load.starts_with("-ERR the log is read when the server starts"), "{load}");
    let log = std::fs::read_to_string(server.dir.join("log.txt")).unwrap();
    assert!(log.contains(" # DEBUG LOG: hello\n"), "{log}");
}

#[test]
fn every_type_of_both_protocols() {
    let server = TestServer::with("--enable-debug-command yes");
    let mut client = server.client();
    client.check(&[
        ("DEBUG PROTOCOL attrib", "Some real reply following the attribute"),
        ("DEBUG PROTOCOL push", "-ERR RESP2 is not supported by this command"),
        ("DEBUG PROTOCOL map", "[:0, :0, :1, :1, :2, :0]"),
        ("DEBUG PROTOCOL true", ":1"),
    ]);
    client.call("HELLO 3");
    client.check(&[
        ("DEBUG PROTOCOL string", "Hello World"),
        ("DEBUG PROTOCOL integer", ":12345"),
        ("DEBUG PROTOCOL double", "3.141"),
        ("DEBUG PROTOCOL null", "(nil)"),
        ("DEBUG PROTOCOL array", "[:0, :1, :2]"),
        ("DEBUG PROTOCOL set", "~[:0, :1, :2]"),
        ("DEBUG PROTOCOL map", "{:0=false, :1=true, :2=false}"),
        ("DEBUG PROTOCOL attrib", "Some real reply following the attribute"),
        ("DEBUG PROTOCOL push", ">[server-cpu-usage, :42]"),
        ("DEBUG PROTOCOL verbatim", "This is a verbatim\nstring"),
        ("DEBUG PROTOCOL true", "true"),
        ("DEBUG PROTOCOL false", "false"),
        ("DEBUG PROTOCOL bignum", "1234567999999999999999999999999999999"),
    ]);
    let unknown = client.call("DEBUG PROTOCOL foo");
    assert!(unknown.starts_with("-ERR Wrong protocol type name."), "{unknown}");
}
