//! Sources to readers, round by round, until the columns of the batch are known.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tidegate_apply::BatchPhase;
use tidegate_apply::phases::{ReadSpec, ReadSummary, Settled, Settlement, settle};
use tidegate_apply::work::SourceInput;
use tidegate_change::{Code, Error, Result};

use super::attempt::{Attempt, bytes_of};
use super::board::Board;
use super::sharing::shared_out;
use crate::placement::Seat;
use crate::worker::{CallError, Called, ReadOrder, ReaderAt};

/// What reading came to, and who holds it.
#[derive(Debug)]
pub(super) struct ReadEvents {
    /// How the sources were read.
    pub spec: ReadSpec,
    pub settled: Settled,
    pub readings: Vec<Reading>,
}

/// Some sources that a worker has read and holds.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub at: ReaderAt,
    pub sources: Vec<u32>,
    /// Whether what it sets apart is staged already, here or by whoever read the sources before.
    pub is_staged: bool,
    /// Taken once all sources of a round are read.
    pub summaries: Vec<ReadSummary>,
}

impl Attempt<'_> {
    /// Reads all sources until their columns are known.
    pub(super) async fn read_all(&self) -> Result<ReadEvents> {
        let all: Vec<u32> = (0u32..)
            .zip(&self.work.sources)
            .map(|(number, _)| number)
            .collect();
        let mut spec = ReadSpec::new(self.work.resolved.clone(), &self.work.snapshot);
        loop {
            let mut readings = self.read_round(&spec, &all).await?;
            let summaries = readings
                .iter_mut()
                .flat_map(|reading| std::mem::take(&mut reading.summaries));
            match settle(&spec, summaries.collect())? {
                Settlement::ReadAgain(next) => spec = *next,
                Settlement::Settled(settled) => {
                    return Ok(ReadEvents {
                        spec,
                        settled: *settled,
                        readings,
                    });
                }
            }
        }
    }

    /// Reads some sources once; those of a lost worker are read by others.
    pub(super) async fn read_round(
        &self,
        spec: &ReadSpec,
        sources: &[u32],
    ) -> Result<Vec<Reading>> {
        let board = Board::new(self.work.observer.as_ref(), BatchPhase::Reading, 0, 0);
        let mut calls = FuturesUnordered::new();
        for (seat, share) in self.shares(sources)? {
            calls.push(self.read_at(spec, seat, share, &board));
        }
        let mut readings = Vec::new();
        while let Some((seat, share, read)) = calls.next().await {
            match read {
                Ok(reading) => readings.push(reading),
                Err(CallError::Lost(error) | CallError::Stale(error)) => {
                    self.lose(&seat, error)?;
                    for (seat, share) in self.shares(&share)? {
                        calls.push(self.read_at(spec, seat, share, &board));
                    }
                }
                Err(CallError::Failed(error)) if is_unreachable(&error) && !self.is_here(&seat) => {
                    // That worker does not reach the files; this node named them.
                    tracing::info!(node = %seat.node, %error, "sources are read by the coordinator");
                    calls.push(self.read_at(spec, self.here(), share, &board));
                }
                Err(CallError::Failed(error)) => return Err(error),
            }
        }
        Ok(readings)
    }

    /// Who reads what: this node what no other one reaches.
    fn shares(&self, sources: &[u32]) -> Result<Vec<(Seat, Vec<u32>)>> {
        let (mut here, mut anywhere) = (Vec::new(), Vec::new());
        for number in sources {
            let Some(source) = self.work.sources.get(*number as usize) else {
                return Err(Error::internal("a source that is not there"));
            };
            match &source.input {
                SourceInput::Shared(_) => anywhere.push((*number, bytes_of(&source.input))),
                SourceInput::Path(_) | SourceInput::Bytes(_) => here.push(*number),
            }
        }
        let mut shares: Vec<_> = match anywhere.is_empty() {
            true => Vec::new(),
            false => {
                let seats = self.some_seats(self.workers_max()?)?;
                shared_out(&anywhere, &seats).into_iter().collect()
            }
        };
        if !here.is_empty() {
            shares.push((self.here(), here));
        }
        Ok(shares)
    }

    async fn read_at(
        &self,
        spec: &ReadSpec,
        seat: Seat,
        share: Vec<u32>,
        board: &Arc<Board>,
    ) -> (Seat, Vec<u32>, Called<Reading>) {
        let part = self.next_part();
        let sources = share.iter().filter_map(|number| {
            let source = self.work.sources.get(*number as usize)?;
            Some((*number, source.clone()))
        });
        let sources: Vec<_> = sources.collect();
        let summaries = self.call(&seat, |link, token| {
            let order = ReadOrder {
                token,
                spec: spec.clone(),
                part,
                sources: sources.clone(),
            };
            let watcher = Some(board.line());
            async move { link.read(order, watcher).await }
        });
        let reading = summaries.await.map(|summaries| Reading {
            at: ReaderAt {
                seat: seat.clone(),
                part,
            },
            sources: share.clone(),
            is_staged: false,
            summaries,
        });
        (seat, share, reading)
    }
}

/// Whether a node does not reach a file that another one named.
fn is_unreachable(error: &Error) -> bool {
    matches!(error.code(), Code::NotFound | Code::PermissionDenied)
}
