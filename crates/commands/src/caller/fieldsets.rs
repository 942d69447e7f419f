//! Lists of field names that a client has prepared for HIMPORT SET.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use tierce_wire::resp::{Args, OwnedArgs};

use super::Caller;
use crate::error::CommandError;

/// Lists of field names, by their own names.
#[derive(Default)]
pub(crate) struct Fieldsets {
    by_name: BTreeMap<Box<[u8]>, OwnedArgs>,
    bytes: usize,
}

impl Fieldsets {
    /// Returns the number of lists.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    fn put(&mut self, name: &[u8], fields: OwnedArgs) {
        self.remove(name);
        self.bytes += memory_of(name, &fields);
        self.by_name.insert(name.into(), fields);
    }

    fn remove(&mut self, name: &[u8]) -> bool {
        let removed = self.by_name.remove(name);
        self.bytes -= removed.as_ref().map_or(0, |fields| memory_of(name, fields));
        removed.is_some()
    }
}

fn memory_of(name: &[u8], fields: &OwnedArgs) -> usize {
    size_of::<(Box<[u8]>, OwnedArgs)>() + name.len() + fields.memory_bytes()
}

impl Caller {
    /// Returns the fields of the list with this name.
    pub(crate) fn fieldset(&self, name: &[u8]) -> Option<Args<'_>> {
        self.fieldsets.as_ref()?.by_name.get(name).map(OwnedArgs::as_args)
    }

    /// Adds a list, or replaces the one with this name.
    ///
    /// # Errors
    /// If all lists together would exceed `bytes_max`. Nothing has changed then.
    pub(crate) fn put_fieldset(
        &mut self,
        name: &[u8],
        fields: OwnedArgs,
        bytes_max: u64,
    ) -> Result<(), CommandError> {
        let others = self.fieldsets.as_ref().map_or(0, |all| {
            let replaced = all.by_name.get(name).map_or(0, |fields| memory_of(name, fields));
            all.bytes - replaced
        });
        let bytes = others + memory_of(name, &fields);
        if bytes as u64 > bytes_max {
            return Err(CommandError::new("ERR fieldsets exceed client-query-buffer-limit"));
        }
        let mut all = self.fieldsets.take().unwrap_or_default();
        all.put(name, fields);
        self.set_fieldsets(Some(all));
        Ok(())
    }

    /// Removes a list. Returns true if there was one with this name.
    pub(crate) fn remove_fieldset(&mut self, name: &[u8]) -> bool {
        let Some(mut all) = self.fieldsets.take() else { return false };
        let was_there = all.remove(name);
        self.set_fieldsets(Some(all).filter(|all| all.len() > 0));
        was_there
    }

    /// Replaces all lists, and publishes their memory.
    pub(crate) fn set_fieldsets(&mut self, fieldsets: Option<Box<Fieldsets>>) {
        let bytes = fieldsets.as_ref().map_or(0, |all| all.bytes);
        self.client.fieldset_bytes.store(bytes, Relaxed);
        self.fieldsets = fieldsets;
    }
}
