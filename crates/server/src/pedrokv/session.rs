//! The state of one connection that speaks PedroKV.

use std::sync::Arc;

use crate::acl::{Rights, Users};
use crate::clients::Client;
use crate::kernel::Kernel;
use crate::waiting::Waits;

/// State of a connection from one request to the next.
pub struct Session {
    /// Part that other threads may see.
    pub client: Arc<Client>,
    /// State of its waiting.
    pub waits: Waits,
    /// Rights of its user: the default user, as the protocol cannot name another, or that of its certificate.
    pub(super) rights: Rights,
    /// True if its certificate has determined the user.
    is_certified: bool,
    /// True if the client could use the data when it was last served.
    pub(super) may: bool,
    /// Puts at the front of the input of which some have run.
    pub(super) puts: SortedPuts,
}

/// Puts that run shard by shard. When one has to wait, none of them gets a response, and those that have run must not
/// run again: a client that got its response from another connection in between would see its value overwritten.
#[derive(Default)]
pub(super) struct SortedPuts {
    /// Number of Puts in the group; 0 if none of them waits.
    pub(super) count: usize,
    /// Number that have run, in the order of their shards.
    pub(super) done: usize,
    /// Failed ones, by their index in that order, with their responses.
    pub(super) failed: Vec<(usize, &'static str)>,
}

impl SortedPuts {
    /// Notes the outcome of the next one.
    #[inline]
    pub(super) fn note(&mut self, outcome: Result<(), &'static str>) {
        if let Err(text) = outcome {
            self.failed.push((self.done, text));
        }
        self.done += 1;
    }
}

impl Session {
    /// Creates a session, which may use the data while the default user needs no password.
    #[must_use]
    pub fn new(client: Arc<Client>, users: &Users) -> Self {
        let rights = Rights::of_default_user(users);
        client.set_user(rights.user());
        let (may, waits, puts) = (users.is_open(), Waits::default(), SortedPuts::default());
        Self { client, waits, rights, is_certified: false, may, puts }
    }

    /// Makes it the user of its certificate.
    pub fn become_user(&mut self, rights: Rights) {
        self.client.set_user(rights.user());
        (self.rights, self.is_certified, self.may) = (rights, true, true);
    }

    /// Returns true if the client could not use the data when it was last served.
    #[inline]
    pub fn is_stranger(&self) -> bool {
        !self.may
    }

    /// Updates whether the client may use the data. Its protocol cannot transfer a password, so it is admitted by its
    /// certificate, or while no password is set. It is locked out as soon as there is a password.
    #[inline]
    pub(super) fn look_whether_it_may(&mut self, kernel: &Kernel) {
        let users = &kernel.acl.users;
        if self.rights.are_old(users) && !self.rights.renew(users) {
            (self.rights, self.is_certified) = (Rights::of_default_user(users), false);
            self.client.set_user(self.rights.user());
        }
        self.may = self.is_certified || users.is_open();
    }
}
