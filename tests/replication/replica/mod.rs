//! A server that follows a simulated primary: the protocol in bytes, split anywhere, and garbage.
//!
//! - `stream`: processing of the stream; `copies`: processing of full copies.
//! - `clients`: permitted commands of its own clients.
//! - `tls`: a link that is encrypted.
//! - `restarts`: its offset after a restart.

mod clients;
mod copies;
mod restarts;
mod stream;
mod tls;

use tierce_harness::{Connection, Server, wait_until};

#[track_caller]
fn wait_for_reply(client: &mut Connection, line: &str, expected: &str) {
    wait_until(&format!("{line} is {expected}"), || client.ask(line).to_string() == expected);
}

pub(super) fn info(client: &mut Connection, field: &str) -> String {
    let page = client.ask("INFO replication");
    let page = page.text();
    let line = page.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {page}")).to_owned()
}

pub(super) fn wait_for_link(client: &mut Connection, status: &str) {
    wait_until("the link", || info(client, "master_link_status") == status);
}

/// Waits until the log of the server has this line.
#[track_caller]
pub(crate) fn wait_for_log(server: &Server, text: &str) {
    wait_until(&format!("the log says: {text}"), || {
        (server.output() + &server.errors()).contains(text)
    });
}
