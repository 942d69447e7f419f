//! Operations on a whole log: lists, verification, branches.

use futures_util::StreamExt;

use crate::append::{Outcome, Progress, append};
use crate::body::{BranchInfo, ClaimInfo, SnapshotInfo, split_batches};
use crate::error::{Error, Result};
use crate::fields::hex;
use crate::group::{Group, read_claim, read_snapshot};
use crate::payload::pack;
use crate::pin::Pin;
use crate::probe::probe;
use crate::record::{Header, Id, Kind};
use crate::restore::{check_last, parts, pin_until, records};
use crate::snapshot::Manifest;
use crate::span::{BRANCH, Moment, Span, parents, pin_branch, unpin};
use crate::store::Store;

/// The moments that can be restored from a log, newest first.
#[derive(Debug, Clone)]
pub struct History {
    /// Valid snapshots.
    pub snapshots: Vec<SnapshotInfo>,
    /// The CLAIMs, back to the first.
    pub claims: Vec<ClaimInfo>,
    /// The pins, in order of their numbers.
    pub pins: Vec<Pin>,
    /// The log that this log continues, if it still needs it.
    pub branch: Option<BranchInfo>,
}

/// Progress of [`verify`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verified {
    /// Records of the log.
    pub records: u64,
    /// Number of records in total.
    pub records_total: u64,
    /// Snapshots, with all of their parts.
    pub snapshots: u64,
    /// Bytes of payloads and parts before compression.
    pub bytes: u64,
    /// Bytes of snapshots before compression; the total is known when all records have been read.
    pub snapshot_bytes: u64,
    /// Bytes of all snapshots before compression.
    pub snapshot_bytes_total: u64,
}

/// Lists the content of a log, by its CLAIMs and SNAPSHOT records.
///
/// # Errors
///
/// The store's, and those of damaged records.
pub async fn list(group: &Group) -> Result<History> {
    let (store, end) = (&group.store, &group.end);
    let mut snapshots = Vec::new();
    let mut next = end.snapshot.clone();
    while let Some(snapshot) = next {
        let record = group.peek(snapshot.record).await?;
        snapshots.push(snapshot);
        next = match record.header.snapshot >= end.floor {
            true => read_snapshot(store, &record.header).await?,
            false => None,
        };
    }
    // A snapshot at a lower position has no records to continue with.
    snapshots.retain(|snapshot| snapshot.position + 1 >= end.floor);
    let mut claims = Vec::new();
    let mut next = end.claim.clone();
    while let Some(claim) = next {
        let record = group.peek(claim.number).await?;
        claims.push(claim);
        next = read_claim(store, &record.header).await?;
    }
    let (pins, branch) = (Pin::list(store).await?, group.branch().await?);
    Ok(History { snapshots, claims, pins, branch })
}

/// Reads and checks everything from the floor to the end, all snapshots, the objects below the floor that branches
/// still need, and, for a branch, what it needs of its parents. All of it is pinned meanwhile, if the store permits. A
/// branch that cannot be opened is left out, because its needs are unknown.
///
/// # Errors
///
/// The first damage found; the store's.
pub async fn verify(group: &Group, report: impl FnMut(Verified)) -> Result<Verified> {
    if group.end.number == 0 {
        return Ok(Verified::default());
    }
    let (mut group, pin) = pin_all(group).await?;
    group.end.floor = lowest_needed(&group).await?;
    let mut verifier = Verifier { done: Verified::default(), report };
    let verified = verifier.all(&group).await;
    if let Some(pin) = pin {
        let removed = pin.remove(&group.store).await;
        verified?;
        removed?;
    } else {
        verified?;
    }
    Ok(verifier.done)
}

/// Pins a log from its floor on. The floor may have moved by then.
async fn pin_all(group: &Group) -> Result<(Group, Option<Pin>)> {
    let mut group = group.clone();
    loop {
        let (store, floor) = (&group.store, group.end.floor);
        let (until, nonce) = (pin_until(store), store.env.random());
        match Pin::put(store, floor, until, "verify", nonce, None).await {
            Ok(Some(pin)) => return Ok((group, Some(pin))),
            Ok(None) => group = Group::open(store).await?,
            Err(error) if error.is_refusal() => return Ok((group, None)),
            Err(error) => return Err(error),
        }
    }
}

/// Returns the lowest number that this log or a branch needs: nothing from there on is deleted.
async fn lowest_needed(group: &Group) -> Result<u64> {
    let mut lowest = group.end.floor;
    for pin in Pin::list(&group.store).await? {
        if pin.until == 0 && pin.number < lowest && is_of_branch(&group.store, &pin).await {
            lowest = pin.number;
        }
    }
    Ok(lowest)
}

/// True for the pin of a branch that exists and needs it. An abandoned branch may have left its pin behind.
async fn is_of_branch(store: &Store, pin: &Pin) -> bool {
    let open = async {
        let url = pin.purpose.strip_prefix(BRANCH)?;
        let child = Group::open(&store.sibling(url).ok()?).await.ok()?;
        let info = child.branch().await.ok()??;
        Some(info.pin == pin.name || pin.name.ends_with(&hex(&child.end.cluster)))
    };
    open.await.unwrap_or(false)
}

struct Verifier<R> {
    done: Verified,
    report: R,
}

impl<R: FnMut(Verified)> Verifier<R> {
    async fn all(&mut self, group: &Group) -> Result<()> {
        let end = &group.end;
        let own = Span {
            snapshot: None,
            from: end.floor,
            to: end.number,
            to_hash: end.hash,
            to_wall: end.wall,
            cluster: end.cluster,
        };
        let parents = match parents(group, &own).await {
            // A branch with a snapshot of its own may have removed its pin.
            Err(Error::History(_)) if end.snapshot.is_some() => Vec::new(),
            parents => parents?,
        };
        self.done.records_total =
            parents.iter().map(|(_, span)| span).chain([&own]).map(Span::records).sum();
        let mut snapshots = Vec::new();
        for (parent, span) in &parents {
            self.records(&parent.store, span).await?;
            snapshots.extend(
                span.snapshot.clone().map(|info| (parent.store.clone(), info, span.cluster)),
            );
        }
        let counting = self.records(&group.store, &own).await?;
        let counting = counting.into_iter().filter(|info| info.position + 1 >= end.floor);
        snapshots.extend(counting.map(|info| (group.store.clone(), info, end.cluster)));
        let lens = snapshots.iter().map(|(_, info, _)| info.len);
        self.done.snapshot_bytes_total = lens.fold(0, u64::saturating_add);
        for (store, info, cluster) in snapshots {
            self.snapshot(&store, &info, cluster).await?;
        }
        Ok(())
    }

    /// Reads the records of a span. Returns the snapshots that they make valid.
    async fn records(&mut self, store: &Store, span: &Span) -> Result<Vec<SnapshotInfo>> {
        let mut snapshots = Vec::new();
        if span.records() == 0 {
            return Ok(snapshots);
        }
        let mut chain = span.chain();
        let mut records = records(store.clone(), span.cluster, span.from, span.to);
        while let Some(next) = records.next().await {
            let (record, payload) = next?;
            chain.follow(&record, &payload)?;
            match record.header.kind {
                Kind::Snapshot => snapshots.push(SnapshotInfo::decode(&record.header, &payload)?),
                Kind::Batch => split_batches(record.header.number, &payload).map(drop)?,
                _ => {}
            }
            self.done.records += 1;
            self.done.bytes += payload.len() as u64;
            (self.report)(self.done);
        }
        check_last(&chain, span.to, span.to_hash)?;
        Ok(snapshots)
    }

    async fn snapshot(&mut self, store: &Store, info: &SnapshotInfo, cluster: Id) -> Result<()> {
        let manifest = Manifest::load(store, info, cluster).await?;
        let mut parts = parts(store.clone(), info, manifest);
        while let Some(part) = parts.next().await {
            let len = part?.len() as u64;
            self.done.bytes += len;
            self.done.snapshot_bytes += len;
            (self.report)(self.done);
        }
        self.done.snapshots += 1;
        Ok(())
    }
}

/// Turns an empty store into a log that continues `parent` from a moment. Nothing is copied. The parent gets a pin,
/// and so do the logs that the parent itself continues from there. The pins stay until they are removed.
///
/// # Errors
///
/// [`Error::Invalid`] if there is a log in `child` already; as for [`crate::Restore::at`].
pub async fn branch(parent: &Group, moment: Moment, child: &Store) -> Result<BranchInfo> {
    if Group::open(child).await?.end.number > 0 {
        return Err(Error::Invalid(format!("there is a log in {} already", child.url())));
    }
    // An append is retried forever: without the right to write, it would never end.
    probe(child).await?;
    let cluster = child.env.random();
    let (info, pins) = pin_branch(parent, moment, child.url(), cluster).await?;
    let payload = info.encode();
    let (encoding, stored) = pack(&payload);
    let header = Header {
        kind: Kind::Branch,
        encoding,
        cluster,
        number: 1,
        epoch: 0,
        node: [0; 16],
        nonce: child.env.random(),
        wall: child.env.wall(),
        claim: 0,
        snapshot: 0,
        before: [0; 32],
        len: payload.len() as u64,
    };
    let mut object = header.encode(&stored);
    match append(child, 1, None, &mut object, &Progress::default()).await? {
        Outcome::Committed(_) => Ok(info),
        Outcome::Deposed { .. } => {
            unpin(&pins).await?;
            Err(Error::Invalid(format!("another process has begun a log in {}", child.url())))
        }
    }
}
