//! What the coordinator of one attempt over several workers knows, and how it calls them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tidegate_apply::phases::PhaseMeans;
use tidegate_apply::work::SourceInput;
use tidegate_apply::{Limits, Manifest, Work};
use tidegate_change::{Code, Error, Result};
use tokio::runtime::Handle;

use super::RemoteParts;
use super::sharing::owners_count;
use crate::metadata::{NodeId, TableId};
use crate::placement::{Placement, Seat, owners, rank};
use crate::worker::{CallError, Called, TableAt, WorkToken, WorkerLink};

/// Workers that an attempt may lose before it gives up.
const LOSSES_MAX: usize = 64;
/// Parts of the memory of a batch that this node reads with, and composes with.
const PHASES_AT_ONCE: u64 = 2;

/// What ranks workers for batches that are worth only some of them, beside the slots of buckets.
const WHOLE_TABLE: u32 = u32::MAX;

/// An attempt on its way over several workers.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    pub(super) parts: &'a RemoteParts,
    pub(super) work: &'a Work,
    pub(super) table: Arc<TableAt>,
    pub(super) means: PhaseMeans,
    secret: u64,
    /// Epoch of the newest placement that the attempt has seen.
    epoch: AtomicU64,
    placement: Mutex<Placement>,
    /// Workers that were lost; none of them is asked again.
    lost: Mutex<Vec<Seat>>,
    /// Workers that may hold something.
    asked: Mutex<BTreeSet<Seat>>,
    next_part: AtomicU32,
    /// 0 is the owner that composes.
    next_owner: AtomicU32,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(parts: &'a RemoteParts, work: &'a Work, placement: Placement) -> Self {
        let names = work.sources.iter().map(|source| source.name.as_str());
        let table = TableAt {
            table: TableId(work.snapshot.metadata.id.clone()),
            location: work.location.clone(),
            version: work.snapshot.version,
            now_ms: work.now_ms,
            sources: names.map(Arc::from).collect(),
        };
        let limits = Limits {
            memory_bytes: work.limits.memory_bytes / PHASES_AT_ONCE,
            ..work.limits.clone()
        };
        Self {
            parts,
            work,
            table: Arc::new(table),
            means: PhaseMeans {
                limits,
                observer: work.observer.clone(),
            },
            secret: parts.random.next_u64(),
            epoch: AtomicU64::new(placement.epoch),
            placement: Mutex::new(placement),
            lost: Mutex::default(),
            asked: Mutex::default(),
            next_part: AtomicU32::new(0),
            next_owner: AtomicU32::new(1),
        }
    }

    /// Runs the batch.
    pub(super) async fn run(&self) -> Result<Manifest> {
        let read = self.read_all().await?;
        Box::pin(self.merge_and_compose(read)).await
    }

    /// Tells all workers that the attempt is over.
    pub(super) async fn end(&self) {
        let mut calls: FuturesUnordered<_> = self.abandoning().into_iter().collect();
        while calls.next().await.is_some() {}
    }

    /// Calls that let workers drop what they hold; each worker is told once.
    fn abandoning(&self) -> Vec<impl Future<Output = ()> + Send + use<>> {
        let asked = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *asked)
        };
        let (lost, token) = (self.lost_seats(), self.token());
        let links = asked.iter().filter(|seat| !lost.contains(seat));
        let links = links.filter_map(|seat| self.link(seat).ok());
        links
            .map(|link| async move {
                // What stays there goes when nobody asks for it any more.
                let _ = link.abandon(token).await;
            })
            .collect()
    }

    pub(super) fn token(&self) -> WorkToken {
        WorkToken {
            attempt: self.work.attempt,
            secret: self.secret,
            epoch: self.epoch.load(Ordering::SeqCst),
        }
    }

    pub(super) fn next_part(&self) -> u32 {
        self.next_part.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn next_owner(&self) -> u32 {
        self.next_owner.fetch_add(1, Ordering::Relaxed)
    }

    /// This node, which reads what no other node reaches.
    pub(super) fn here(&self) -> Seat {
        let placement = self
            .placement
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let node = self.parts.local.node();
        let placed = placement.workers.get(&node);
        Seat {
            node,
            incarnation: self.parts.local.incarnation(),
            endpoint: placed
                .map_or_else(|| self.parts.endpoint.clone(), |own| own.endpoint.clone()),
        }
    }

    pub(super) fn is_here(&self, seat: &Seat) -> bool {
        let local = &self.parts.local;
        seat.node == local.node() && seat.incarnation == local.incarnation()
    }

    /// The workers that may be asked.
    pub(super) fn seats(&self) -> Result<Vec<Seat>> {
        let placement = self
            .placement
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut seats = placement.seats();
        drop(placement);
        let lost = self.lost_seats();
        seats.retain(|seat| !lost.contains(seat));
        if seats.is_empty() {
            let message = format!("attempt {}: all its workers are lost", self.work.attempt);
            return Err(Error::new(Code::Unavailable, message)
                .with_hint("submit the batch again when workers are back"));
        }
        Ok(seats)
    }

    /// So many of the workers that may be asked: those that the table's id ranks first, so that small batches
    /// of many tables go to different ones.
    pub(super) fn some_seats(&self, count: usize) -> Result<Vec<Seat>> {
        let mut seats = self.seats()?;
        if count < seats.len() {
            let table = &self.table.table;
            seats.sort_by_cached_key(|seat| rank(table, WHOLE_TABLE, seat.node));
            seats.truncate(count);
        }
        Ok(seats)
    }

    /// The owners of some buckets, so many at most.
    pub(super) fn owners_of(
        &self,
        wanted: &[Range<u32>],
        owners_max: usize,
    ) -> Result<Vec<(Seat, Vec<Range<u32>>)>> {
        let seats = self.some_seats(owners_max)?.into_iter();
        let seats: BTreeMap<NodeId, Seat> = seats.map(|seat| (seat.node, seat)).collect();
        let workers = seats.keys().copied().collect();
        let owned = owners(&self.table.table, self.buckets(), wanted, &workers);
        let seated = owned
            .into_iter()
            .filter_map(|(node, ranges)| Some((seats.get(&node)?.clone(), ranges)));
        Ok(seated.collect())
    }

    /// Buckets of the table.
    pub(super) fn buckets(&self) -> u32 {
        self.work.resolved.spec.buckets.count()
    }

    /// Workers that the batch is worth.
    pub(super) fn workers_max(&self) -> Result<usize> {
        let workers = self.seats()?.len();
        Ok(workers_worth(self.work, self.parts.owner_bytes, workers))
    }

    fn lost_seats(&self) -> Vec<Seat> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.clone()
    }

    /// Notes a lost worker.
    ///
    /// # Errors
    /// When too many were lost, or this node itself does not do what it must.
    pub(super) fn lose(&self, seat: &Seat, error: Error) -> Result<()> {
        let attempt = self.work.attempt;
        tracing::warn!(%attempt, node = %seat.node, %error, "a worker of a batch is lost");
        if self.is_here(seat) {
            return Err(error);
        }
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if !lost.contains(seat) {
            lost.push(seat.clone());
        }
        if lost.len() > LOSSES_MAX {
            return Err(error.context("too many workers of the batch were lost"));
        }
        Ok(())
    }

    fn link(&self, seat: &Seat) -> Called<Arc<dyn WorkerLink>> {
        if self.is_here(seat) {
            return Ok(Arc::clone(&self.parts.local) as Arc<dyn WorkerLink>);
        }
        self.parts.links.link(seat)
    }

    /// Waits until a worker has left the placement.
    pub(super) async fn left(&self, seat: &Seat) {
        if self.is_here(seat) {
            return std::future::pending().await;
        }
        let mut epoch = self.epoch.load(Ordering::SeqCst);
        loop {
            let placement = self.parts.placements.newer(epoch).await;
            if !placement.holds(seat) {
                return;
            }
            epoch = placement.epoch;
        }
    }

    /// Takes over a newer placement; says whether the worker is still there.
    async fn refresh(&self, seat: &Seat, known: u64) -> Result<bool> {
        let mut newest = self.parts.placements.current().await?;
        if newest.epoch <= known {
            // The worker has heard of one that this node has still to see.
            newest = self.parts.placements.newer(known).await;
        }
        let is_there = newest.holds(seat) || self.is_here(seat);
        self.epoch.fetch_max(newest.epoch, Ordering::SeqCst);
        let mut placement = self
            .placement
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if newest.epoch > placement.epoch {
            *placement = newest;
        }
        Ok(is_there)
    }

    /// Calls a worker until it answers, is lost or leaves; work that is refused for its epoch is asked for
    /// again with the newest one.
    pub(super) async fn call<T, F>(
        &self,
        seat: &Seat,
        ask: impl Fn(Arc<dyn WorkerLink>, WorkToken) -> F,
    ) -> Called<T>
    where
        F: Future<Output = Called<T>>,
    {
        {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.insert(seat.clone());
        }
        loop {
            let token = self.token();
            let link = self.link(seat)?;
            let answer = tokio::select! {
                answer = ask(link, token) => answer,
                () = self.left(seat) => {
                    let message = format!("worker {} has left the placement", seat.node);
                    Err(CallError::Lost(Error::new(Code::Unavailable, message)))
                }
            };
            let Err(CallError::Stale(error)) = answer else {
                return answer;
            };
            if !self.refresh(seat, token.epoch).await? {
                return Err(CallError::Lost(error));
            }
        }
    }
}

impl Drop for Attempt<'_> {
    /// An attempt that is cancelled tells its workers too, where there is somebody to do it.
    fn drop(&mut self) {
        let calls = self.abandoning();
        let (false, Ok(threads)) = (calls.is_empty(), Handle::try_current()) else {
            return;
        };
        for call in calls {
            threads.spawn(call);
        }
    }
}

/// How many of so many workers a batch is worth.
pub(super) fn workers_worth(work: &Work, owner_bytes: u64, workers: usize) -> usize {
    let bytes = work.sources.iter().map(|source| bytes_of(&source.input));
    owners_count(bytes.sum(), owner_bytes, workers)
}

/// Bytes of a source, as it is stored; 0 where it does not tell.
pub(super) fn bytes_of(input: &SourceInput) -> u64 {
    match input {
        SourceInput::Bytes(bytes) => bytes.len() as u64,
        SourceInput::Path(path) | SourceInput::Shared(path) => {
            std::fs::metadata(path).map_or(0, |metadata| metadata.len())
        }
    }
}
