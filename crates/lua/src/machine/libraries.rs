//! Functions of libraries that a machine has loaded.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::hash::BuildHasherDefault;

use super::chunks::FirstBytes;
use crate::program::{Function, Library, LibraryId};

/// Maximum number of libraries that a machine keeps. Beyond that, the one loaded first is dropped, and loaded again
/// for its next call.
const LIBRARIES_MAX: usize = 1000;

/// Loaded libraries: callbacks by name, as references in the registry.
#[derive(Default)]
pub(super) struct Libraries {
    libraries: HashMap<LibraryId, HashMap<Vec<u8>, c_int>, BuildHasherDefault<FirstBytes>>,
    /// With the first lines of their code, the one loaded first at the front.
    queue: VecDeque<(LibraryId, Box<[u8]>)>,
}

impl Libraries {
    pub(super) fn contains(&self, library: LibraryId) -> bool {
        self.libraries.contains_key(&library)
    }

    pub(super) fn callback(&self, library: LibraryId, function: &[u8]) -> Option<c_int> {
        self.libraries.get(&library)?.get(function).copied()
    }

    /// Adds a library. Returns the callbacks that are dropped for it: those of the library that it replaces, which has
    /// the same name and so, as a rule, the same first line.
    pub(super) fn insert(
        &mut self,
        library: &Library,
        functions: Vec<(Function, c_int)>,
    ) -> Vec<c_int> {
        let mut forgotten = Vec::new();
        let replaced = self.queue.iter().find(|(_, head)| **head == *library.head());
        if let Some(replaced) = replaced.map(|(id, _)| *id) {
            forgotten = self.remove(replaced);
        }
        if self.queue.len() >= LIBRARIES_MAX
            && let Some(first) = self.queue.front().map(|(id, _)| *id)
        {
            forgotten.extend(self.remove(first));
        }
        let callbacks = functions.into_iter().map(|(function, callback)| (function.name, callback));
        self.libraries.insert(library.id, callbacks.collect());
        self.queue.push_back((library.id, library.head().into()));
        forgotten
    }

    /// Removes a library, and returns its callbacks.
    pub(super) fn remove(&mut self, library: LibraryId) -> Vec<c_int> {
        let Some(callbacks) = self.libraries.remove(&library) else { return Vec::new() };
        self.queue.retain(|(of, _)| *of != library);
        callbacks.into_values().collect()
    }
}
