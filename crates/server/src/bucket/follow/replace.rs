//! Replaces all data of a follower by those of the log, while clients read the old ones.

use std::fmt::Display;
use std::io::Write;
use std::sync::Arc;

use tierce_bucket::{Follower, Group, Id, Item, Moment, Restore};
use tierce_commands::replication::role::LinkState;
use tierce_keyspace::log::LiveReplay;
use tierce_keyspace::{CodeEditor, CodeKind, Freeing, flush_dbs};

use super::super::spool::Content;
use super::{Follow, From, Interrupt, note_position, position_at};
use crate::clock::unix_ms;
use crate::persistence::{NewFile, Syncing};
use crate::server::Server;

impl Follow {
    /// Replaces all data by those of the log, while clients read the old ones.
    pub(super) fn replace_all(&mut self) -> Result<Follower, Interrupt> {
        let server = Arc::clone(&self.server);
        let url = self.joining.store.url().to_owned();
        server.log.notice(format_args!("Loading all data anew from {url}"));
        let of_role = self.joining.number;
        let _ = server.role.update(of_role, |following| following.link = LinkState::Sync);
        let group = self.await_store(Group::open(&self.joining.store))??;
        let mut restore = self.await_store(Restore::at(&group, Moment::Newest))??;
        if let Err(interrupt) = self.load_all(&mut restore, group.end().cluster) {
            // Shutdown does not wait for a store.
            if !matches!(interrupt, Interrupt::Ended) {
                let _ = self.joining.runtime.block_on(restore.finish());
            }
            return Err(interrupt);
        }
        let follower = self.await_store(Follower::after(restore))??;
        let end = follower.end();
        note_position(&server, &self.live, position_at(end.cluster, end.number, end.hash));
        let keys = tierce_engine::count(server.keyspace.total_len(), "key");
        server.log.notice(format_args!("All data are loaded, to object {}: {keys}", end.number));
        self.joining.from = From::LocalLog;
        Ok(follower)
    }

    /// Replaces all data by those of a restore.
    fn load_all(&mut self, restore: &mut Restore, cluster: Id) -> Result<(), Interrupt> {
        let server = Arc::clone(&self.server);
        let (mut file, mut is_loaded) = (None::<NewFile>, false);
        self.live = LiveReplay::default();
        while let Some(item) = self.await_store(restore.next())?? {
            match item {
                Item::Snapshot { description, .. } => {
                    if Content::of(&description).is_none() {
                        return Err(Interrupt::Unfit("a snapshot of an unknown kind".to_owned()));
                    }
                    let target = server.config.settings().dir().join("bucket.rdb");
                    file = Some(NewFile::create(&target, Syncing::AtTheEnd).map_err(unfit)?);
                }
                Item::Part(bytes) => {
                    let file = file.as_mut().ok_or_else(|| unfit("a part without a snapshot"))?;
                    file.write_all(&bytes).map_err(unfit)?;
                }
                Item::Batches { number, batches, .. } => {
                    if !std::mem::replace(&mut is_loaded, true) {
                        load(&server, file.take())?;
                    }
                    // The object's number is known at the end.
                    let mut locks = server.keyspace.long_locks();
                    let position = position_at(cluster, 0, Default::default());
                    let applied = self.live.apply(&mut locks, &batches, position, unix_ms());
                    applied.map_err(|error| unfit(format_args!("object {number}: {error}")))?;
                }
            }
        }
        if !is_loaded {
            load(&server, file.take())?;
        }
        Ok(())
    }
}

/// Replaces all data by the snapshot in a file, or by nothing if there is no file.
fn load(server: &Server, file: Option<NewFile>) -> Result<(), Interrupt> {
    let mut locks = server.keyspace.long_locks();
    // An object that never exists: later records give the real position.
    let nowhere = position_at(Default::default(), 0, Default::default());
    let Some(mut file) = file else {
        // First: a start that continues at the old position must have the old data.
        locks.move_to(None);
        locks.release();
        let mut all = locks.lock_all();
        let keyspace = all.locks().keyspace();
        flush_dbs(all.locks(), keyspace.db_indices(), Freeing::Later);
        for kind in CodeKind::ALL {
            for (name, _) in keyspace.code().all().of(kind) {
                CodeEditor::lock(all.locks()).remove(kind, name);
            }
        }
        return Ok(());
    };
    file.flush().map_err(unfit)?;
    server.engine.replace_all(file.path(), &mut locks, nowhere, || true).map_err(unfit)?;
    Ok(())
}

fn unfit(why: impl Display) -> Interrupt {
    Interrupt::Unfit(why.to_string())
}
