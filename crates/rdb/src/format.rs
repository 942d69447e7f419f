//! The numbers of the format. `docs/formats/rdb.md` has the byte tables.

/// First bytes of every file, before four digits of version.
pub(crate) const MAGIC: &[u8; 5] = b"REDIS";
/// Lowest version that can be read.
pub(crate) const VERSION_MIN: u16 = 1;
/// Highest version that can be read or written: that of Redis 7.4.
pub(crate) const VERSION_MAX: u16 = 12;
/// Lowest version that can be written: it has all opcodes for keys, the last of them since Redis 5.
pub(crate) const VERSION_WRITTEN_MIN: u16 = VERSION_REDIS_6_2;
/// First version with a checksum at the end.
pub(crate) const VERSION_CHECKSUM: u16 = 5;

/// Version of RDB files that Redis 5.0 to 6.2 write.
pub const VERSION_REDIS_6_2: u16 = 9;
/// Version of RDB files and DUMP payloads that Redis 7.0 writes, and every later one reads.
pub const VERSION_REDIS_7_0: u16 = 10;
/// Version that Redis 7.2 writes.
pub const VERSION_REDIS_7_2: u16 = 11;
/// Version that Redis 7.4 writes.
pub const VERSION_REDIS_7_4: u16 = 12;

/// Bytes before a key, or between keys, that are not value types.
pub(crate) mod opcode {
    pub(crate) const SLOT_INFO: u8 = 244;
    pub(crate) const FUNCTION: u8 = 245;
    pub(crate) const FUNCTION_UNRELEASED: u8 = 246;
    pub(crate) const MODULE_AUX: u8 = 247;
    pub(crate) const IDLE: u8 = 248;
    pub(crate) const FREQUENCY: u8 = 249;
    pub(crate) const AUX: u8 = 250;
    pub(crate) const RESIZE_DB: u8 = 251;
    pub(crate) const EXPIRY_MS: u8 = 252;
    pub(crate) const EXPIRY_SECONDS: u8 = 253;
    pub(crate) const SELECT_DB: u8 = 254;
    pub(crate) const END: u8 = 255;
}

/// Declares the value types with their bytes, so that both directions come from one table.
macro_rules! types {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// Encoding of a value: the byte before its key.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Encoding { $($(#[$doc])* $name = $code,)* }

        impl Encoding {
            /// All encodings.
            pub const ALL: &[Encoding] = &[$(Encoding::$name,)*];

            /// Returns the encoding with this code.
            pub fn from_code(code: u8) -> Option<Encoding> {
                match code { $($code => Some(Encoding::$name),)* _ => None }
            }
        }
    };
}

types! {
    /// A string.
    String = 0,
    /// A list, element after element.
    List = 1,
    /// A set, member after member.
    Set = 2,
    /// A sorted set with scores as decimal text.
    SortedSetText = 3,
    /// A hash, field after field.
    Hash = 4,
    /// A sorted set with scores as binary doubles.
    SortedSet = 5,
    /// A value of a module before Redis 4.0, which cannot even be skipped.
    ModuleUnreleased = 6,
    /// A value of a module.
    Module = 7,
    /// A hash as zipmap, before Redis 2.6.
    HashZipmap = 9,
    /// A list as one ziplist, before Redis 3.2.
    ListZiplist = 10,
    /// A set of integers.
    SetIntset = 11,
    /// A sorted set as ziplist, before Redis 7.0.
    SortedSetZiplist = 12,
    /// A hash as ziplist, before Redis 7.0.
    HashZiplist = 13,
    /// A list as ziplists, Redis 3.2 to 6.2.
    ListQuicklist = 14,
    /// A stream of Redis 5.0 to 6.2.
    Stream = 15,
    /// A hash as listpack.
    HashListpack = 16,
    /// A sorted set as listpack.
    SortedSetListpack = 17,
    /// A list as listpacks and large elements.
    ListQuicklist2 = 18,
    /// A stream of Redis 7.0, with first and deleted IDs.
    Stream2 = 19,
    /// A set as listpack, since Redis 7.2.
    SetListpack = 20,
    /// A stream of Redis 7.2, with the time at which consumers were active.
    Stream3 = 21,
    /// A hash with deadlines of fields, of release candidates of Redis 7.4.
    HashExpiringUnreleased = 22,
    /// A hash with deadlines of fields as listpack, of release candidates of Redis 7.4.
    HashListpackExpiringUnreleased = 23,
    /// A hash with deadlines of fields, since Redis 7.4.
    HashExpiring = 24,
    /// A hash with deadlines of fields as listpack, since Redis 7.4.
    HashListpackExpiring = 25,
}

/// Type of a value, independent of its encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A string.
    String,
    /// A list.
    List,
    /// A set.
    Set,
    /// A sorted set.
    SortedSet,
    /// A hash.
    Hash,
    /// A stream.
    Stream,
    /// A value of a module, which only that module can decode.
    Module,
}

impl Encoding {
    /// Returns the byte in the file.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the kind of values with this encoding.
    pub fn kind(self) -> Kind {
        use Encoding as E;
        match self {
            E::String => Kind::String,
            E::List | E::ListZiplist | E::ListQuicklist | E::ListQuicklist2 => Kind::List,
            E::Set | E::SetIntset | E::SetListpack => Kind::Set,
            E::SortedSetText | E::SortedSet | E::SortedSetZiplist | E::SortedSetListpack => {
                Kind::SortedSet
            }
            E::Hash
            | E::HashZipmap
            | E::HashZiplist
            | E::HashListpack
            | E::HashExpiringUnreleased
            | E::HashListpackExpiringUnreleased
            | E::HashExpiring
            | E::HashListpackExpiring => Kind::Hash,
            E::Stream | E::Stream2 | E::Stream3 => Kind::Stream,
            E::Module | E::ModuleUnreleased => Kind::Module,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_and_bytes_are_one_to_one() {
        let known: Vec<u8> =
            (0..=255).filter(|&code| Encoding::from_code(code).is_some()).collect();
        let codes: Vec<u8> = Encoding::ALL.iter().map(|encoding| encoding.code()).collect();
        assert_eq!(codes, known);
    }
}
