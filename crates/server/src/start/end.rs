//! The shutdown of a server: the last snapshot, the wait for replicas and a bucket, and the last replies.

use std::time::Instant;

use tierce_keyspace::{DbIndex, StreamPosition};
use tierce_replication::identity::ReplicationId;

use crate::clock::BEFORE_ALL_MS;
use crate::commands::replication::role::Following;
use crate::message::Notice;
use crate::persistence::Cause;
use crate::replication::{self, Outcome, await_replicas};
use crate::server::Server;
use crate::shutdown::Shutdown;

use super::{DRAIN_MAX, Instance};

impl Instance {
    /// Serves until shutdown, and then until the data are saved, if required, and the last replies are sent.
    pub fn wait(self) {
        let Self {
            server,
            runtime,
            long_commands,
            copies,
            stream,
            follower,
            handover,
            bucket,
            gateway,
            supervisor,
            ..
        } = self;
        let log = &server.log;
        let saves = serve_until_shutdown(&server);
        supervisor.stopping(log);
        let drain_began = Instant::now();
        // Running work completes, and goes into the log. Its replies are sent, so its connections must be open.
        drop(long_commands);
        gateway.end(DRAIN_MAX);
        runtime.handle().drain(DRAIN_MAX);
        drop(handover);
        drop(follower);
        runtime.join();
        let spent = drain_began.elapsed();
        // Before the last snapshot, so that it has no expired keys.
        server.end_expiry();
        let changes = server.keyspace.stats().changes;
        drop(copies);
        drop(stream);
        // The last clones, so that Unix sockets leave no file behind.
        server.listening.close();
        let position =
            last_position(&server).filter(|_| server.keyspace.stats().changes == changes);
        server.persistence.give_up();
        server.persistence.set_last_position(position);
        let is_told = position.is_some() && server.durability.durable_log().is_none();
        if saves && (server.unsaved_changes() > 0 || is_told) {
            // Some requests were running when the first snapshot began, which could not know the position either.
            save_before_end(&server);
        }
        if let Some(position) = position {
            server.end_at(position);
        }
        // Everything is complete, and the local log has it.
        if let Some(bucket) = bucket {
            bucket.finish(spent);
        }
        server.close();
        log.notice("All replies are sent, bye");
    }
}

/// Serves until a shutdown is requested and possible. Returns true if the data are to be saved.
fn serve_until_shutdown(server: &Server) -> bool {
    let log = &server.log;
    loop {
        let reason = server.wait_for_shutdown();
        log.notice(match reason {
            Shutdown::Command { .. } => "A client asked for shutdown",
            Shutdown::Signal { .. } => "A signal asks for shutdown",
            Shutdown::Owner => "The program asks for shutdown",
            Shutdown::Deposed => "Another server owns the bucket: this one ends",
            Shutdown::HandsOver => "FAILOVER: the bucket has everything, and this server ends",
        });
        // A script of the primary that is ended here is sent again.
        server.role.hold_link(true);
        // The last snapshot needs the shards that they lock.
        server.scripts.running.end_all();
        let awaited = await_replicas(server, reason);
        if awaited == Outcome::Aborted {
            log.notice("The shutdown is aborted");
            stay_up(server, awaited);
            continue;
        }
        // Another server may own the log in the bucket by now.
        let reason = server.shutdown().reason().unwrap_or(reason);
        let saves = reason.saves(&server.config);
        if saves && matches!(reason, Shutdown::Signal { .. }) {
            log.notice("SIGINT now ends the server at once, without the final snapshot");
        }
        if !saves || save_before_end(server) || reason.is_forced() {
            return saves;
        }
        log.warning("Error trying to save the DB, can't exit.");
        server.pause.let_go();
        stay_up(server, awaited);
    }
}

/// Takes a snapshot, and defers writes from now on. Returns false if the snapshot failed.
fn save_before_end(server: &Server) -> bool {
    server.pause.hold();
    server.primary.give_up_copy();
    server.persistence.give_up();
    server.log.notice("Saving the final RDB snapshot before exiting.");
    let mut locks = server.keyspace.locks();
    // Expired keys that still exist were not deleted in the replicas' stream either: the next start deletes them, when
    // the stream continues.
    let begun = server.begin_save(&mut locks, BEFORE_ALL_MS, Cause::Shutdown, None);
    begun.is_ok_and(|save_id| server.persistence.wait(save_id).is_ok())
}

/// Continues to serve.
fn stay_up(server: &Server, awaited: Outcome) {
    server.shutdown().cancel();
    server.scripts.running.go_on();
    server.role.hold_link(false);
    if awaited != Outcome::None {
        replication::resume_changes(server);
    }
    server.tell_all(&Notice::Resume);
    server.tell_all(&Notice::StaysUp);
}

/// Returns the final position of the data in a stream: that of the primary, or the server's own.
fn last_position(server: &Server) -> Option<StreamPosition> {
    let of = |id: ReplicationId, offset, db| StreamPosition { stream: *id.as_bytes(), offset, db };
    match server.role.following() {
        Some(Following { position, db, .. }) => {
            position.map(|position| of(position.id, position.offset, db))
        }
        None => server.primary.ended_at().map(|at| of(at.id, at.until, DbIndex::ZERO)),
    }
}
