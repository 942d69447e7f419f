//! The types of collections and their memory layouts, in one table.

/// Calls the macro `$use` with all types. A row has the type, its number in the log, a sentence, the reply of TYPE,
/// the replies of OBJECT ENCODING, and the forms with their sizes.
macro_rules! all_types {
    ($use:ident) => {
        $use! {
            List = 1, "A list.", "list", ["listpack", "quicklist"], {
                ListPacked: Small, "A list in one block.",
                ListNodes: Sliced, "A list of several blocks.",
            }
            Set = 2, "A set.", "set", ["intset", "listpack", "hashtable", "listpackex"], {
                SetIntegers: Small, "A set of integers.",
                SetPacked: Small, "A small set.",
                SetTable: Sliced, "A large set.",
                SetTimedSmall: Small, "A small set with deadlines of members.",
                SetTimedLarge: Sliced, "A large set with deadlines of members.",
            }
            SortedSet = 3, "A sorted set.", "zset", ["listpack", "skiplist"], {
                SortedSetPacked: Small, "A small sorted set.",
                SortedSetTree: Sliced, "A large sorted set.",
            }
            Hash = 4, "A hash.", "hash", ["listpack", "listpackex", "hashtable"], {
                HashPacked: Small, "A small hash.",
                HashTable: Sliced, "A large hash.",
            }
            Stream = 5, "A stream.", "stream", ["stream"], {
                Stream: Whole, "A stream.",
            }
        }
    };
}
pub(crate) use all_types;

/// Size of collections of a form; for large ones, whether they can be saved in slices.
enum Size {
    Small,
    Sliced,
    Whole,
}

/// Defines [`CollectionKind`] and [`Form`].
macro_rules! kinds_and_forms {
    ($($kind:ident = $number:literal, $doc:literal, $name:literal, $encodings:expr, {
        $($form:ident: $size:ident, $form_doc:literal,)*
    })*) => {
        /// The type of a collection.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum CollectionKind { $(#[doc = $doc] $kind = $number,)* }

        impl CollectionKind {
            /// Returns the type with this number.
            #[inline]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$kind),)* _ => None }
            }

            /// Returns the reply of TYPE.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// Returns the replies of OBJECT ENCODING. The index of each is its number in the log.
            pub const fn encodings(self) -> &'static [&'static str] {
                match self { $(Self::$kind => &$encodings,)* }
            }
        }

        /// The memory layout of a collection. Never leaves the process.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Form { $($(#[doc = $form_doc] $form,)*)* }

        impl Form {
            /// Returns the type of a collection of this form.
            #[inline]
            pub const fn kind(self) -> CollectionKind {
                match self { $($(Self::$form => CollectionKind::$kind,)*)* }
            }

            #[inline]
            const fn size(self) -> Size {
                match self { $($(Self::$form => Size::$size,)*)* }
            }
        }
    };
}
all_types!(kinds_and_forms);

impl Form {
    /// Returns true if it is one small block, which an edit scans or copies anyway.
    #[inline]
    pub const fn is_small(self) -> bool {
        matches!(self.size(), Size::Small)
    }

    /// Returns true if collections of this form can be saved in slices.
    #[inline]
    pub const fn has_slices(self) -> bool {
        matches!(self.size(), Size::Sliced)
    }
}
