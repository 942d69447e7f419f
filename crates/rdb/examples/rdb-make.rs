//! Reads an RDB file and writes it again, so that another program can compare the two.
//!
//! ```sh
//! cargo run --release -p tierce-rdb --example rdb-make -- FROM.rdb TO.rdb [--plain] [--version 11]
//! cargo run --release -p tierce-rdb --example rdb-make -- FROM.rdb TO_DIRECTORY --aof
//! ```
//!
//! With `--plain`, collections are written element by element; otherwise small ones are packed. With `--aof`, the
//! result is an append-only directory.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tierce_rdb::aof::{self, Manifest};
use tierce_rdb::testing::Value;
use tierce_rdb::{Event, Reader, Writer, WriterOptions};

/// Redis' default name for the files of an append-only directory.
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
                let value = Value::read(entry.kind(), |add| reader.visit_value(add))?;
                let place = writer.entry(&entry.key, &entry.attributes);
                if plain { value.write_plain(place)? } else { value.write(place)? }
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
