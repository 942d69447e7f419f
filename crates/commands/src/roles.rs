//! Changes of the role: REPLICAOF, FAILOVER, and the request of a primary to take over from it.
//!
//! A server that becomes a replica unblocks its clients with an error, because a replica cannot serve them.

use tierce_engine::feed::Reader;

use crate::clock::unix_ms;
use crate::error::CommandError;
use crate::kernel::Kernel;
use crate::maintenance::Notification;
use crate::message::Notice;
use crate::pipeline::{blocking, handoff};
use crate::replication::failover::{Phase, Plan};
use crate::replication::role::Address;
use crate::shutdown::Shutdown;

impl Kernel {
    /// Follows a primary from now on, or none. Returns true if that is a change. The role cannot change meanwhile.
    ///
    /// # Errors
    /// During a failover, or if the server follows the log in a bucket.
    pub fn replicate(&self, primary: Option<Address>, now_ms: i64) -> Result<bool, CommandError> {
        const FAILING_OVER: CommandError =
            CommandError::new("ERR REPLICAOF not allowed while failing over.");
        if self.failover.is_on() {
            return Err(FAILING_OVER);
        }
        if let Some(owner) = self.role.owner() {
            return Err(CommandError::text(format!(
                "ERR REPLICAOF not allowed: this server follows the log in a bucket, which {owner} owns, and takes over when \
                 that is gone. For a handover, send FAILOVER to {owner}"
            )));
        }
        let is_to_follow = primary.is_some();
        let lacks_copy = self.role.following().filter(|left| left.position.is_none());
        if self.role.following().map(|following| following.primary) != primary {
            // Another primary is not the server that has taken over. No client is to be sent there meanwhile.
            self.failover.forget_moved();
        }
        let is_changed = self.follow_meanwhile(primary, now_ms);
        if let Some(left) = lacks_copy.filter(|_| is_changed && !is_to_follow) {
            self.log.warning(format_args!(
                "This server is a primary now, without a full copy of {}: it may have few or none of the keys there",
                left.primary
            ));
        }
        if is_changed && is_to_follow {
            blocking::unblock_all(self);
        }
        Ok(is_changed)
    }

    /// Follows the log in a bucket from now on, and returns the number of the role. Nothing of the log is applied yet.
    pub fn follow_bucket(&self, owner: Address, now_ms: i64) -> u64 {
        let _nothing_is_applied = self.role.hold_still();
        let number = self.role.follow_bucket(owner, now_ms);
        self.note_follows(true);
        blocking::unblock_all(self);
        number
    }

    /// Becomes the owner of the log in the bucket, after everything in it was applied. Changes by clients go there from
    /// now on, and due keys expire. `prepare` is called before the first change.
    pub fn own_bucket(&self, now_ms: i64, prepare: impl FnOnce()) {
        let _nothing_is_applied = self.role.hold_still();
        // Before the first change that is not of that log.
        self.leave_stream();
        prepare();
        if self.primary.take_over(now_ms) {
            self.feed.resume(Reader::Replicas);
        }
        self.role.follow(None, now_ms);
        // Last: keys whose time has come expire at once.
        self.note_follows(false);
    }

    /// Begins a failover; `false` if there is one already, or this server is a replica. Writes of clients are held back
    /// from now on. The role is held still.
    pub fn begin_failover(&self, plan: Plan) -> bool {
        if self.role.following().is_some() {
            return false;
        }
        let until_ms = plan.until_ms;
        self.pause.hold();
        let is_begun = self.failover.begin(plan);
        match is_begun {
            true => self.notify(handoff::failing_over(self, until_ms, unix_ms())),
            false => self.pause.let_go(),
        }
        is_begun
    }

    /// Follows a replica, which is to take over: it has everything, or is to do without. `false` if the failover with
    /// this number is over, or `is_as_thought` is not: that is asked while the role is held still.
    pub fn hand_over(
        &self,
        number: u64,
        target: &Address,
        is_as_thought: impl FnOnce() -> bool,
    ) -> bool {
        let _still = self.role.hold_still();
        if !self.failover.waits(number) || !is_as_thought() {
            return false;
        }
        let is_on = self.failover.hand_over(number);
        let is_following = self.role.hand_over(target.clone(), unix_ms());
        debug_assert!(is_on && is_following, "both change only while the role is held still");
        self.note_primary(Some(target));
        self.log.notice(format_args!("Failover: this server is a replica of {target} now"));
        blocking::unblock_all(self);
        true
    }

    /// The replica has taken over, to which the link with this number goes.
    pub fn failover_is_done(&self, number: u64) {
        if !self.failover.is_on() {
            return;
        }
        let _still = self.role.hold_still();
        // In this order: writes that go on are refused, or lead away.
        self.failover.note_moved(unix_ms());
        if !self.role.update(number, |following| following.hands_over = false) {
            self.failover.forget_moved();
            return;
        }
        self.end_failover();
        blocking::unblock_moved(self);
        self.log.notice("Failover: the other server is the primary now");
    }

    /// Undoes a failover, for this reason: this server is a primary, or is one again. `false` if there is none that can
    /// be undone. The role is held still.
    pub fn abort_failover(&self, why: &str) -> bool {
        let phase = self.failover.phase();
        match phase {
            Phase::Nothing => return false,
            // The bucket has everything, and another server may own it already: this one ends.
            Phase::HandsOver if self.shutdown().reason().is_some_and(Shutdown::leaves_bucket) => {
                return false;
            }
            Phase::WaitsForSync => {}
            Phase::HandsOver => {
                self.follow_meanwhile(None, unix_ms());
            }
        }
        self.log.warning(format_args!("Failover given up while {}: {why}", phase.name()));
        self.end_failover();
        true
    }

    fn end_failover(&self) {
        let now_ms = unix_ms();
        // MOVING is last, because a library may close the connection with it.
        self.notify(handoff::failed_over(self, now_ms));
        if let Some(moving) = handoff::moving(self, now_ms) {
            self.notify(moving);
        }
        self.failover.finish();
        self.settle_expiry();
        self.pause.let_go();
        self.tell_all(&Notice::Resume);
    }

    fn notify(&self, notification: Notification) {
        self.tell_all(&Notice::Maintenance(notification));
    }

    /// Keys expire, unless another server decides about that, or a failover or shutdown has stopped it. The role is
    /// held still.
    pub fn settle_expiry(&self) {
        let stays = self.failover.is_on() || self.shutdown().holds_changes();
        let stays = stays && self.keyspace.is_following();
        self.keyspace.set_following(stays || self.role.is_replica());
    }
}
