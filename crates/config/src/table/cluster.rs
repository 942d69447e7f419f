//! Clustering.

use super::super::directive::{Directive, accepted_unless_marked, row};
use super::super::kind::{BYTES, COUNT_OR_SIZE, Invalid, Kind, LONG, PORT};
use super::super::value::Value;

/// Names announced to other nodes are shorter than this many bytes.
const NODE_NAME_LEN: usize = 256;

const ENDPOINTS: Kind = Kind::Word(&["ip", "hostname", "unknown-endpoint"]);

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &accepted_unless_marked([
    row("cluster-enabled", Kind::Bool, "no",
        "Be a node of a cluster.")
        .before_start()
        .refused(&[],
            "this server cannot be a node of a cluster"),
    row("cluster-config-file", Kind::Text, "nodes.conf",
        "File in which a node keeps what it knows of the cluster.")
        .before_start(),
    row("cluster-node-timeout", LONG, "15000",
        "Milliseconds of silence after which a node counts as failed."),
    row("cluster-port", PORT, "0",
        "Port that nodes use among themselves. 0: `port` plus 10000.")
        .before_start(),
    row("cluster-announce-ip", Kind::Text, "",
        "Address of this node as others should see it."),
    row("cluster-announce-port", PORT, "0",
        "Port of this node as others should see it."),
    row("cluster-announce-tls-port", PORT, "0",
        "Encrypted port of this node as others should see it."),
    row("cluster-announce-bus-port", PORT, "0",
        "Port among nodes of this node as others should see it."),
    row("cluster-announce-hostname", Kind::Text, "",
        "Host name of this node as clients should see it.")
        .checked(host_name),
    row("cluster-announce-human-nodename", Kind::Text, "",
        "Name of this node in logs.")
        .checked(node_name),
    row("cluster-preferred-endpoint-type", ENDPOINTS, "ip",
        "Kind of endpoint for redirected clients: by address, by host name, or as before."),
    row("cluster-replica-validity-factor", COUNT_OR_SIZE, "10",
        "Maximum age of the data of a replica that may take over, in node timeouts. 0: any age.")
        .alias("cluster-slave-validity-factor"),
    row("cluster-replica-no-failover", Kind::Bool, "no",
        "Never take over from a failed primary without being told.")
        .alias("cluster-slave-no-failover"),
    row("cluster-migration-barrier", COUNT_OR_SIZE, "1",
        "Replicas that a primary keeps when it gives one away."),
    row("cluster-allow-replica-migration", Kind::Bool, "yes",
        "Move to a primary that has lost its replicas."),
    row("cluster-require-full-coverage", Kind::Bool, "yes",
        "Refuse requests while any part of the keys has no node."),
    row("cluster-allow-reads-when-down", Kind::Bool, "no",
        "Answer reads while the cluster is down."),
    row("cluster-allow-pubsubshard-when-down", Kind::Bool, "yes",
        "Deliver messages of sharded channels while the cluster is down."),
    row("cluster-link-sendbuf-limit", BYTES, "0",
        "Bytes that may wait for another node. 0: no limit."),
], "Only a node of a cluster would use it.");

fn host_name(value: &Value) -> Result<(), Invalid> {
    let Value::Text(name) = value else { return Ok(()) };
    if name.len() >= NODE_NAME_LEN {
        return Err(Invalid::text(format!(
            "Hostnames must be less than {NODE_NAME_LEN} characters"
        )));
    }
    match name.iter().all(|&byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte)) {
        true => Ok(()),
        false => {
            Err(Invalid::new("Hostnames may only contain alphanumeric characters, hyphens or dots"))
        }
    }
}

fn node_name(value: &Value) -> Result<(), Invalid> {
    let Value::Text(name) = value else { return Ok(()) };
    let plain = |&byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match name.len() < NODE_NAME_LEN && name.iter().all(plain) {
        true => Ok(()),
        false => Err(Invalid::new("Announced human node name contained invalid character")),
    }
}
