//! Types of collections: dispatch over all of them, and decoded edits of any type.

use std::ptr::NonNull;

use tierce_collections::{Collection, CollectionKind, Form, Hash, List, Set, SortedSet, Stream};

use super::CollectionType;
use super::edits::read_code;
use super::hash::HashEdit;
use super::list::ListEdit;
use super::sealed::Registered;
use super::set::SetEdit;
use super::sorted_set::SortedSetEdit;
use super::stream::StreamEdit;
use crate::codec::{Malformed, Reader};

/// Registers the types, each with its edit. `$d` is a dollar sign, for the macros that this one makes.
macro_rules! collection_types {
    ($d:tt $($type:ident: $edit:ident,)*) => {
        /// Runs `$body` with `$type` for the type that is `$kind`.
        macro_rules! with_type {
            ($d kind:expr, $d type:ident => $d body:expr) => {
                match $d kind { $(
                    tierce_collections::CollectionKind::$type => {
                        type $d type = tierce_collections::$type;
                        $d body
                    }
                )* }
            };
        }
        pub(crate) use with_type;

        /// Runs `$body` with the value of whatever type a collection has.
        macro_rules! each_collection {
            ($d collection:expr, $d value:ident => $d body:expr) => {
                match $d collection {
                    $(tierce_collections::Collection::$type($d value) => $d body,)*
                }
            };
        }
        pub(crate) use each_collection;

        /// An edit of any type, decoded.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub enum Edit<'a> {
            $(#[doc = concat!("Of a [`struct@", stringify!($type), "`].")] $type($edit<'a>),)*
        }

        impl<'a> Edit<'a> {
            /// Reads an edit of this type, whose code has been read.
            fn read(
                kind: CollectionKind,
                code: u8,
                edit: &mut Reader<'a>,
            ) -> Result<Self, Malformed> {
                match kind {
                    $(CollectionKind::$type => $edit::read(code, edit).map(Self::$type),)*
                }
            }
        }

        $(impl CollectionType for $type {
            const KIND: CollectionKind = CollectionKind::$type;

            fn new() -> Self {
                $type::new()
            }

            #[inline]
            fn is_empty(&self) -> bool {
                self.len() == 0
            }

            fn into_collection(self) -> Collection {
                Collection::$type(self)
            }

            fn of(collection: &Collection) -> Option<&Self> {
                if let Collection::$type(value) = collection { Some(value) } else { None }
            }
        }

        impl Registered for $type {
            type Decoded<'a> = $edit<'a>;

            #[inline]
            fn read<'a>(code: u8, edit: &mut Reader<'a>) -> Result<$edit<'a>, Malformed> {
                $edit::read(code, edit)
            }

            #[inline]
            unsafe fn from_raw(form: Form, pointer: NonNull<u8>) -> Self {
                // SAFETY: guaranteed by the caller.
                unsafe { $type::from_raw(form, pointer) }
            }

            #[inline]
            fn into_raw(self) -> (Form, NonNull<u8>) {
                $type::into_raw(self)
            }

            #[inline]
            fn allocated_bytes(&self) -> usize {
                $type::allocated_bytes(self)
            }
        })*
    };
}

collection_types! { $
    List: ListEdit,
    Set: SetEdit,
    SortedSet: SortedSetEdit,
    Hash: HashEdit,
    Stream: StreamEdit,
}

/// The edits of an operation, one after the other. Ends after an error.
#[derive(Debug, Clone)]
pub struct Edits<'a>(Reader<'a>);

impl<'a> Edits<'a> {
    /// Returns the edits in these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(Reader::new(bytes))
    }

    fn read(&mut self) -> Result<Edit<'a>, Malformed> {
        let (code, kind) = read_code(&mut self.0)?;
        Edit::read(kind, code, &mut self.0)
    }
}

impl<'a> Iterator for Edits<'a> {
    type Item = Result<Edit<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_at_end() {
            return None;
        }
        let edit = self.read();
        if edit.is_err() {
            self.0 = Reader::new(&[]);
        }
        Some(edit)
    }
}
