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
            /// A collection without elements.
            pub fn new(kind: CollectionKind) -> Self {
                match kind { $(CollectionKind::$type => Self::$type(crate::$type::new()),)* }
            }

            /// Its type.
            pub fn kind(&self) -> CollectionKind {
                match self { $(Self::$type(_) => CollectionKind::$type,)* }
            }

            /// Number of elements.
            #[expect(clippy::len_without_is_empty, reason = "empty ones vanish, but for streams")]
            pub fn len(&self) -> usize {
                match self { $(Self::$type(value) => value.len(),)* }
            }

            /// The bytes it owns, as the allocator counts them.
            pub fn allocated_bytes(&self) -> usize {
                match self { $(Self::$type(value) => value.allocated_bytes(),)* }
            }

            /// The name of its encoding that OBJECT ENCODING replies with.
            pub fn encoding(&self) -> &'static str {
                match self { $(Self::$type(value) => value.encoding(),)* }
            }

            /// A copy.
            pub fn duplicate(&self) -> Self {
                match self { $(Self::$type(value) => Self::$type(value.duplicate()),)* }
            }

            /// Gives the collection away as its form and one pointer, which owns it.
            #[inline]
            #[must_use]
            pub fn into_raw(self) -> (Form, NonNull<u8>) {
                match self { $(Self::$type(value) => value.into_raw(),)* }
            }

            /// Takes back what [`Collection::into_raw`] gave away.
            ///
            /// # Safety
            ///
            /// Form and pointer must come from one call of `into_raw`, and must not be used again unless they
            /// come from another.
            #[inline]
            pub unsafe fn from_raw(form: Form, pointer: NonNull<u8>) -> Self {
                match form.kind() {
                    // SAFETY: by the caller's promise.
                    $(CollectionKind::$type => unsafe {
                        Self::$type(crate::$type::from_raw(form, pointer))
                    },)*
                }
            }
        }
    };
}
all_types!(collection);
