//! Commands on bitmaps and on HyperLogLogs, which are strings.

/// Templates with their weights, as in `stream`.
pub(super) const TEMPLATES: &[(usize, &str)] = &[
    (16, "SETBIT {bitmap} {bit} (0 | 1 | {small})"),
    (8, "GETBIT {bitmap} {bit}"),
    (10, "BITCOUNT {bitmap} [{index} {index} [(BYTE | BIT)]]"),
    (12, "BITPOS {bitmap} (0 | 1) [{index} [{index} [(BYTE | BIT)]]]"),
    (8, "BITOP (AND | OR | XOR) {bitmap} {bitmap}+"),
    (4, "BITOP NOT {bitmap} {bitmap}"),
    (
        20,
        "BITFIELD {bitmap} [GET {width} {bit}] [OVERFLOW (WRAP | SAT | FAIL)] [SET {width} {bit} {int}] [INCRBY {width} {bit} {int}] [GET {width} {bit}]",
    ),
    (4, "BITFIELD_RO {bitmap} GET {width} {bit} [GET {width} {bit}] [SET {width} {bit} 1]"),
    (6, "GET {bitmap}"),
    (3, "SET {bitmap} {value}"),
    (2, "COMMAND INFO (setbit | getbit | bitcount | bitpos) (bitop | bitfield | bitfield_ro)"),
    (30, "PFADD {counter} {value}+"),
    (12, "PFCOUNT {counter} [{counter}] [{counter}]"),
    (8, "PFMERGE {counter} {counter} [{counter}]"),
    (6, "GET {counter}"),
    (1, "PFDEBUG (ENCODING | TODENSE) {counter}"),
    (1, "DEL {counter}"),
    (2, "COMMAND INFO (pfadd | pfcount | pfmerge)"),
];
