//! Many keys: none is lost, none is mistaken for another, no value runs into another.

use tierce_keyspace::{DbIndex, Expiry, Keyspace, Options};

/// Ten million where the compiler optimizes; as many as a debug build does in a few seconds
/// otherwise.
const KEYS: u64 = if cfg!(debug_assertions) { 100_000 } else { 10_000_000 };

/// All names begin alike, and some are the beginning of others.
fn name(number: u64) -> Vec<u8> {
    let common = b"the:same:long:prefix:for:every:key:in:this:test:";
    [common.as_slice(), number.to_string().as_bytes()].concat()
}

/// Of a length and with bytes that belong to this number alone.
fn value(number: u64, generation: u64) -> Vec<u8> {
    let len = 8 + (number.wrapping_mul(31) + generation * 17) % 90;
    let bytes = (number * 2 + generation).to_le_bytes();
    bytes.into_iter().cycle().take(len as usize).collect()
}

#[test]
fn no_key_is_lost_while_tables_grow_and_shrink() {
    let keyspace = Keyspace::new(Options::default()).unwrap();
    let with =
        |number: u64,
         check: &mut dyn FnMut(&mut tierce_keyspace::Db<'_>, tierce_keyspace::Key<'_>)| {
            let name = name(number);
            let key = keyspace.key(&name);
            check(&mut keyspace.locks().db(DbIndex::ZERO, key.hash(), 0), key);
        };
    for number in 0..KEYS {
        with(number, &mut |db, key| db.set(key, &value(number, 0), Expiry::Never).unwrap());
    }
    assert_eq!(keyspace.len(DbIndex::ZERO), KEYS);
    // Every third one gets another length, in place or not.
    for number in (0..KEYS).step_by(3) {
        with(number, &mut |db, key| db.set(key, &value(number, 1), Expiry::Never).unwrap());
    }
    for number in 0..KEYS {
        let expected = value(number, u64::from(number % 3 == 0));
        with(number, &mut |db, key| {
            let found = db.string(key).unwrap().expect("no key is lost");
            assert_eq!(found.bytes(&mut Default::default()), expected, "of key {number}");
        });
    }
    for number in KEYS..KEYS + 1000 {
        with(number, &mut |db, key| assert!(!db.exists(key)));
    }
    for number in 0..KEYS {
        with(number, &mut |db, key| assert!(db.remove(key)));
    }
    assert_eq!(keyspace.memory().total(), 0);
}
