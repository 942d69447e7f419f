//! Writes an RDB file anew, so that another program can say whether it is the same.
//!
//! ```sh
//! cargo run --release -p tierce-rdb --example rdb-make -- FROM.rdb TO.rdb [--plain] [--version 11]
//! cargo run --release -p tierce-rdb --example rdb-make -- FROM.rdb TO_DIRECTORY --aof
//! ```
//!
//! With `--plain`, collections are handed over element by element, otherwise as whole values. With
//! `--aof`, the result is an append-only directory.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tierce_rdb::aof::{self, Manifest};
use tierce_rdb::{Event, Reader, Result as RdbResult, Value, ValueWriter, Writer, WriterOptions};

/// Redis' name for the files of an append-only directory, unless told otherwise.
const PREFIX: &str = "appendonly.aof";

fn main() -> Result<(), Box<dyn Error>> {
    let mut options = WriterOptions::default();
    let (mut paths, mut plain, mut directory) = (Vec::new(), false, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--plain" => plain = true,
            "--aof" => directory = true,
            "--version" => options.version = args.next().ok_or("which version?")?.parse()?,
            path => paths.push(PathBuf::from(path)),
        }
    }
    let [from, to] = paths.as_slice() else { return Err("two paths, please".into()) };
    if !directory {
        return copy(from, to, options, plain, &[]);
    }
    fs::create_dir_all(to)?;
    let manifest = Manifest::fresh(PREFIX);
    let base = manifest.base.as_ref().ok_or("a fresh manifest has a base")?;
    copy(from, &to.join(&base.name), options, plain, &[aof::BASE_REMARK])?;
    for increment in &manifest.increments {
        File::create(to.join(&increment.name))?.sync_all()?;
    }
    fs::write(to.join(Manifest::file_name(PREFIX)), manifest.to_text())?;
    Ok(())
}

fn copy(
    from: &Path,
    to: &Path,
    options: WriterOptions,
    plain: bool,
    remarks: &[(&[u8], &[u8])],
) -> Result<(), Box<dyn Error>> {
    let mut reader = Reader::new(File::open(from)?)?;
    let mut writer = Writer::new(File::create(to)?, options)?;
    for (name, value) in remarks {
        writer.aux(name, value)?;
    }
    while let Some(event) = reader.next_event()? {
        match event {
            Event::Entry(entry) => {
                let value = reader.value()?;
                let place = writer.entry(&entry.key, &entry.attributes);
                if plain { write_plain(place, &value)? } else { place.value(&value)? }
            }
            Event::SelectDb(db) => writer.select_db(db)?,
            Event::ResizeDb { keys, expiring } => writer.resize_db(keys, expiring)?,
            Event::Function(library) => writer.function(&library)?,
            Event::Aux { name, value } => writer.aux(&name, &value)?,
            _ => {}
        }
    }
    writer.finish()?.sync_all()?;
    Ok(())
}

fn write_plain(place: ValueWriter<'_, File>, value: &Value) -> RdbResult<()> {
    match value {
        Value::String(string) => place.string(string),
        Value::List(elements) => place.list(elements.len() as u64, elements),
        Value::Set(members) => place.set(members.len() as u64, members),
        Value::SortedSet(members) => {
            let pairs = members.iter().rev().map(|(member, score)| (member, *score));
            place.sorted_set(members.len() as u64, pairs)
        }
        Value::Hash(fields) => {
            let pairs = fields.iter().map(|field| (&field.name, &field.value));
            place.hash(fields.len() as u64, pairs)
        }
        Value::Stream(stream) => place.stream(stream),
    }
}
