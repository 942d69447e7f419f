//! The parts of a log, and of the logs it branched off, that must be read to restore a moment.
//!
//! **Invariant**: pinned objects stay readable while the pin exists, also below the floor. A pin is valid if, after it
//! was put, the floor was not above it. It is also valid if another pin that was valid before was still there: if
//! pruning listed the pins too early to see the new pin, it saw the older one.

use crate::body::{BranchInfo, SnapshotInfo};
use crate::chain::Chain;
use crate::error::{Error, Result};
use crate::fields::hex;
use crate::group::{Group, read_floor, read_snapshot};
use crate::payload::load_payload;
use crate::pin::Pin;
use crate::record::{Hash, Id, Kind, log_name};
use crate::rules::Rule;
use crate::store::Store;

/// Start of the purpose of a branch's pin; the location of the branch follows.
pub(crate) const BRANCH: &str = "branch ";

/// Moment to restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The end of the log.
    Newest,
    /// The state after this record.
    Position(u64),
    /// The state after the last record written at or before this time, in milliseconds since 1970.
    Time(u64),
}

/// Part of one log that is read.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub snapshot: Option<SnapshotInfo>,
    /// The first record that is read.
    pub from: u64,
    pub to: u64,
    pub to_hash: Hash,
    pub to_wall: u64,
    pub cluster: Id,
}

impl Span {
    /// Returns the number of records that are read.
    pub fn records(&self) -> u64 {
        (self.to + 1).saturating_sub(self.from)
    }

    /// Returns the chain before the first of them.
    pub fn chain(&self) -> Chain {
        let hash = match self.from {
            1 => Some([0; 32]),
            _ => self.snapshot.as_ref().map(|info| info.position_hash),
        };
        Chain::after(self.cluster, self.from - 1, hash)
    }
}

/// A log that a branch continues, and the pin by which the branch holds it.
pub(crate) struct Parent {
    pub store: Store,
    held_by: Option<String>,
}

impl Parent {
    /// Pins a part of it, which may lie below the floor if the branch has a pin there. `None`: it was pruned.
    pub async fn pin(
        &self,
        span: &Span,
        until: u64,
        purpose: &str,
        nonce: Option<Id>,
    ) -> Result<Option<Pin>> {
        let nonce = nonce.unwrap_or_else(|| self.store.env.random());
        let held_by = self.held_by.as_deref();
        Pin::put(&self.store, span.from, until, purpose, nonce, held_by).await
    }

    /// Returns the error for a part that was pruned.
    pub fn lost(&self, span: &Span) -> Error {
        let url = self.store.url();
        Error::History(format!(
            "{url} was pruned, and no pin keeps what is needed from {}",
            span.from
        ))
    }
}

/// Returns the logs that a part of a log continues, the nearest first, and the span needed of each.
pub(crate) async fn parents(group: &Group, span: &Span) -> Result<Vec<(Parent, Span)>> {
    let mut parents = Vec::new();
    // Their pins in all logs that they continue have these ids in their names.
    let mut heirs = Vec::new();
    let mut next = (group.clone(), span.clone());
    while next.1.snapshot.is_none()
        && let Some(branch) = next.0.branch().await?
    {
        heirs.push(next.1.cluster);
        let mut group = Group::open(&next.0.store.sibling(&branch.parent)?).await?;
        let held = held_by(&group.store, &branch, &heirs).await?;
        // Below the floor, all pinned objects are there.
        if let Some(pin) = &held {
            group.end.floor = group.end.floor.min(pin.number);
        }
        let span = plan(&group, branch.position).await?;
        if span.cluster != branch.cluster || span.to_hash != branch.hash {
            let reason = format!("{} is not the log that it branched off", branch.parent);
            return Err(Error::damaged(log_name(1), reason));
        }
        let held_by = held.map(|pin| pin.name);
        parents.push((Parent { store: group.store.clone(), held_by }, span.clone()));
        next = (group, span);
    }
    Ok(parents)
}

/// Returns the lowest pin in a parent that belongs to a branch, or to one of its own branches.
async fn held_by(parent: &Store, branch: &BranchInfo, heirs: &[Id]) -> Result<Option<Pin>> {
    let pins = Pin::list(parent).await?;
    let is_theirs = |pin: &Pin| {
        pin.until == 0
            && (pin.name == branch.pin || heirs.iter().any(|heir| pin.name.ends_with(&hex(heir))))
    };
    Ok(pins.into_iter().find(is_theirs))
}

/// Pins a moment for a branch with the id `child`, here and in all logs that this one continues. Returns the payload
/// of the branch's first record, and the pins with their stores.
pub(crate) async fn pin_branch(
    group: &Group,
    moment: Moment,
    url: &str,
    child: Id,
) -> Result<(BranchInfo, Vec<(Store, Pin)>)> {
    let purpose = format!("{BRANCH}{url}");
    let (group, span, pin) = pinned(group, moment, 0, &purpose).await?;
    let pin = pin?;
    let info = BranchInfo {
        parent: group.store.url().into(),
        cluster: span.cluster,
        position: span.to,
        hash: span.to_hash,
        pin: pin.name.clone(),
    };
    let mut pins = vec![(group.store.clone(), pin)];
    match pin_parents(&group, &span, &purpose, child, &mut pins).await {
        Ok(()) => Ok((info, pins)),
        Err(error) => {
            unpin(&pins).await?;
            Err(error)
        }
    }
}

async fn pin_parents(
    group: &Group,
    span: &Span,
    purpose: &str,
    child: Id,
    pins: &mut Vec<(Store, Pin)>,
) -> Result<()> {
    if !group.store.keeps(Rule::ParentsPinned) {
        return Ok(());
    }
    for (parent, part) in parents(group, span).await? {
        let pin = parent.pin(&part, 0, purpose, Some(child)).await?;
        pins.push((parent.store.clone(), pin.ok_or_else(|| parent.lost(&part))?));
    }
    Ok(())
}

pub(crate) async fn unpin(pins: &[(Store, Pin)]) -> Result<()> {
    for (store, pin) in pins {
        pin.remove(store).await?;
    }
    Ok(())
}

/// Finds the span that a moment needs of a log, and pins it. The inner error says that the store refused the pin.
pub(crate) async fn pinned(
    group: &Group,
    moment: Moment,
    until: u64,
    purpose: &str,
) -> Result<(Group, Span, Result<Pin>)> {
    let mut group = group.clone();
    loop {
        let planned = async {
            let target = find_moment(&group, moment).await?;
            plan(&group, target).await
        };
        let span = match planned.await {
            // A group that was opened a while ago may have been pruned past its end.
            Err(Error::Missing { .. }) if read_floor(&group.store).await? > group.end.floor => {
                group = Group::open(&group.store).await?;
                continue;
            }
            planned => planned?,
        };
        let nonce = group.store.env.random();
        match Pin::put(&group.store, span.from, until, purpose, nonce, None).await {
            Ok(Some(pin)) => return Ok((group, span, Ok(pin))),
            // The log was pruned since the group was opened: the newest snapshot is a later one by now.
            Ok(None) => group = Group::open(&group.store).await?,
            Err(error) if error.is_refusal() => return Ok((group, span, Err(error))),
            Err(error) => return Err(error),
        }
    }
}

/// Returns the number of the record for a moment.
async fn find_moment(group: &Group, moment: Moment) -> Result<u64> {
    let end = group.end();
    let time = match moment {
        Moment::Newest => return Ok(end.number),
        Moment::Position(number) if number > end.number => {
            return Err(Error::History(format!("the log ends at {}, before {number}", end.number)));
        }
        Moment::Position(number) => return Ok(number),
        Moment::Time(time) => time,
    };
    // Times in the log never go back, which makes binary search possible.
    let (mut low, mut high) = (end.floor, end.number + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let record = group.peek(middle).await?;
        if record.header.wall <= time { low = middle + 1 } else { high = middle }
    }
    if low == end.floor && low <= end.number && end.floor > 1 {
        return Err(Error::History(format!(
            "the log begins at {}, after that time: earlier records were pruned",
            end.floor
        )));
    }
    Ok(low - 1)
}

/// Returns the span from which a position is restored.
async fn plan(group: &Group, to: u64) -> Result<Span> {
    let end = group.end();
    if to == 0 && end.floor <= 1 {
        if let Some(branch) = group.branch().await? {
            return Err(Error::History(format!(
                "the log begins as a branch: for what was before, restore from {}, up to {}",
                branch.parent, branch.position
            )));
        }
        let (cluster, to_hash) = (end.cluster, [0; 32]);
        return Ok(Span { snapshot: None, from: 1, to, to_hash, to_wall: 0, cluster });
    }
    let history = |floor: u64| {
        Error::History(format!(
            "{to} cannot be restored: the log begins at {floor}, and no snapshot before that is left"
        ))
    };
    if to < end.floor {
        return Err(history(end.floor));
    }
    let record = group.peek(to).await?;
    let header = &record.header;
    let snapshot = match header.kind {
        Kind::Snapshot => {
            let payload = load_payload(&group.store, &record).await?;
            Some(SnapshotInfo::decode(header, &payload)?)
        }
        _ if header.snapshot < end.floor => None,
        _ => read_snapshot(&group.store, header).await?,
    };
    #[cfg(test)]
    let snapshot = match group.store.keeps(crate::rules::Rule::SnapshotRecord) {
        true => snapshot,
        false => crate::snapshot::newest_folder(&group.store, to - 1).await?,
    };
    let from = snapshot.as_ref().map_or(1, |snapshot| snapshot.position + 1);
    if from < end.floor {
        return Err(history(end.floor));
    }
    let (to_hash, to_wall) = (record.hash, header.wall);
    Ok(Span { snapshot, from, to, to_hash, to_wall, cluster: header.cluster })
}
