//! Directives by their index in the table.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::DIRECTIVES;
use crate::directive::Directive;

/// Index of a directive in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DirectiveId(usize);

impl DirectiveId {
    /// Returns the directive with that name. In a `const`, an unknown name fails to compile.
    ///
    /// # Panics
    /// If there is no such directive.
    #[must_use]
    pub const fn of(name: &str) -> Self {
        let mut index = 0;
        while index < DIRECTIVES.len() {
            if same_text(DIRECTIVES[index].name, name) {
                return Self(index);
            }
            index += 1;
        }
        panic!("no directive of that name")
    }

    /// Finds a directive by name or alias, in either case.
    #[must_use]
    pub fn find(name: &[u8]) -> Option<Self> {
        static BY_NAME: OnceLock<HashMap<&'static str, DirectiveId>> = OnceLock::new();
        let by_name = BY_NAME.get_or_init(|| {
            let ids = Self::all().flat_map(|id| id.directive().names().map(move |name| (name, id)));
            ids.collect()
        });
        let name = name.to_ascii_lowercase();
        by_name.get(std::str::from_utf8(&name).ok()?).copied()
    }

    /// Returns all directives in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..DIRECTIVES.len()).map(Self)
    }

    /// Returns the row of the table.
    #[must_use]
    pub fn directive(self) -> &'static Directive {
        &DIRECTIVES[self.0]
    }

    /// Returns the name of the directive.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.directive().name
    }

    /// Returns the index of the row.
    pub(crate) fn index(self) -> usize {
        self.0
    }
}

/// Compares texts in constants, where `==` is not available.
const fn same_text(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let mut index = 0;
    while index < left.len() && index < right.len() && left[index] == right[index] {
        index += 1;
    }
    index == left.len() && index == right.len()
}
