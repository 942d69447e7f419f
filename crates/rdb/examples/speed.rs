//! Measures writing and reading of strings, and the checksum. An argument is the number of strings.
//!
//! ```sh
//! cargo run --release -p tierce-rdb --example speed -- 5000000
//! ```

use std::hint::black_box;
use std::io::{self, Write};
use std::time::Instant;

use tierce_rdb::{Attributes, Event, Reader, ValuePart, Writer, WriterOptions, crc64};

const VALUE_LEN: usize = 100;

fn main() -> tierce_rdb::Result<()> {
    let count = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(1_000_000_u64);
    checksum();
    for (what, options) in [
        ("all", WriterOptions::default()),
        ("no compression", WriterOptions { compression: false, ..WriterOptions::default() }),
        (
            "no compression, no checksum",
            WriterOptions { compression: false, checksum: false, ..WriterOptions::default() },
        ),
    ] {
        let file = write(count, what, options)?;
        read(&file, count, what)?;
    }
    Ok(())
}

fn checksum() {
    let bytes = vec![7_u8; 64 << 20];
    let begin = Instant::now();
    black_box(crc64(0, black_box(&bytes)));
    let seconds = begin.elapsed().as_secs_f64();
    println!("checksum: {:.2} GB/s", bytes.len() as f64 / seconds / 1e9);
}

fn write(count: u64, what: &str, options: WriterOptions) -> tierce_rdb::Result<Vec<u8>> {
    let mut value = [0_u8; VALUE_LEN];
    let mut state = 1_u64;
    let file = Vec::with_capacity((count as usize) * (VALUE_LEN + 20) + 100);
    let begin = Instant::now();
    let mut writer = Writer::new(file, options)?;
    writer.select_db(0)?;
    let mut key = Vec::new();
    for n in 0..count {
        // Random bytes, which compression cannot shrink.
        for byte in value.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            byte.copy_from_slice(&state.to_le_bytes()[..byte.len()]);
        }
        key.clear();
        write!(key, "key:{n:012}").expect("a vector takes everything");
        writer.entry(&key, &Attributes::default()).string(&value)?;
    }
    let file = writer.finish()?;
    report("written", what, count, begin, file.len());
    Ok(file)
}

fn read(file: &[u8], count: u64, what: &str) -> tierce_rdb::Result<()> {
    let begin = Instant::now();
    let mut reader = Reader::new(file)?;
    let (mut entries, mut bytes) = (0, 0);
    while let Some(event) = reader.next_event()? {
        if let Event::Entry(entry) = event {
            entries += 1;
            bytes += entry.key.len();
            reader.visit_value(|part| {
                if let ValuePart::String(string) = part {
                    bytes += string.len();
                }
                Ok::<(), tierce_rdb::Error>(())
            })?;
        }
    }
    assert_eq!((entries, bytes as u64), (count, count * (VALUE_LEN as u64 + 16)));
    report("read", what, count, begin, file.len());
    Ok(())
}

fn report(verb: &str, what: &str, count: u64, begin: Instant, len: usize) {
    let seconds = begin.elapsed().as_secs_f64();
    let each = seconds * 1e9 / count as f64;
    println!("{verb} ({what}): {each:.0} ns an entry, {:.2} GB/s", len as f64 / seconds / 1e9);
    io::stdout().flush().ok();
}
