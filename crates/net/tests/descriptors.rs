//! A server without file descriptors rejects connections, and neither spins nor stops.

use std::fs::File;
use std::io::Read;
use std::net::TcpStream;
use std::process::Command;

use crate::support::{Server, Stream, eventually};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Variable that marks the process that runs the test alone.
const ALONE: &str = "TIERCE_TEST_ALONE";

/// The limit applies to the whole process, so the test runs in a process of its own.
#[test]
fn connections_beyond_the_descriptors_are_closed_and_the_others_served() {
    if std::env::var_os(ALONE).is_some() {
        return run_out_of_descriptors();
    }
    let name = "descriptors::connections_beyond_the_descriptors_are_closed_and_the_others_served";
    let mut alone = Command::new(std::env::current_exe().unwrap());
    let status = alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1").status().unwrap();
    assert!(status.success());
}

fn run_out_of_descriptors() {
    let server = Server::one_worker();
    let (mut served, _) = server.connect_known();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), ..limit }).unwrap();
    let mut filling = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        filling.push(file);
    }
    // Leaves one for a client's end, none for the server's.
    filling.pop();
    for _ in 0..20 {
        let mut client = TcpStream::connect(server.tcp_address()).unwrap();
        client.set_patience();
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0, "closed without a byte");
        served.check("echo alive", "alive");
    }
    eventually(|| server.handle().metrics().dropped == 20);
    drop(filling);
    setrlimit(Resource::Nofile, limit).unwrap();
    let (mut late, _) = server.connect_known();
    late.check("echo late", "late");
}
