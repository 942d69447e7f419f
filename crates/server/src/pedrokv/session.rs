//! The state of one connection that speaks PedroKV.

use std::sync::Arc;

use crate::acl::{Rights, Users};
use crate::clients::Client;
use crate::kernel::Kernel;
use crate::waiting::Waits;

/// What a connection remembers from one request to the next.
pub struct Session {
    /// The part that others may see.
    pub client: Arc<Client>,
    /// What it waits for.
    pub waits: Waits,
    /// What its user may do: the default user, as the protocol has no way to name another, or that of its certificate.
    pub(super) rights: Rights,
    /// Its certificate has said which user it is.
    is_certified: bool,
    /// The client may use the data, as far as was known when it was served last.
    pub(super) may: bool,
    /// Puts at the front of the input of which some have run.
    pub(super) puts: SortedPuts,
}

/// Puts that go shard by shard. When one has to wait, none of them is responded to, and those that have run must
/// not run again: a client that got its response from another connection in between would see its value
/// overwritten.
#[derive(Default)]
pub(super) struct SortedPuts {
    /// How many belong together; 0 if none of them waits.
    pub(super) count: usize,
    /// So many have run, in the order of their shards.
    pub(super) done: usize,
    /// Those that failed, by their place in that order, and the responses to them.
    pub(super) failed: Vec<(usize, &'static str)>,
}

impl SortedPuts {
    /// Notes how the next one went.
    #[inline]
    pub(super) fn note(&mut self, outcome: Result<(), &'static str>) {
        if let Err(text) = outcome {
            self.failed.push((self.done, text));
        }
        self.done += 1;
    }
}

impl Session {
    /// A fresh session, which may use the data while the default user needs no password.
    #[must_use]
    pub fn new(client: Arc<Client>, users: &Users) -> Self {
        let rights = Rights::of_default_user(users);
        client.set_user(rights.user());
        let (may, waits, puts) = (users.is_open(), Waits::default(), SortedPuts::default());
        Self { client, waits, rights, is_certified: false, may, puts }
    }

    /// Becomes the user of its certificate.
    pub fn become_user(&mut self, rights: Rights) {
        self.client.set_user(rights.user());
        (self.rights, self.is_certified, self.may) = (rights, true, true);
    }

    /// Whether the client was not let in when it was served last.
    #[inline]
    pub fn is_stranger(&self) -> bool {
        !self.may
    }

    /// Looks whether the client may use the data. Its protocol has no place for a password, so it is let in by its
    /// certificate, or while there is no password, and shut out from the moment on when there is one.
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
