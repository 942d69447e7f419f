//! Runs all phases of all stores as children and prints the table.

use crate::arguments::Arguments;
use crate::phase::{Outcome, Phase};
use crate::rocksdb;
use crate::store::Result;
use crate::stores;
use std::path::Path;
use std::process::{Command, Stdio};

/// What one store took in all rounds: for each phase, an outcome a round.
struct Row {
    name: String,
    phases: [Vec<Outcome>; 3],
}

pub fn compare(arguments: &Arguments) -> Result<()> {
    let mut rows = Vec::new();
    for name in &arguments.stores {
        if name == rocksdb::NAME && !rocksdb::is_installed() {
            println!("{name}: left out, there is no db_bench (Debian: rocksdb-tools)");
            continue;
        }
        if name != rocksdb::NAME {
            stores::named(name)?;
        }
        rows.push(Row { name: name.clone(), phases: Default::default() });
    }
    for round in 1..=arguments.rounds {
        for row in &mut rows {
            eprintln!("round {round} of {}: {}", arguments.rounds, row.name);
            run_round(arguments, row)?;
        }
    }
    print_settings(arguments, &rows);
    print_table(&rows);
    Ok(())
}

fn run_round(arguments: &Arguments, row: &mut Row) -> Result<()> {
    let dir = arguments.dir.join(&row.name);
    remove(&dir)?;
    std::fs::create_dir_all(&arguments.dir)?;
    for (at, phase) in Phase::ALL.into_iter().enumerate() {
        if arguments.is_cold && phase != Phase::Fill {
            drop_page_cache()?;
        }
        row.phases[at].push(run_child(arguments, &row.name, phase)?);
    }
    remove(&dir)
}

fn remove(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn run_child(arguments: &Arguments, name: &str, phase: Phase) -> Result<Outcome> {
    let shape = &arguments.shape;
    let output = Command::new(std::env::current_exe()?)
        .args(["--shape", shape.name, "--dir"])
        .arg(&arguments.dir)
        .args(["--records", &shape.records.to_string(), "--threads", &shape.threads.to_string()])
        .args(["--phase", name, phase.name()])
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let outcome = Outcome::from_output(&text).filter(|_| output.status.success());
    outcome.ok_or_else(|| format!("{name} failed to {}: {}", phase.name(), output.status).into())
}

fn drop_page_cache() -> Result<()> {
    // Only clean pages are dropped.
    Command::new("sync").status()?;
    std::fs::write("/proc/sys/vm/drop_caches", "3").map_err(|e| format!("--cold: {e}").into())
}

fn print_settings(arguments: &Arguments, rows: &[Row]) {
    let shape = &arguments.shape;
    println!(
        "{}: {} records, keys of {} bytes, values of {}, {} threads, {}, page cache {}, {} rounds",
        shape.name,
        shape.records,
        shape.key_len,
        shape.value_len,
        shape.threads,
        if shape.is_compressed { "compressed" } else { "uncompressed" },
        if arguments.is_cold { "cold" } else { "warm" },
        arguments.rounds,
    );
    for row in rows {
        let contestant = stores::named(&row.name).map(|contestant| contestant.settings);
        println!("  {}: {}", row.name, contestant.unwrap_or(rocksdb::SETTINGS));
    }
    println!();
}

fn print_table(rows: &[Row]) {
    println!(
        "| store | fill k/s | get k/s | scan k/s | fill CPU us | get CPU us | scan CPU us \
         | open s | close s | disk MB | peak RSS MB |"
    );
    println!("|---|{}", "--:|".repeat(10));
    for row in rows {
        let all = &row.phases;
        let speed = |at: usize| median(&all[at], |o| o.ops / o.seconds / 1e3);
        let cpu = |at: usize| median(&all[at], |o| o.cpu_seconds / o.ops * 1e6);
        let rss = all.iter().map(|rounds| median(rounds, |o| o.rss_max_bytes)).fold(0.0, f64::max);
        print!("| {} | {:.1} | {:.1} | {:.1} ", row.name, speed(0), speed(1), speed(2));
        print!("| {:.2} | {:.2} | {:.2} ", cpu(0), cpu(1), cpu(2));
        println!(
            "| {:.2} | {:.2} | {:.0} | {:.0} |",
            median(&all[1], |o| o.open_seconds),
            median(&all[0], |o| o.close_seconds),
            median(&all[2], |o| o.disk_bytes) / 1e6,
            rss / 1e6,
        );
    }
}

fn median(rounds: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> f64 {
    let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle() {
        let rounds = [3.0, 1.0, 2.0].map(|ops| Outcome { ops, ..Outcome::default() });
        assert_eq!(median(&rounds, |o| o.ops), 2.0);
    }
}
