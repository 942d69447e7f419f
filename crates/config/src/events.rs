//! The event classes of `notify-keyspace-events`, one letter each.

use std::fmt;

/// A set of event classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(u16);

/// Classes that `A` stands for, in output order. Misses (`m`) and new keys (`n`) are left out:
/// these events are too frequent to be enabled by accident.
const CLASSES: [(char, u16); 10] = [
    ('g', 1 << 0),
    ('$', 1 << 1),
    ('l', 1 << 2),
    ('s', 1 << 3),
    ('h', 1 << 4),
    ('z', 1 << 5),
    ('x', 1 << 6),
    ('e', 1 << 7),
    ('t', 1 << 8),
    ('d', 1 << 9),
];
const ALL_CLASSES: u16 = (1 << 10) - 1;
const NEW: u16 = 1 << 10;
const KEYSPACE: u16 = 1 << 11;
const KEYEVENT: u16 = 1 << 12;
const MISSED: u16 = 1 << 13;

impl Events {
    /// No event at all.
    pub const NONE: Self = Self(0);

    /// Parses the letters. Returns `None` if one is unknown.
    pub fn parse(letters: &[u8]) -> Option<Self> {
        letters.iter().try_fold(Self::NONE, |events, &letter| {
            let bits = match char::from(letter) {
                'A' => ALL_CLASSES,
                'n' => NEW,
                'K' => KEYSPACE,
                'E' => KEYEVENT,
                'm' => MISSED,
                other => CLASSES.iter().find(|(class, _)| *class == other)?.1,
            };
            Some(Self(events.0 | bits))
        })
    }

    /// Returns true if the class of this letter is in the set.
    pub fn contains(self, letter: char) -> bool {
        u8::try_from(letter)
            .ok()
            .and_then(|byte| Self::parse(&[byte]))
            .is_some_and(|asked| self.0 & asked.0 == asked.0)
    }
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 & ALL_CLASSES == ALL_CLASSES {
            f.write_str("A")?;
        } else {
            self.write_letters(f, &CLASSES)?;
        }
        self.write_letters(f, &[('n', NEW), ('K', KEYSPACE), ('E', KEYEVENT), ('m', MISSED)])
    }
}

impl Events {
    fn write_letters(self, f: &mut fmt::Formatter<'_>, letters: &[(char, u16)]) -> fmt::Result {
        letters
            .iter()
            .filter(|(_, bit)| self.0 & bit != 0)
            .try_for_each(|(letter, _)| write!(f, "{letter}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Events;

    #[test]
    fn letters_come_back_in_canonical_order() {
        for (given, shown) in [
            ("", ""),
            ("KEA", "AKE"),
            ("Kgx", "gxK"),
            ("KEmn", "nKEm"),
            ("dtE$lshzxetn", "$lshzxetdnE"),
            ("g$lshzxetd", "A"),
        ] {
            let events = Events::parse(given.as_bytes()).expect(given);
            assert_eq!(events.to_string(), shown);
            assert_eq!(Events::parse(shown.as_bytes()), Some(events));
        }
        assert_eq!(Events::parse(b"KQ"), None);
    }

    #[test]
    fn all_contains_neither_missed_nor_new_keys() {
        let all = Events::parse(b"KA").expect("valid");
        assert!(all.contains('g') && all.contains('K') && all.contains('A'));
        assert!(!all.contains('m') && !all.contains('n') && !all.contains('E'));
        assert!(!all.contains('Q') && !all.contains('ß'));
    }
}
