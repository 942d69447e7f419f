//! Files of redis-server 7.0, and encodings of older versions. `scripts/rdb-interop` made them and
//! describes their content. It also loads them into a redis-server and compares the result.

use std::collections::BTreeMap;

use tierce_rdb::testing::{Field, Value};
use tierce_rdb::{Checksum, Encoding, Entry, Event, Reader, Stream, StreamId};

const OF_REDIS: &[u8] = include_bytes!("fixtures/redis-7.0.rdb");
const OLD: &[u8] = include_bytes!("fixtures/old-encodings.rdb");

struct File {
    entries: BTreeMap<String, (Entry, Value)>,
    others: Vec<Event>,
}

impl File {
    fn read(file: &[u8]) -> File {
        let mut reader = Reader::new(file).unwrap();
        let (mut entries, mut others) = (BTreeMap::new(), Vec::new());
        while let Some(event) = reader.next_event().unwrap() {
            match event {
                Event::Entry(entry) => {
                    let key = String::from_utf8_lossy(&entry.key).into_owned();
                    let value = Value::read(entry.kind(), |add| reader.visit_value(add));
                    entries.insert(key, (entry, value.unwrap()));
                }
                other => others.push(other),
            }
        }
        File { entries, others }
    }

    fn get(&self, key: &str) -> &(Entry, Value) {
        self.entries.get(key).unwrap_or_else(|| panic!("no {key}"))
    }

    fn check(&self, key: &str, encoding: Encoding, value: Value) {
        let (entry, found) = self.get(key);
        assert_eq!(entry.encoding, encoding, "{key}");
        assert_eq!(*found, value, "{key}");
    }

    fn stream(&self, key: &str) -> &Stream {
        match self.get(key) {
            (_, Value::Stream(stream)) => stream,
            (entry, _) => panic!("{entry:?} is no stream"),
        }
    }
}

fn bytes(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn strings<T: ToString>(texts: impl IntoIterator<Item = T>) -> Vec<Vec<u8>> {
    texts.into_iter().map(|text| text.to_string().into_bytes()).collect()
}

fn hash<N: ToString, V: ToString>(fields: impl IntoIterator<Item = (N, V)>) -> Value {
    let field = |(name, value): (N, V)| Field {
        name: name.to_string().into_bytes(),
        value: value.to_string().into_bytes(),
        expiry_ms: None,
    };
    Value::Hash(fields.into_iter().map(field).collect())
}

fn sorted_set<T: ToString>(members: impl IntoIterator<Item = (f64, T)>) -> Value {
    let pair = |(score, member): (f64, T)| (member.to_string().into_bytes(), score);
    Value::SortedSet(members.into_iter().map(pair).collect())
}

#[test]
fn strings_in_all_forms() {
    let file = File::read(OF_REDIS);
    let check = |key: &str, value: Vec<u8>| {
        file.check(key, Encoding::String, Value::String(value));
    };
    check("string:empty", bytes(""));
    check("string:text", bytes("a good year"));
    check("string:lzf", bytes(&"all work and no play makes Jack a dull boy. ".repeat(20)));
    check("string:lzf:run", vec![b'x'; 100]);
    check("in:nine", bytes("9"));
    let numbers = file.entries.keys().filter_map(|key| key.strip_prefix("string:number:"));
    let numbers: Vec<_> = numbers.collect();
    assert_eq!(numbers.len(), 14);
    numbers.iter().for_each(|number| check(&format!("string:number:{number}"), bytes(number)));
    let Value::String(long) = &file.get("string:long").1 else { panic!("no string") };
    assert!(long.len() == 203_000 && long.starts_with(&b"0123456789".repeat(20_000)));
}

#[test]
fn lists_in_all_forms() {
    let file = File::read(OF_REDIS);
    let mut small = strings(-5..20);
    small.extend(strings(["text", "", "1099511627776", "-4611686018427387904"]));
    file.check("list:small", Encoding::ListQuicklist2, Value::List(small));
    let long = (0..3000).map(|n| format!("element {n} {}", "y".repeat(n % 50)));
    file.check("list:quicklist", Encoding::ListQuicklist2, Value::List(strings(long)));
    let Value::List(elements) = &file.get("list:plain").1 else { panic!("no list") };
    let lens: Vec<_> = elements.iter().map(Vec::len).collect();
    assert_eq!((lens, &elements[1]), (vec![6, 20_000, 9_000, 5], &vec![b'z'; 20_000]));
}

#[test]
fn sets_in_all_forms() {
    let file = File::read(OF_REDIS);
    file.check("set:intset16", Encoding::SetIntset, Value::Set(strings(-10..10)));
    file.check("set:intset32", Encoding::SetIntset, Value::Set(strings([-100_000, 1, 100_000])));
    let wide = strings([-(1_i64 << 40), 1, 1 << 40]);
    file.check("set:intset64", Encoding::SetIntset, Value::Set(wide));
    let sorted = |key: &str| {
        let Value::Set(mut members) = file.get(key).1.clone() else { panic!("no set") };
        members.sort();
        members
    };
    assert_eq!(sorted("set:words"), strings(["", "1", "a", "b", &"long ".repeat(30)]));
    let mut many = strings((0..1000).map(|n| format!("member {n}")));
    many.sort();
    assert_eq!(sorted("set:many"), many);
}

#[test]
fn sorted_sets_in_all_forms() {
    let file = File::read(OF_REDIS);
    let small = [
        (f64::NEG_INFINITY, "least"),
        (-0.0, "zero"),
        (1e-300, "tiny"),
        (0.1, "tenth"),
        (1.0, "one"),
        (1.5, "one and a half"),
        (7.0, "12345"),
        (9_007_199_254_740_992.0, "odd"),
        (3e200, "huge"),
        (f64::INFINITY, "most"),
    ];
    file.check("zset:small", Encoding::SortedSetListpack, sorted_set(small));
    let many = (0..500).rev().map(|n| (f64::from(n) / 7.0, format!("member {n}")));
    file.check("zset:many", Encoding::SortedSet, sorted_set(many));
}

#[test]
fn hashes_in_all_forms_and_deadlines() {
    let file = File::read(OF_REDIS);
    let small = [("name", "value"), ("1", "-1"), ("empty", ""), ("big", "1125899906842624")];
    file.check("hash:small", Encoding::HashListpack, hash(small));
    let Value::Hash(fields) = &file.get("hash:many").1 else { panic!("no hash") };
    let found: BTreeMap<_, _> = fields.iter().map(|f| (f.name.clone(), f.value.clone())).collect();
    let expected = (0..600).map(|n| (bytes(&format!("field {n}")), bytes(&n.to_string())));
    assert_eq!(found, expected.collect());
    assert_eq!(file.get("hash:small").0.attributes.expiry_ms, Some(4_102_444_800_456));
    assert_eq!(file.get("expires").0.attributes.expiry_ms, Some(4_102_444_800_123));
    assert!(file.entries.values().all(|(entry, _)| entry.attributes.idle_seconds.is_some()));
}

#[test]
fn streams_with_groups() {
    let file = File::read(OF_REDIS);
    let many = file.stream("stream:many");
    let expected = (0..250).filter(|n| n % 7 != 0 && *n != 3);
    assert_eq!(many.entries.len(), expected.clone().count());
    for (entry, n) in many.entries.iter().zip(expected) {
        assert_eq!(entry.id, StreamId { ms: 1000 + n / 3, seq: n });
        assert_eq!(entry.fields[0], (b"name"[..].into(), bytes(&format!("value {n}"))));
        assert_eq!(entry.fields[1], (b"n"[..].into(), bytes(&n.to_string())));
    }
    assert_eq!(many.state.entries_added, 250);
    assert_eq!(many.state.last_id, StreamId { ms: 1083, seq: 249 });
    let [first, second] = &many.groups[..] else { panic!("not two groups") };
    assert_eq!((&first.name[..], &second.name[..]), (&b"first"[..], &b"second"[..]));
    assert_eq!(second.last_delivered, StreamId { ms: 1011, seq: 33 });
    let [ann, bob] = &first.consumers[..] else { panic!("not two consumers") };
    // Of her 20, two were acknowledged and one was claimed; his 90 have one more.
    assert_eq!((ann.pending.len(), bob.pending.len()), (17, 91));
    let claimed = bob.pending[0];
    assert_eq!(claimed.id, StreamId { ms: 1000, seq: 2 });
    assert_eq!((claimed.delivered_ms, claimed.deliveries), (1_600_000_000_000, 300));
    let consumers: Vec<_> =
        second.consumers.iter().map(|consumer| consumer.pending.len()).collect();
    assert_eq!(consumers, [3, 0]);
}

#[test]
fn streams_of_odd_shapes() {
    let file = File::read(OF_REDIS);
    let mixed = file.stream("stream:mixed");
    let names =
        |at: usize| mixed.entries[at].fields.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>();
    assert_eq!((names(0), names(1)), (vec![&b"a"[..]], vec![&b"b"[..], b"c"]));
    assert_eq!(mixed.entries[2].id, StreamId { ms: u64::MAX, seq: 3 });
    assert_eq!(mixed.entries[1].fields[1].1, [0xff; 5000]);
    let emptied = file.stream("stream:emptied");
    let id = StreamId { ms: 7, seq: 7 };
    assert!(emptied.entries.is_empty());
    assert_eq!((emptied.state.last_id, emptied.state.max_deleted_id), (id, id));
    assert_eq!(file.stream("stream:empty").groups.len(), 1);
}

#[test]
fn what_stands_between_keys() {
    let file = File::read(OF_REDIS);
    let version = Event::Aux { name: bytes("redis-ver"), value: bytes("7.0.15") };
    assert_eq!(file.others[0], version);
    let library =
        |event: &Event| matches!(event, Event::Function(code) if code.starts_with(b"#!lua"));
    assert!(file.others.iter().any(library));
    assert!(file.others.contains(&Event::ResizeDb { keys: 5, expiring: 0 }));
    assert_eq!(file.others.last(), Some(&Event::End { checksum: Checksum::Right }));
    assert_eq!(file.get("stream:many").0.db, 9);
}

#[test]
fn encodings_of_older_versions() {
    let file = File::read(OLD);
    let numbers = [
        0,
        12,
        13,
        -128,
        128,
        -32768,
        40000,
        -(1 << 23),
        1 << 24,
        -(1_i64 << 31),
        1 << 31,
        i64::MIN,
    ];
    let mut elements = strings(["a", &"b".repeat(100), &"c".repeat(300)]);
    elements.extend(strings(numbers));
    file.check("list:ziplist", Encoding::ListZiplist, Value::List(elements));
    file.check("list", Encoding::List, Value::List(strings(["a", "12345", ""])));
    let elements = strings(["a", "1", &"d".repeat(20_000)]);
    file.check("list:quicklist", Encoding::ListQuicklist, Value::List(elements));
    file.check("set", Encoding::Set, Value::Set(strings(["a", "b"])));
    file.check("set:intset", Encoding::SetIntset, Value::Set(strings([-5, 0, 9])));
    let (least, most) = (f64::NEG_INFINITY, f64::INFINITY);
    let members = [(1.5, "a"), (most, "inf"), (least, "-inf"), (-0.1, "b")];
    file.check("zset", Encoding::SortedSetText, sorted_set(members));
    let members = [(-3.0, "low"), (1.25, "mid"), (most, "top")];
    file.check("zset:ziplist", Encoding::SortedSetZiplist, sorted_set(members));
    file.check("hash", Encoding::Hash, hash([("f", "v")]));
    let fields = [("a", "1"), ("b", &"v".repeat(300)), ("c", "")];
    file.check("hash:zipmap", Encoding::HashZipmap, hash(fields));
    file.check("hash:ziplist", Encoding::HashZiplist, hash([("f", "v"), ("n", "1982")]));
    let expiry = |key| file.get(key).0.attributes.expiry_ms;
    assert_eq!(expiry("string:seconds"), Some(2_000_000_000_000));
    assert_eq!(expiry("string:millis"), Some(4_102_444_800_789));
    assert_eq!(file.others.last(), Some(&Event::End { checksum: Checksum::Absent }));
}
