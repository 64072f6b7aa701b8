//! From source files to classified events: one round of reading some sources of a batch.
//!
//! Files are read in chunks and decoded in parallel, in order; `classify` evaluates the spec's conditions,
//! the `backlog` holds the events. What the spec does not know (new columns, wider types, the position's
//! type) is found on the way and told in the summaries; the batch is then read again with the evolved spec,
//! so that all its events are read by one schema (R-E1). A round that turns out to be such a first look
//! keeps no events.

use std::fs::File;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use tidegate_change::sequence::SequenceEncoder;
use tidegate_change::spec::TableLayout;
use tidegate_change::{AttemptId, Error, Result};
use tidegate_decode::{Chunk, Chunks, DecodePlan, Findings, Input, evolve, open};

use crate::backlog::{Backlog, Cursor};
use crate::bucket_set::BucketSet;
use crate::classify::Classifier;
use crate::event_part::EventPart;
use crate::kept_batches::KeptBatches;
use crate::observer::Progressing;
use crate::plan::{PhaseMeans, ReadSpec};
use crate::reject;
use crate::spill::SpillDirectory;
use crate::summary::ReadSummary;
use crate::work::{SourceFile, SourceInput};

/// A source with its number in the batch.
#[derive(Clone, Copy, Debug)]
pub struct NumberedSource<'a> {
    /// Its number among all sources of the batch, from 0.
    pub number: u32,
    /// The source.
    pub source: &'a SourceFile,
}

/// What a round of reading gave. Memory holds what `Limits` allow; temporary files go with it.
#[derive(Debug)]
pub struct ReadPart {
    /// What the sources hold beside events, one for each, for the node that settles.
    pub summaries: Vec<ReadSummary>,
    /// None where the columns that events need were not known.
    pub(crate) backlog: Option<Backlog>,
    pub(crate) rejects: KeptBatches,
}

/// Reads some sources of a batch once.
///
/// # Errors
/// `TRUNCATE_REFUSED`, files that cannot be read or contradict their format; `STORAGE_FULL` and
/// `RESOURCE_EXHAUSTED` where the events exceed memory.
pub fn read(
    attempt: AttemptId,
    spec: &ReadSpec,
    sources: &[NumberedSource<'_>],
    means: &PhaseMeans,
) -> Result<ReadPart> {
    let directory = SpillDirectory::new(&means.limits, attempt);
    let plan = DecodePlan::new(&spec.resolved)?;
    // The layout does not resolve while columns that it names are still to be inferred.
    let layout = spec.resolved.layout().ok();
    let known = layout.filter(|layout| layout.sequence_type.is_some());
    // Whether conditions compile is told when the columns are settled.
    let classifier = known
        .as_ref()
        .and_then(|layout| Classifier::new(&spec.resolved.spec, layout).ok());
    let kept = match (&known, &classifier) {
        (Some(layout), Some(classifier)) => Some(Kept::new(layout, classifier, means, &directory)?),
        _ => None,
    };
    let progressing = Progressing::new(means.observer.clone(), source_bytes(sources));
    progressing.begin_reading();
    let mut round = Round {
        spec,
        plan: &plan,
        means,
        directory: &directory,
        progressing: &progressing,
        findings: Findings::default(),
        summaries: Vec::with_capacity(sources.len()),
        rejects: KeptBatches::new(&directory, means.limits.list_bytes()),
        kept,
        events: 0,
    };
    round.read(sources)?;
    Ok(ReadPart {
        summaries: round.summaries,
        backlog: round.kept.map(|kept| kept.backlog),
        rejects: round.rejects,
    })
}

/// A place among the events of a [`ReadPart`].
#[derive(Clone, Copy, Debug, Default)]
pub struct EventCursor(Cursor);

/// Bytes of all sources; None where one does not tell.
fn source_bytes(sources: &[NumberedSource<'_>]) -> Option<u64> {
    let sizes = sources.iter().map(|own| match &own.source.input {
        SourceInput::Bytes(bytes) => Some(bytes.len() as u64),
        SourceInput::Path(path) | SourceInput::Shared(path) => {
            let metadata = std::fs::metadata(path).ok()?;
            metadata.is_file().then_some(metadata.len())
        }
    });
    sizes.sum()
}

impl ReadPart {
    /// The next events of some buckets, as a record batch of bounded size; None behind the last.
    ///
    /// # Errors
    /// What the disk says.
    pub fn next_events(
        &self,
        at: &mut EventCursor,
        wanted: &BucketSet,
    ) -> Result<Option<RecordBatch>> {
        match &self.backlog {
            Some(backlog) => backlog.next_batch(&mut at.0, wanted),
            None => Ok(None),
        }
    }

    /// Events that are held.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.backlog.as_ref().map_or(0, Backlog::events)
    }

    /// Some of the quarantined events, as a record batch of bounded size; None behind the last.
    ///
    /// # Errors
    /// What the disk says.
    pub fn reject(&self, number: usize) -> Result<Option<RecordBatch>> {
        self.rejects.get(number)
    }

    /// Takes the quarantined events out, as record batches of bounded size.
    pub fn take_rejects(&mut self) -> impl Iterator<Item = Result<RecordBatch>> + use<> {
        self.rejects.take_each()
    }
}

/// What a round classifies and keeps.
struct Kept<'a> {
    classifier: &'a Classifier,
    encoder: SequenceEncoder,
    backlog: Backlog,
}

impl<'a> Kept<'a> {
    fn new(
        layout: &TableLayout,
        classifier: &'a Classifier,
        means: &PhaseMeans,
        directory: &Arc<SpillDirectory>,
    ) -> Result<Self> {
        let sequence = layout.sequence_type.clone().unwrap_or(DataType::Int64);
        Ok(Self {
            classifier,
            encoder: SequenceEncoder::new(&sequence)?,
            backlog: Backlog::new(layout, &means.limits, directory),
        })
    }
}

/// One reading of some sources.
struct Round<'a> {
    spec: &'a ReadSpec,
    plan: &'a DecodePlan,
    means: &'a PhaseMeans,
    directory: &'a Arc<SpillDirectory>,
    progressing: &'a Progressing,
    /// Of all sources so far.
    findings: Findings,
    summaries: Vec<ReadSummary>,
    rejects: KeptBatches,
    kept: Option<Kept<'a>>,
    events: u64,
}

/// A chunk of a source.
struct SourceChunk {
    source: u32,
    chunk: Chunk,
}

/// What one chunk gave, before it is put in order.
struct Decoded {
    summary: ReadSummary,
    parts: Vec<EventPart>,
    rejects: Vec<RecordBatch>,
}

impl<'a> Round<'a> {
    fn read(&mut self, sources: &[NumberedSource<'_>]) -> Result<()> {
        let limits = &self.means.limits;
        let at_once = limits.chunks_at_once(rayon::current_num_threads());
        let mut pending = Vec::with_capacity(at_once);
        let mut bytes_before = 0;
        for own in sources {
            self.summaries.push(ReadSummary::new(own.number));
            let mut chunks = self.chunks_of(own.source)?;
            while let Some(chunk) = chunks.next() {
                pending.push(SourceChunk {
                    source: own.number,
                    chunk: chunk?,
                });
                if pending.len() >= at_once {
                    self.decode(std::mem::take(&mut pending))?;
                    self.tell(bytes_before + chunks.bytes_taken());
                }
            }
            bytes_before += chunks.bytes_taken();
        }
        self.decode(pending)?;
        self.tell(bytes_before);
        Ok(())
    }

    fn tell(&self, bytes: u64) {
        self.progressing.read(self.events, bytes);
    }

    fn chunks_of(&self, source: &SourceFile) -> Result<Chunks> {
        let input = match &source.input {
            SourceInput::Bytes(bytes) => Input::Bytes(bytes.clone()),
            SourceInput::Path(path) | SourceInput::Shared(path) => {
                Input::File(File::open(path).map_err(|e| Error::io(&source.name, e))?)
            }
        };
        let scratch = self.directory.path();
        open(self.plan, source.format, &source.name, input, scratch)
    }

    fn decode(&mut self, chunks: Vec<SourceChunk>) -> Result<()> {
        let kept = self.kept.as_ref();
        let plan = self.plan;
        let one = |chunk: SourceChunk| decode_chunk(plan, &chunk, kept, self.spec);
        let decoded: Vec<Decoded> = match chunks.len() {
            0 | 1 => chunks.into_iter().map(one).collect::<Result<_>>()?,
            _ => chunks.into_par_iter().map(one).collect::<Result<_>>()?,
        };
        for own in decoded {
            self.take(own)?;
        }
        // What is read for its columns alone is not kept: the batch is read again with them.
        let evolves = || evolve(&self.spec.resolved, &self.findings, self.spec.first);
        if self.kept.is_some() && self.spec.may_skip && matches!(evolves(), Ok(Some(_))) {
            self.kept = None;
            if let Some(summary) = self.summaries.last_mut() {
                summary.is_in_vain = true;
            }
        }
        Ok(())
    }

    fn take(&mut self, decoded: Decoded) -> Result<()> {
        self.events += decoded.summary.events;
        self.findings.merge(decoded.summary.findings.clone())?;
        let number = decoded.summary.source;
        let mut newest_first = self.summaries.iter_mut().rev();
        if let Some(summary) = newest_first.find(|own| own.source == number) {
            summary.merge(decoded.summary)?;
        }
        for rejects in decoded.rejects {
            self.rejects.push(rejects)?;
        }
        if let Some(kept) = &mut self.kept {
            for part in decoded.parts {
                kept.backlog.take(part)?;
            }
        }
        Ok(())
    }
}

fn decode_chunk(
    plan: &DecodePlan,
    chunk: &SourceChunk,
    kept: Option<&Kept<'_>>,
    spec: &ReadSpec,
) -> Result<Decoded> {
    let decoded = plan.decode(&chunk.chunk)?;
    let mut own = Decoded {
        summary: ReadSummary {
            findings: decoded.findings,
            ..ReadSummary::new(chunk.source)
        },
        parts: Vec::with_capacity(decoded.batches.len()),
        rejects: Vec::new(),
    };
    for batch in decoded.batches {
        own.summary.take_source(&batch);
        let Some(kept) = kept else { continue };
        let mut classified = kept.classifier.classify(&batch)?;
        let part = EventPart::of(chunk.source, &mut classified)?;
        let on_invalid = spec.resolved.spec.on_invalid;
        own.summary
            .take_classified(&classified, &part, &kept.encoder, on_invalid)?;
        if !classified.rejects.is_empty() {
            own.rejects.push(reject::reject_rows(&classified.rejects)?);
        }
        own.parts.push(part);
    }
    Ok(own)
}
