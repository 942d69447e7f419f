//! Scripts that are called by names. The keyspace stores their sources, in the log and in snapshots. This module caches
//! their parsed form and history.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tierce_keyspace::{CodeKind, CodeStore};
use tierce_lua::Script;

use super::KnownScript;

/// Scripts that were called since the sources last changed.
#[derive(Default)]
pub struct Names(RwLock<Called>);

#[derive(Default)]
struct Called {
    /// Generation of the sources.
    generation: u64,
    scripts: HashMap<Box<[u8]>, Arc<KnownScript>>,
}

impl Names {
    /// Returns the script of this name; `None` if there is no runnable one.
    #[must_use]
    pub fn get(&self, code: &CodeStore, name: &[u8]) -> Option<Arc<KnownScript>> {
        let generation = code.generation();
        {
            let called = self.0.read();
            if called.generation == generation
                && let Some(script) = called.scripts.get(name)
            {
                return Some(Arc::clone(script));
            }
        }
        self.add(generation, code, name)
    }

    /// The source is read after the generation. If the source is newer, the next call reads it again.
    #[cold]
    fn add(&self, generation: u64, code: &CodeStore, name: &[u8]) -> Option<Arc<KnownScript>> {
        let source = code.get(CodeKind::Script, name)?;
        let script = Arc::new(KnownScript::new(Script::parse(source).ok()?));
        let mut called = self.0.write();
        if called.generation != generation {
            *called = Called { generation, ..Called::default() };
        }
        called.scripts.insert(name.into(), Arc::clone(&script));
        Some(script)
    }
}
