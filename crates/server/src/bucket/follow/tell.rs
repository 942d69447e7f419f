//! The state of a follower for clients and operators: the role, INFO, and the log.

use tierce_bucket::{ClaimInfo, End, Follower};
use tierce_commands::bucket::State;
use tierce_commands::replication::role::{Address, LinkState};

use super::super::uploader::note_failure;
use super::{Follow, Joining};
use crate::clock::unix_ms;
use crate::server::Server;

impl Follow {
    /// Notes an owner of the log. An owner older than the known one is skipped: a start knows the last owner, and may
    /// have to apply records of earlier ones.
    pub(super) fn has_owner(&mut self, claim: &ClaimInfo) {
        if claim.epoch <= self.epoch {
            return;
        }
        self.epoch = claim.epoch;
        let (server, owner) = (&self.server, parse_address(&claim.address));
        server.log.notice(format_args!("The bucket is owned by {owner} (epoch {})", claim.epoch));
        let _ = server.role.update(self.joining.number, |following| following.primary = owner);
    }

    /// Publishes the follower's position.
    pub(super) fn tell(&mut self, follower: &Follower) {
        let (server, end) = (&self.server, follower.end());
        let trouble = follower.trouble().map(|trouble| trouble.error.clone());
        let now_ms = unix_ms();
        note_end(server, end);
        match trouble {
            Some(error) => self.is_down(&error),
            None => self.is_up(now_ms),
        }
        let number = end.number;
        let _ = self.server.role.update(self.joining.number, |following| {
            following.read_offset = number;
        });
    }

    fn is_up(&mut self, now_ms: i64) {
        let server = &self.server;
        if self.trouble.take().is_some() {
            server.log.notice("The log in the bucket is followed again");
        }
        server.bucket.note_waiting(None, 0);
        let _ = server.role.update(self.joining.number, |following| {
            (following.link, following.last_io_ms) = (LinkState::Connected, now_ms);
        });
    }

    pub(super) fn is_down(&mut self, error: &str) {
        is_down(&self.server, &self.joining, &mut self.trouble, error);
    }
}

/// Reports why the log is not followed. Clients keep reading the present data. `trouble` is the last logged error.
pub(super) fn is_down(
    server: &Server,
    joining: &Joining,
    trouble: &mut Option<String>,
    error: &str,
) {
    let now_ms = unix_ms();
    let _ = server.role.update(joining.number, |following| {
        if following.link == LinkState::Connected {
            following.down_since_ms = now_ms;
        }
        following.link = LinkState::Connect;
        server.bucket.note_waiting(Some(following.down_since_ms.max(0).unsigned_abs()), 0);
    });
    note_failure(server, error);
    // A repeated error is logged once.
    if trouble.as_deref() != Some(error) {
        let url = joining.store.url();
        server.log.warning(format_args!("The log in {url} is not followed: {error}"));
        *trouble = Some(error.to_owned());
    }
}

pub(super) fn note_end(server: &Server, end: &End) {
    server.bucket.update(|figures| {
        figures.state = State::Follower;
        (figures.epoch, figures.number) = (end.epoch, end.number);
        if let Some(claim) = &end.claim {
            claim.address.clone_into(&mut figures.owner);
            (figures.takeover, figures.lease_ms) = (claim.takeover, claim.lease_ms);
        }
        if let Some(snapshot) = &end.snapshot {
            (figures.snapshot, figures.snapshot_ms) = (snapshot.position, snapshot.wall);
            figures.snapshot_bytes = snapshot.stored;
        }
    });
}

/// Returns the address that the owner of a log announces.
pub(super) fn owner_of(end: &End) -> Address {
    end.claim.as_ref().map_or_else(|| parse_address(""), |claim| parse_address(&claim.address))
}

fn parse_address(address: &str) -> Address {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Address { host: host.as_bytes().to_vec(), port: port.parse().unwrap_or(0) }
}
