//! The rows of redis-benchmark against redis-server.

use std::process::Command;

use super::cli::PedroKvArgs;
use super::{Cell, Row};
use crate::compare::Server;
use crate::error::Error;
use crate::measure::per_request_us;
use crate::target::Address;

/// A pipeline that is usual where throughput matters.
const DEEP: u32 = 16;

const ROWS: [(&str, &str, u32); 4] = [
    ("Redis write", "set", 1),
    ("Redis read", "get", 1),
    ("Redis write, pipeline 16", "set", DEEP),
    ("Redis read, pipeline 16", "get", DEEP),
];

pub(super) fn rows(args: &PedroKvArgs, server: &Server) -> Result<Vec<Row>, Error> {
    // So that there is something to read.
    load(args, server, "set", args.records, 50, 100)?;
    let row = |&(name, test, pipeline)| {
        let operations = args.sync_operations.unwrap_or(args.records);
        let cell = |&clients| cell(args, server, test, operations, clients, pipeline);
        Ok(Row { name, cells: args.clients.iter().map(cell).collect::<Result<_, _>>()? })
    };
    ROWS.iter().map(row).collect()
}

fn cell(
    args: &PedroKvArgs,
    server: &Server,
    test: &str,
    operations: u64,
    clients: u32,
    pipeline: u32,
) -> Result<Cell, Error> {
    let cpu = || server.process.as_ref().map(|process| process.cpu()).transpose();
    let before = cpu()?;
    let operations_per_second = load(args, server, test, operations, clients, pipeline)?;
    let cpu = before.zip(cpu()?).map(|(before, after)| after.since(&before).time);
    Ok(Cell {
        clients: clients as usize,
        operations,
        seconds: operations as f64 / operations_per_second,
        operations_per_second,
        server_cpu_us: cpu.map_or(f64::NAN, |time| per_request_us(time, operations)),
        client_cpu_us: None,
    })
}

/// Runs redis-benchmark, and returns the operations a second that it reports.
fn load(
    args: &PedroKvArgs,
    server: &Server,
    test: &str,
    operations: u64,
    clients: u32,
    pipeline: u32,
) -> Result<f64, Error> {
    let Address::Tcp { host, port } = &server.target.address else {
        return Err(Error::Usage("redis-benchmark needs a port".into()));
    };
    let mut command = Command::new(&args.redis_benchmark);
    command.args(["--csv", "-h", host, "-t", test]);
    for (option, value) in [
        ("-p", u64::from(*port)),
        ("-n", operations),
        ("-c", clients.into()),
        ("-P", pipeline.into()),
        ("-r", args.records),
        ("-d", args.data_size.into()),
    ] {
        command.args([option, &value.to_string()]);
    }
    let output = command.output().map_err(Error::io("starting redis-benchmark"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    operations_per_second(&text).ok_or_else(|| Error::Server {
        command: args.redis_benchmark.display().to_string(),
        reason: format!("its output is not understood: {text}"),
    })
}

/// The second field of the line behind the heading.
fn operations_per_second(csv: &str) -> Option<f64> {
    let line = csv.lines().find(|line| !line.starts_with("\"test\"") && line.contains(','))?;
    line.split(',').nth(1)?.trim_matches('"').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::operations_per_second;

    #[test]
    fn the_output_of_redis_benchmark_is_read() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"45662.10\",\"0.571\"\n";
        assert_eq!(operations_per_second(text), Some(45662.10));
        assert_eq!(operations_per_second("\"GET\",\"1.5\"\n"), Some(1.5));
        assert_eq!(operations_per_second("Could not connect\n"), None);
    }
}
