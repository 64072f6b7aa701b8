//! One batch on one table in one process: all phases, one after the other, on all sources and buckets.

use tidegate_change::spec::ResolvedSpec;
use tidegate_change::{Code, Result, TableSpec};
use tidegate_decode::DecodePlan;

use crate::composer::Composer;
use crate::merging::MergeIntake;
use crate::part::decide_feed;
use crate::plan::{BatchContext, BatchTable, COMPOSER, MergePlan, PhaseMeans, ReadSpec};
use crate::read::{NumberedSource, ReadPart, read};
use crate::settle::{Settled, Settlement, settle};
use crate::work::{Manifest, Work};

/// Applies one batch and returns what its commit must say. Nothing is visible before that commit.
///
/// Cancel safe: files of a dropped call carry the attempt's name and are collected with it.
///
/// # Errors
/// What the batch breaks (`NULL_KEY`, `INVALID_VALUE`, …), failures of storage; `STORAGE_FULL` or
/// `RESOURCE_EXHAUSTED` when it exceeds its limits.
pub async fn execute(work: &Work) -> Result<Manifest> {
    Box::pin(run(work)).await
}

async fn run(work: &Work) -> Result<Manifest> {
    let context = BatchContext::of(work);
    let means = PhaseMeans {
        limits: work.limits.clone(),
        observer: work.observer.clone(),
    };
    let (mut part, settled) = read_all(work, &means)?;
    let mut table = BatchTable::open(&context, &settled, COMPOSER)?;
    if work.rebuild_index {
        table.rebuild_index(&means).await?;
    }
    let plan = MergePlan::new(&table, settled).await?;
    let mut composer = Composer::new(&table, &plan, &means)?;
    for rejects in part.take_rejects() {
        composer.take_rejects(rejects?)?;
    }
    let mut intake = MergeIntake::new(&table, &plan, &means)?;
    intake.take_part(part)?;
    composer.take_part(intake.merge().await?).await?;
    composer.sweep().await?;
    let decision = decide_feed(&[composer.outline()]);
    composer.compose(decision).await
}

/// Reads all sources until their columns are known.
fn read_all(work: &Work, means: &PhaseMeans) -> Result<(ReadPart, Settled)> {
    let sources = (0u32..).zip(&work.sources);
    let sources: Vec<NumberedSource<'_>> = sources
        .map(|(number, source)| NumberedSource { number, source })
        .collect();
    let mut spec = ReadSpec::new(work.resolved.clone(), &work.snapshot);
    loop {
        let mut part = read(work.attempt, &spec, &sources, means)?;
        match settle(&spec, std::mem::take(&mut part.summaries))? {
            Settlement::ReadAgain(next) => spec = *next,
            Settlement::Settled(settled) => return Ok((part, *settled)),
        }
    }
}

/// Refuses, before a table is made or altered, a spec that no batch could be applied to.
///
/// # Errors
/// `UNSUPPORTED` for a mode or a source format that this build does not have.
pub fn check_supported(spec: &TableSpec) -> Result<()> {
    tidegate_merge::check_supported(spec)?;
    match DecodePlan::new(&ResolvedSpec::declared(spec.clone())) {
        Err(e) if e.code() == Code::Unsupported => Err(e),
        // What else a plan may lack comes with the columns of the first batch.
        Ok(_) | Err(_) => Ok(()),
    }
}
