//! A collection of any type, and its representation as one pointer.

use std::ptr::NonNull;

use crate::form::{CollectionKind, Form, all_types};

/// Defines [`Collection`].
macro_rules! collection {
    ($($type:ident = $_number:literal, $doc:literal, $_name:literal, $_encodings:expr, {
        $($_forms:tt)*
    })*) => {
        /// A collection of any type.
        #[derive(Debug)]
        pub enum Collection { $(#[doc = $doc] $type(crate::$type),)* }

        impl Collection {
            /// Creates a collection without elements.
            pub fn new(kind: CollectionKind) -> Self {
                match kind { $(CollectionKind::$type => Self::$type(crate::$type::new()),)* }
            }

            /// Returns its type.
            pub fn kind(&self) -> CollectionKind {
                match self { $(Self::$type(_) => CollectionKind::$type,)* }
            }

            /// Returns the number of elements.
            #[expect(clippy::len_without_is_empty, reason = "empty ones vanish, but for streams")]
            pub fn len(&self) -> usize {
                match self { $(Self::$type(value) => value.len(),)* }
            }

            /// Returns the bytes it owns, as the allocator counts them.
            pub fn allocated_bytes(&self) -> usize {
                match self { $(Self::$type(value) => value.allocated_bytes(),)* }
            }

            /// Returns the name of its encoding for OBJECT ENCODING.
            pub fn encoding(&self) -> &'static str {
                match self { $(Self::$type(value) => value.encoding(),)* }
            }

            /// Returns a copy.
            pub fn duplicate(&self) -> Self {
                match self { $(Self::$type(value) => Self::$type(value.duplicate()),)* }
            }

            /// Converts the collection into its form and one pointer, which owns it.
            #[inline]
            #[must_use]
            pub fn into_raw(self) -> (Form, NonNull<u8>) {
                match self { $(Self::$type(value) => value.into_raw(),)* }
            }

            /// Converts the result of [`Collection::into_raw`] back.
            ///
            /// # Safety
            ///
            /// Form and pointer must come from one call of `into_raw`, and must not be used again unless they
            /// come from another.
            #[inline]
            pub unsafe fn from_raw(form: Form, pointer: NonNull<u8>) -> Self {
                match form.kind() {
                    // SAFETY: as the caller guarantees.
                    $(CollectionKind::$type => unsafe {
                        Self::$type(crate::$type::from_raw(form, pointer))
                    },)*
                }
            }
        }
    };
}
all_types!(collection);
