//! The commit of a batch, composed on this node from what readers and owners handed out.

use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tidegate_apply::Manifest;
use tidegate_apply::phases::{
    BatchContext, BatchTable, COMPOSER, Composer, FeedDecision, MergePlan, PartKind, PartStage,
    PartialManifest, decide_feed,
};
use tidegate_change::{Error, Result};

use super::attempt::Attempt;
use super::merging::{Merging, Owner, OwnerTask};
use super::reading::{ReadEvents, Reading};
use crate::worker::{CallError, Called, Fetched, FinishOrder};

impl Attempt<'_> {
    /// Merges what was read and composes the commit.
    pub(super) async fn merge_and_compose(&self, read: ReadEvents) -> Result<Manifest> {
        let ReadEvents {
            spec,
            settled,
            mut readings,
        } = read;
        let context = BatchContext::of(self.work);
        let mut table = BatchTable::open(&context, &settled, COMPOSER)?;
        if self.work.rebuild_index {
            table.rebuild_index(&self.means).await?;
        }
        let owners_max = match settled.carries {
            true => 1,
            false => self.workers_max()?,
        };
        let plan = Arc::new(MergePlan::new(&table, settled).await?);
        let merging = Merging {
            table: &table,
            plan: &plan,
            spec: &spec,
        };
        let rejects = self.stage_rejects(&merging, &mut readings).await?;
        let all = 0..self.buckets();
        let tasks = self.owner_tasks(slice::from_ref(&all), owners_max)?;
        let mut owners = self.merge(&merging, &mut readings, tasks).await?;
        let mut decided = None;
        loop {
            let composer = self.composer(&merging, &rejects, &owners).await?;
            let outlines = owners.iter().map(|owner| owner.outline);
            let outlines: Vec<_> = outlines.chain([composer.outline()]).collect();
            let decision = decide_feed(&outlines);
            if *decided.get_or_insert(decision) != decision {
                // Some owners have finished by the other one.
                return Err(Error::internal(
                    "owners that merged again change other rows",
                ));
            }
            let lost = self.finish(&mut owners, decision).await?;
            if lost.is_empty() {
                return self.compose(composer, owners, decision).await;
            }
            // What they wrote of the feed is lost with them: their buckets are merged again by others.
            for task in lost {
                let tasks = self.tasks_again(&merging, &task)?;
                owners.append(&mut self.merge(&merging, &mut readings, tasks).await?);
            }
        }
    }

    /// What readers set apart, once for each source.
    async fn stage_rejects(
        &self,
        merging: &Merging<'_>,
        readings: &mut Vec<Reading>,
    ) -> Result<Vec<PartStage>> {
        let mut stages = Vec::new();
        while let Some(reading) = readings.iter_mut().find(|reading| !reading.is_staged) {
            let part = reading.at.part;
            let what = [(PartKind::Rejects, Fetched::Rejects { part })];
            let seat = reading.at.seat.clone();
            match self.stage(merging.table, &seat, &what).await {
                Ok(stage) => {
                    reading.is_staged = true;
                    stages.push(stage);
                }
                Err(CallError::Failed(error)) => return Err(error),
                Err(_) => self.read_again(merging, readings, part).await?,
            }
        }
        Ok(stages)
    }

    async fn composer(
        &self,
        merging: &Merging<'_>,
        rejects: &[PartStage],
        owners: &[Owner],
    ) -> Result<Composer> {
        let mut composer = Composer::new(merging.table, merging.plan, &self.means)?;
        let stages = owners.iter().map(|owner| &owner.stage);
        for stage in rejects.iter().chain(stages) {
            composer.take_stage(stage).await?;
        }
        composer.sweep().await?;
        Ok(composer)
    }

    /// Lets all owners finish that have not yet; those that are lost are taken off the list.
    async fn finish(
        &self,
        owners: &mut Vec<Owner>,
        decision: FeedDecision,
    ) -> Result<Vec<OwnerTask>> {
        let open = owners.iter().filter(|owner| owner.manifest.is_none());
        let calls = open.map(|owner| self.finish_at(&owner.task, decision));
        let mut calls: FuturesUnordered<_> = calls.collect();
        let (mut finished, mut lost) = (BTreeMap::new(), Vec::new());
        while let Some((task, manifest)) = calls.next().await {
            match manifest {
                Ok(manifest) => {
                    finished.insert(task.owner, manifest);
                }
                Err(CallError::Failed(error)) => return Err(error),
                Err(CallError::Lost(error) | CallError::Stale(error)) => {
                    self.lose(&task.seat, error)?;
                    lost.push(task);
                }
            }
        }
        drop(calls);
        for owner in owners.iter_mut() {
            if let Some(manifest) = finished.remove(&owner.task.owner) {
                owner.manifest = Some(manifest);
            }
        }
        owners.retain(|owner| owner.manifest.is_some());
        Ok(lost)
    }

    async fn finish_at(
        &self,
        task: &OwnerTask,
        decision: FeedDecision,
    ) -> (OwnerTask, Called<PartialManifest>) {
        let manifest = self.call(&task.seat, |link, token| {
            let order = FinishOrder {
                token,
                owner: task.owner,
                decision,
            };
            async move { link.finish(order).await }
        });
        (task.clone(), manifest.await)
    }

    async fn compose(
        &self,
        mut composer: Composer,
        owners: Vec<Owner>,
        decision: FeedDecision,
    ) -> Result<Manifest> {
        for owner in owners {
            let missing = || Error::internal("an owner that has not finished");
            composer.take_manifest(owner.manifest.ok_or_else(missing)?)?;
        }
        composer.compose(decision).await
    }
}
