//! Prints the content of an RDB file or an append-only file, or turns it into commands.
//!
//! ```sh
//! cargo run --release -p tierce-rdb --example rdb-cat -- dump.rdb
//! cargo run --release -p tierce-rdb --example rdb-cat -- --restore dump.rdb | redis-cli --pipe
//! ```
//!
//! With `--restore`, each key becomes a `RESTORE` of a newly encoded payload, and commands stay as they are. A
//! directory is read as an append-only directory of Redis 7.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tierce_rdb::aof::{self, Item, Manifest};
use tierce_rdb::testing::{Value, encode_command};
use tierce_rdb::{Entry, Event, WriterOptions, dump};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Restore,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut form = Form::Text;
    let mut out = BufWriter::new(io::stdout().lock());
    for arg in std::env::args().skip(1) {
        if arg == "--restore" {
            form = Form::Restore;
            continue;
        }
        for path in files(Path::new(&arg))? {
            cat(&path, form, &mut out).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(out.flush()?)
}

/// Returns the file itself, or the files in the manifest of a directory.
fn files(path: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let names = fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
    let is_manifest = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "manifest");
    let manifest = names.iter().map(fs::DirEntry::path).find(is_manifest).ok_or("no manifest")?;
    let manifest = Manifest::parse(&fs::read(manifest)?)?;
    Ok(manifest.files().map(|member| path.join(&member.name)).collect())
}

fn cat(path: &Path, form: Form, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut reader = aof::Reader::new(File::open(path)?)?;
    let mut commands = Vec::new();
    while let Some(item) = reader.next_item()? {
        match item {
            Item::Rdb(Event::Entry(entry)) => {
                let value = Value::read(entry.kind(), |add| reader.visit_value(add))?;
                match form {
                    Form::Text => text(&entry, &value, out)?,
                    Form::Restore => restore(&entry, &value, &mut commands)?,
                }
            }
            Item::Rdb(Event::SelectDb(db)) if form == Form::Restore => {
                encode_command(&[&b"SELECT"[..], db.to_string().as_bytes()], &mut commands);
            }
            Item::Rdb(Event::Function(library)) if form == Form::Restore => {
                let args = [b"FUNCTION", &b"LOAD"[..], b"REPLACE", &library];
                encode_command(&args, &mut commands);
            }
            Item::Command(args) if form == Form::Restore => {
                encode_command(&args, &mut commands);
            }
            Item::Command(args) => {
                let words: Vec<_> = args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
                writeln!(out, "{}", words.join(" "))?;
            }
            Item::Rdb(Event::Aux { name, value }) if form == Form::Text => {
                writeln!(out, "# {}: {}", name.escape_ascii(), value.escape_ascii())?;
            }
            Item::Rdb(event) if form == Form::Text => writeln!(out, "# {event:?}")?,
            _ => {}
        }
        out.write_all(&commands)?;
        commands.clear();
    }
    Ok(())
}

fn text(entry: &Entry, value: &Value, out: &mut impl Write) -> io::Result<()> {
    let Entry { db, key, encoding, attributes } = entry;
    writeln!(out, "{db} {} {encoding:?} {attributes:?}", key.escape_ascii())?;
    match value {
        Value::String(string) => writeln!(out, "  {}", string.escape_ascii()),
        Value::List(elements) | Value::Set(elements) => {
            elements.iter().try_for_each(|element| writeln!(out, "  {}", element.escape_ascii()))
        }
        Value::SortedSet(members) => members
            .iter()
            .try_for_each(|(member, score)| writeln!(out, "  {score} {}", member.escape_ascii())),
        Value::Hash(fields) => fields.iter().try_for_each(|field| {
            let (name, value) = (field.name.escape_ascii(), field.value.escape_ascii());
            writeln!(out, "  {name}: {value} {:?}", field.expiry_ms)
        }),
        Value::Stream(stream) => writeln!(out, "  {stream:?}"),
    }
}

fn restore(entry: &Entry, value: &Value, commands: &mut Vec<u8>) -> Result<(), tierce_rdb::Error> {
    let payload = dump::encode(WriterOptions::default(), |writer| value.write(writer))?;
    let expiry = entry.attributes.expiry_ms.unwrap_or(0).to_string();
    let args: [&[u8]; 6] =
        [b"RESTORE", &entry.key, expiry.as_bytes(), &payload, b"REPLACE", b"ABSTTL"];
    encode_command(&args, commands);
    Ok(())
}
