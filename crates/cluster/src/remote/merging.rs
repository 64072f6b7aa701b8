//! Buckets to owners: each fetches its events from the readers and merges them; this node stages what it
//! hands out.

use std::ops::Range;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tidegate_apply::BatchPhase;
use tidegate_apply::phases::{
    BatchTable, FeedOutline, MergePlan, PartBatch, PartKind, PartStage, PartialManifest, ReadSpec,
};
use tidegate_change::Result;

use super::attempt::Attempt;
use super::board::Board;
use super::reading::Reading;
use crate::placement::Seat;
use crate::worker::{CallError, Called, Fetch, Fetched, MergeOrder, MergeOutcome, ReaderAt};

/// What all who merge agree on.
#[derive(Debug)]
pub(super) struct Merging<'a> {
    /// The table, as the composing owner.
    pub table: &'a BatchTable,
    pub plan: &'a Arc<MergePlan>,
    /// How lost sources are read again.
    pub spec: &'a ReadSpec,
}

/// An owner that is done, with its rows.
#[derive(Debug)]
pub(super) struct Owner {
    pub task: OwnerTask,
    pub outline: FeedOutline,
    pub stage: PartStage,
    /// What it wrote, once it has finished.
    pub manifest: Option<PartialManifest>,
}

/// Buckets for an owner.
#[derive(Clone, Debug)]
pub(super) struct OwnerTask {
    pub seat: Seat,
    /// Its number: what it writes has names of its own.
    pub owner: u32,
    pub buckets: Vec<Range<u32>>,
    /// Readers that it could not fetch from, though they may be there.
    pub broken: Vec<u32>,
}

/// What became of an owner's task.
enum Turn {
    Done(Box<Owner>),
    ReaderLost(OwnerTask, u32),
    Lost(OwnerTask, CallError),
}

impl Attempt<'_> {
    /// Owners for some buckets.
    pub(super) fn owner_tasks(
        &self,
        buckets: &[Range<u32>],
        owners_max: usize,
    ) -> Result<Vec<OwnerTask>> {
        let owners = self.owners_of(buckets, owners_max)?.into_iter();
        Ok(owners
            .map(|(seat, buckets)| OwnerTask {
                seat,
                owner: self.next_owner(),
                buckets,
                broken: Vec::new(),
            })
            .collect())
    }

    /// Owners for what a lost one owned; one for all of it where values are carried (R-K6).
    pub(super) fn tasks_again(
        &self,
        merging: &Merging<'_>,
        lost: &OwnerTask,
    ) -> Result<Vec<OwnerTask>> {
        let owners_max = match merging.plan.settled.carries {
            true => 1,
            false => usize::MAX,
        };
        self.owner_tasks(&lost.buckets, owners_max)
    }

    /// Merges until all tasks are done, by whomever.
    pub(super) async fn merge(
        &self,
        merging: &Merging<'_>,
        readings: &mut Vec<Reading>,
        tasks: Vec<OwnerTask>,
    ) -> Result<Vec<Owner>> {
        let counts = &merging.plan.settled.counts;
        let observer = self.work.observer.as_ref();
        let board = Board::new(observer, BatchPhase::Merging, counts.events, self.buckets());
        let mut calls = FuturesUnordered::new();
        for task in tasks {
            calls.push(self.own(merging, readers(readings), task, &board));
        }
        let mut owners = Vec::new();
        while let Some(turn) = calls.next().await {
            match turn {
                Turn::Done(owner) => owners.push(*owner),
                Turn::Lost(_, CallError::Failed(error)) => return Err(error),
                Turn::Lost(task, CallError::Lost(error) | CallError::Stale(error)) => {
                    self.lose(&task.seat, error)?;
                    // Only what it owned is merged again.
                    for task in self.tasks_again(merging, &task)? {
                        calls.push(self.own(merging, readers(readings), task, &board));
                    }
                }
                Turn::ReaderLost(mut task, part) => {
                    if task.broken.contains(&part) {
                        self.read_again(merging, readings, part).await?;
                    } else {
                        // The connection may have broken, and not the reader.
                        task.broken.push(part);
                    }
                    task.owner = self.next_owner();
                    calls.push(self.own(merging, readers(readings), task, &board));
                }
            }
        }
        Ok(owners)
    }

    /// Reads the sources of a lost reader again, unless that was done.
    pub(super) async fn read_again(
        &self,
        merging: &Merging<'_>,
        readings: &mut Vec<Reading>,
        part: u32,
    ) -> Result<()> {
        let Some(at) = readings.iter().position(|own| own.at.part == part) else {
            return Ok(());
        };
        let lost = readings.swap_remove(at);
        let error = CallError::not_held(format!("part {part}")).into_error();
        self.lose(&lost.at.seat, error)?;
        let again = self.read_round(merging.spec, &lost.sources).await?;
        readings.extend(again.into_iter().map(|reading| Reading {
            is_staged: lost.is_staged,
            ..reading
        }));
        Ok(())
    }

    /// One owner: merges, and hands its rows out.
    async fn own(
        &self,
        merging: &Merging<'_>,
        readers: Vec<ReaderAt>,
        task: OwnerTask,
        board: &Arc<Board>,
    ) -> Turn {
        let watcher = board.line();
        let outcome = self.call(&task.seat, |link, token| {
            let order = MergeOrder {
                token,
                table: Arc::clone(&self.table),
                plan: Arc::clone(merging.plan),
                owner: task.owner,
                buckets: task.buckets.clone(),
                readers: readers.clone(),
            };
            let watcher = Some(Arc::clone(&watcher));
            async move { link.merge(order, watcher).await }
        });
        let outline = match outcome.await {
            Ok(MergeOutcome::Merged(outline)) => outline,
            Ok(MergeOutcome::ReaderLost { part }) => return Turn::ReaderLost(task, part),
            Err(error) => return Turn::Lost(task, error),
        };
        let what = PartKind::ALL.map(|kind| {
            let owner = task.owner;
            (kind, Fetched::Merged { owner, kind })
        });
        match self.stage(merging.table, &task.seat, &what).await {
            Ok(stage) => Turn::Done(Box::new(Owner {
                task,
                outline,
                stage,
                manifest: None,
            })),
            Err(error) => Turn::Lost(task, error),
        }
    }

    /// Fetches rows of a worker, all of them or none.
    pub(super) async fn stage(
        &self,
        table: &BatchTable,
        seat: &Seat,
        what: &[(PartKind, Fetched)],
    ) -> Called<PartStage> {
        let mut stage = PartStage::new(table, &self.means);
        for (kind, what) in what {
            let fetch = |token| Fetch {
                token,
                what: what.clone(),
            };
            let opened = self.call(seat, |link, token| {
                let fetch = fetch(token);
                async move { link.fetch(fetch).await }
            });
            let mut rows = opened.await?;
            loop {
                let next = tokio::select! {
                    next = rows.next() => next,
                    () = self.left(seat) => Some(Err(CallError::not_held("a worker that left"))),
                };
                match next {
                    Some(rows) => stage.push(PartBatch {
                        kind: *kind,
                        rows: rows?,
                    })?,
                    None => break,
                }
            }
        }
        Ok(stage)
    }
}

fn readers(readings: &[Reading]) -> Vec<ReaderAt> {
    readings.iter().map(|reading| reading.at.clone()).collect()
}
