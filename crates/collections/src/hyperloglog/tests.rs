//! Strings made by Redis 7.0.15, and malformed strings.

use proptest::prelude::*;
use tierce_harness::effort;

use super::*;

const SPARSE_LEN_MAX: usize = 3000;

fn filled(count: usize) -> HyperLogLog {
    let mut counter = HyperLogLog::new();
    for at in 0..count {
        counter.add(format!("element:{at}").as_bytes(), SPARSE_LEN_MAX).unwrap();
    }
    counter
}

/// Fixtures from Redis are compared by their CRC-32.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

#[test]
fn strings_are_those_of_redis() {
    let mut counter = HyperLogLog::new();
    for element in ["a", "b", "c"] {
        assert_eq!(counter.add(element.as_bytes(), SPARSE_LEN_MAX), Ok(true));
    }
    assert_eq!(counter.add(b"a", SPARSE_LEN_MAX), Ok(false));
    let stale = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80`\xf3\x80P\xb1\x84K\xfb\x80BZ";
    assert_eq!(counter.clone().into_bytes(), stale);
    assert_eq!(
        describe_sparse(stale),
        Ok(Some("Z:8436 v:1,1 Z:4274 v:2,1 Z:3068 v:1,1 Z:603".into()))
    );
    assert_eq!(counter.count(), Ok(3));
    assert_eq!(
        counter.into_bytes(),
        b"HYLL\x01\0\0\0\x03\0\0\0\0\0\0\0`\xf3\x80P\xb1\x84K\xfb\x80BZ"
    );
}

#[test]
fn many_elements_lead_to_the_registers_and_estimates_of_redis() {
    let sizes: &[_] = if cfg!(miri) {
        &[(100, 285, 430_553_865, 99)]
    } else {
        &[
            (100, 285, 430_553_865, 99),
            (1000, 1897, 3_603_847_296, 997),
            (10_000, 12_304, 1_811_074_793, 10_017),
            (100_000, 12_304, 1_332_303_552, 100_039),
        ]
    };
    for (elements, len, crc, count) in sizes {
        let mut counter = filled(*elements);
        let bytes = counter.clone().into_bytes();
        assert_eq!((bytes.len(), crc32(&bytes)), (*len, *crc), "{elements} elements");
        assert_eq!(counter.count(), Ok(*count));
    }
}

#[test]
fn an_empty_one_has_no_elements() {
    let mut counter = HyperLogLog::new();
    assert_eq!(counter.encoding(), Encoding::Sparse);
    assert_eq!((counter.cached(), counter.count()), (Some(0), Ok(0)));
    counter.make_dense().unwrap();
    counter.invalidate();
    assert_eq!((counter.encoding(), counter.count()), (Encoding::Dense, Ok(0)));
}

#[test]
fn a_sparse_one_with_a_long_row_of_zeros_becomes_dense() {
    let mut registers = [0; REGISTERS];
    registers[7] = 33;
    let mut counter = HyperLogLog::new();
    counter.merge(&registers, SPARSE_LEN_MAX).unwrap();
    assert_eq!(counter.encoding(), Encoding::Dense);
    let mut found = [0; REGISTERS];
    raise_all(&counter.into_bytes(), &mut found).unwrap();
    assert_eq!(found, registers);
}

#[test]
fn what_is_none_is_refused() {
    let dense = {
        let mut counter = HyperLogLog::new();
        counter.make_dense().unwrap();
        counter.into_bytes()
    };
    assert_eq!(check(&dense), Ok(()));
    assert_eq!(check(&dense[..DENSE_LEN - 1]), Err(Error::NotOne));
    assert_eq!(check(b"HYLL"), Err(Error::NotOne));
    assert_eq!(check(b"HYLX\x01\0\0\0\0\0\0\0\0\0\0\0\x7f\xff"), Err(Error::NotOne));
    assert_eq!(check(b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\0\x7f\xff"), Err(Error::NotOne));
    let short = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80\x7f\xfe".to_vec();
    assert_eq!(HyperLogLog::from_bytes(short).unwrap().count(), Err(Error::Corrupt));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { effort(64) },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Sparse, dense, added one by one or merged: the registers are the same.
    #[test]
    fn all_ways_lead_to_the_same_registers(elements in prop::collection::vec(any::<u16>(), 0..200)) {
        let text = |element: &u16| element.to_string();
        let (mut sparse, mut dense) = (HyperLogLog::new(), HyperLogLog::new());
        dense.make_dense().unwrap();
        for element in &elements {
            let changed = sparse.add(text(element).as_bytes(), SPARSE_LEN_MAX);
            prop_assert_eq!(changed, dense.add(text(element).as_bytes(), SPARSE_LEN_MAX));
        }
        let registers = |counter: &HyperLogLog| {
            let mut registers = [0; REGISTERS];
            raise_all(&counter.clone().into_bytes(), &mut registers).unwrap();
            registers
        };
        let expected = registers(&sparse);
        prop_assert_eq!(registers(&dense), expected);
        let mut merged = HyperLogLog::new();
        merged.merge(&expected, 60).unwrap();
        prop_assert_eq!(registers(&merged), expected);
        prop_assert_eq!(merged.count(), sparse.count());
    }

    #[test]
    fn any_bytes_are_survived(runs in prop::collection::vec(any::<u8>(), 0..40), element: u64) {
        let mut bytes = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80".to_vec();
        bytes.extend_from_slice(&runs);
        let mut counter = HyperLogLog::from_bytes(bytes).unwrap();
        let _ = counter.add(&element.to_le_bytes(), 40);
        let _ = counter.count();
        let _ = counter.make_dense();
    }
}
