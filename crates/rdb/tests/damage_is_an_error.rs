//! Files with false lengths, truncated files, and files with unreadable values.

use tierce_rdb::testing::Value;
use tierce_rdb::{Encoding, Error, Event, Kind, Reader, Result, Writer, WriterOptions};

/// Returns a file of version 9 with these bytes after its header.
fn file(body: &[u8]) -> Vec<u8> {
    [b"REDIS0009", body].concat()
}

/// Reads all values up to the end.
fn read(file: &[u8]) -> Result<Vec<Value>> {
    let mut reader = Reader::new(file)?;
    let mut values = Vec::new();
    while let Some(event) = reader.next_event()? {
        if let Event::Entry(entry) = event {
            values.push(Value::read(entry.kind(), |add| reader.visit_value(add))?);
        }
    }
    Ok(values)
}

#[test]
fn no_announced_number_takes_memory_or_time() {
    // 2^60 as the count of any encoding, and no bytes behind it.
    let lie = b"\x81\x10\x00\x00\x00\x00\x00\x00\x00";
    for encoding in Encoding::ALL {
        let body = [&[encoding.code(), 1, b'k'][..], lie].concat();
        let error = read(&file(&body)).unwrap_err();
        let expected = matches!(
            error,
            Error::Truncated { .. } | Error::Corrupt { .. } | Error::Unreleased { .. }
        );
        assert!(expected, "{encoding:?}: {error}");
    }
}

#[test]
fn every_cut_is_a_truncation_at_its_end() {
    let file = include_bytes!("fixtures/old-encodings.rdb");
    for cut in (0..file.len() - 1).filter(|cut| cut % 7 == 0 || *cut < 600) {
        match read(&file[..cut]).unwrap_err() {
            Error::Truncated { offset, .. } => assert_eq!(offset, cut as u64),
            error => panic!("cut at {cut}: {error}"),
        }
    }
}

#[test]
fn a_changed_byte_does_not_pass_unnoticed() {
    let mut writer = Writer::new(Vec::new(), WriterOptions::default()).unwrap();
    writer.entry(b"key", &Default::default()).string(b"a good year").unwrap();
    let good = writer.finish().unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x20;
        // The version may still be a known one; then the checksum is wrong.
        assert!(read(&bad).is_err(), "byte {at}");
    }
    let mut bad = good.clone();
    bad[15] ^= 0x20;
    let error = read(&bad).unwrap_err();
    assert!(
        matches!(error, Error::Checksum { offset, .. } if offset == good.len() as u64),
        "{error}"
    );
}

#[test]
fn what_is_no_rdb_file_is_named() {
    let text = |file: &[u8]| Reader::new(file).unwrap_err().to_string();
    assert_eq!(text(b""), "the input ends at offset 0, expected the header of an RDB file");
    let no_header = "damaged at offset 0: expected REDIS and four digits at the beginning";
    assert_eq!(text(b"*3\r\n$3\r\nSET"), no_header);
    let version = "version 80 of the format is not supported, expected 1 to 12";
    assert_eq!(text(b"REDIS0080"), version);
}

#[test]
fn a_modules_value_is_an_error_that_can_be_passed_over() {
    // The type `hellotype`, version 0: a number, a float, a double, a string, the end.
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digit = |byte| letters.iter().position(|&letter| letter == byte).unwrap() as u64;
    let id = b"hellotype".iter().fold(0, |id, &byte| id << 6 | digit(byte)) << 10;
    let id = [&[0x81][..], &id.to_be_bytes()].concat();
    let data = b"\x02\x07\x03\0\0\0\0\x04\0\0\0\0\0\0\0\0\x05\x01s\x00";
    let aux = [&[247][..], &id, b"\x02\x01", data].concat();
    let value = [&[7, 1, b'k'][..], &id, data].concat();
    let bytes = file(&[&aux[..], &value, &value, b"\x00\x01l\x01v\xff\0\0\0\0\0\0\0\0"].concat());

    let mut reader = Reader::new(&bytes[..]).unwrap();
    let aux = Event::ModuleAux { name: "hellotype".into() };
    assert_eq!(reader.next_event().unwrap(), Some(aux));
    assert!(matches!(reader.next_event().unwrap(), Some(Event::Entry(_))));
    let error = Value::read(Kind::Module, |add| reader.visit_value(add)).unwrap_err();
    assert!(matches!(&error, Error::Module { name, .. } if name == "hellotype"), "{error}");
    assert!(matches!(reader.skip_value(), Err(Error::NoValue)));
    // The second value is skipped.
    assert!(matches!(reader.next_event().unwrap(), Some(Event::Entry(_))));
    assert!(matches!(reader.next_event().unwrap(), Some(Event::Entry(entry)) if entry.key == b"l"));
    let value = Value::read(Kind::String, |add| reader.visit_value(add));
    assert_eq!(value.unwrap(), Value::String(b"v".to_vec()));
}

#[test]
fn encodings_of_newer_versions_are_read() {
    // Made by hand, as these versions of Redis were not available: a set as listpack, and hashes
    // with expiring fields.
    let listpack = |items: &[u8], count: u8| {
        let len = items.len() as u8 + 7;
        [&[len, 0, 0, 0, count, 0][..], items, &[0xff]].concat()
    };
    let packed = |code: u8, before: &[u8], listpack: &[u8]| {
        [&[code, 1, b'k'], before, &[listpack.len() as u8], listpack].concat()
    };
    let set = packed(20, b"", &listpack(b"\x81a\x02\x07\x01", 2));
    let hash = packed(
        25,
        &1000_u64.to_le_bytes(),
        &listpack(b"\x81f\x02\x81v\x02\xf1\xe8\x03\x03\x81g\x02\x81w\x02\x00\x01", 6),
    );
    let plain = b"\x18\x01k\xe8\x03\0\0\0\0\0\0\x03\x01\x01f\x01v\x00\x01g\x01w\x0b\x01h\x01x";
    let unreleased = b"\x16\x01k\x02\x43\xe8\x01f\x01v\x00\x01g\x01w";
    let end = b"\xff\0\0\0\0\0\0\0\0";
    let values = read(&file(&[&set[..], &hash, plain, unreleased, end].concat())).unwrap();
    assert_eq!(values[0], Value::Set(vec![b"a".to_vec(), b"7".to_vec()]));
    let expiries = |value: &Value| match value {
        Value::Hash(fields) => fields.iter().map(|field| field.expiry_ms).collect::<Vec<_>>(),
        other => panic!("{other:?} is no hash"),
    };
    assert_eq!(expiries(&values[1]), [Some(1000), None]);
    assert_eq!(expiries(&values[2]), [Some(1000), None, Some(1010)]);
    assert_eq!(expiries(&values[3]), [Some(1000), None]);
}
