//! From source files to classified changes: decode, fix or evolve the columns, classify.
//!
//! Files are read in chunks and decoded in parallel, in order. What the plan does not know (new columns,
//! wider types, the position's type) is found on the way; the batch is then decoded again with the evolved
//! spec, so that all its events are read by one schema (R-E1). A round that turns out to be such a first
//! look keeps no events.

use std::fs::File;
use std::sync::Arc;

use arrow::datatypes::DataType;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use tidegate_change::sequence::SequenceEncoder;
use tidegate_change::spec::{ResolvedSpec, TableLayout, TableMode};
use tidegate_change::{Error, Result};
use tidegate_decode::{Chunk, Chunks, DecodePlan, Findings, Input, evolve, open};

use crate::backlog::Backlog;
use crate::classify::{Classified, Classifier};
use crate::event_part::EventPart;
use crate::observer::Progressing;
use crate::reject::refusal;
use crate::spill::SpillDirectory;
use crate::summary::{Noted, Summary};
use crate::work::{SourceFile, SourceInput, Work};

/// Rounds of decoding after which the columns must be known.
const ROUNDS_MAX: usize = 4;

/// The events of a batch, classified.
#[derive(Debug)]
pub(crate) struct Events {
    /// The events.
    pub backlog: Backlog,
    /// What else was found.
    pub summary: Summary,
    /// The spec that they were read by.
    pub resolved: ResolvedSpec,
    /// Its layout.
    pub layout: TableLayout,
    /// Whether the batch changed the spec's columns.
    pub evolved: bool,
}

/// Reads all sources of a batch; `first` says that no batch has fixed the table's columns yet.
///
/// # Errors
/// The first invalid event under `on_invalid: fail`; files that cannot be read; `STORAGE_FULL` and
/// `RESOURCE_EXHAUSTED` where the events exceed memory.
pub(crate) fn read(
    work: &Work,
    first: bool,
    directory: &Arc<SpillDirectory>,
    progressing: &Progressing,
) -> Result<Events> {
    let mut current = work.resolved.clone();
    let mut may_drop = true;
    for _ in 0..ROUNDS_MAX {
        let plan = DecodePlan::new(&current)?;
        // The layout does not resolve while columns that it names are still to be inferred.
        let layout = current.layout();
        let known = layout
            .as_ref()
            .ok()
            .filter(|layout| layout.sequence_type.is_some());
        let classifier = known.map(|layout| Classifier::new(&current.spec, layout));
        let usable = classifier
            .as_ref()
            .and_then(|classifier| classifier.as_ref().ok());
        let mut round = Round {
            work,
            plan: &plan,
            directory,
            progressing,
            summary: Summary::new(current.spec.on_invalid, &work.limits, directory),
            kept: known
                .zip(usable)
                .map(Kept::of(work, directory))
                .transpose()?,
            dropped: false,
        };
        progressing.begin_reading();
        round.read(|findings| {
            may_drop && matches!(evolve(&current, findings, first), Ok(Some(_)))
        })?;
        let Round {
            summary,
            kept,
            dropped,
            ..
        } = round;
        if let Some(next) = evolve(&current, &summary.findings, first)? {
            current = next;
            continue;
        }
        if dropped {
            // What was found later took back what was found before; the next round keeps its events.
            may_drop = false;
            continue;
        }
        let backlog = kept.map(|kept| kept.backlog);
        classifier.transpose()?;
        let layout = known_or_empty(&current, layout)?;
        if let Some(event) = &summary.refused {
            return Err(refusal(&current.spec.name, event));
        }
        return Ok(Events {
            backlog: backlog.unwrap_or_else(|| Backlog::new(&layout, &work.limits, directory)),
            summary,
            evolved: current != work.resolved,
            resolved: current,
            layout,
        });
    }
    Err(Error::internal(format!(
        "table {}: the columns of the batch do not settle",
        work.resolved.spec.name
    )))
}

/// A batch without any row event leaves columns and the type of positions unknown; that is no fault.
fn known_or_empty(resolved: &ResolvedSpec, layout: Result<TableLayout>) -> Result<TableLayout> {
    match layout {
        Err(_) if resolved.columns.is_empty() => {
            let mut bare = resolved.clone();
            bare.spec.keys.clear();
            bare.spec.sequence_by = None;
            bare.spec.mode = TableMode::InsertOnly;
            bare.layout()
        }
        Ok(mut layout) if layout.sequence_type.is_none() => {
            // Any type serves where there is no event; the table's own stays open.
            layout.sequence_type = Some(DataType::Int64);
            Ok(layout)
        }
        other => other,
    }
}

/// What a round classifies and keeps.
struct Kept<'a> {
    classifier: &'a Classifier,
    encoder: SequenceEncoder,
    backlog: Backlog,
}

impl<'a> Kept<'a> {
    fn of(
        work: &Work,
        directory: &Arc<SpillDirectory>,
    ) -> impl Fn((&TableLayout, &'a Classifier)) -> Result<Self> {
        move |(layout, classifier)| {
            let sequence = layout.sequence_type.clone().unwrap_or(DataType::Int64);
            Ok(Self {
                classifier,
                encoder: SequenceEncoder::new(&sequence)?,
                backlog: Backlog::new(layout, &work.limits, directory),
            })
        }
    }
}

/// One reading of all sources by one plan.
struct Round<'a> {
    work: &'a Work,
    plan: &'a DecodePlan,
    directory: &'a Arc<SpillDirectory>,
    progressing: &'a Progressing,
    summary: Summary,
    kept: Option<Kept<'a>>,
    dropped: bool,
}

/// A chunk of a source.
struct SourceChunk {
    source: u32,
    chunk: Chunk,
}

/// What one chunk gave, before it is put in order.
struct Decoded {
    noted: Noted,
    findings: Findings,
    classified: Vec<(Classified, EventPart)>,
}

impl Round<'_> {
    /// Reads all sources; `is_in_vain` says by the findings so far that the events will be read again.
    fn read(&mut self, is_in_vain: impl Fn(&Findings) -> bool) -> Result<()> {
        let at_once = self
            .work
            .limits
            .chunks_at_once(rayon::current_num_threads());
        let mut pending = Vec::with_capacity(at_once);
        let mut bytes_before = 0;
        for (number, source) in (0u32..).zip(&self.work.sources) {
            let mut chunks = self.chunks_of(source)?;
            while let Some(chunk) = chunks.next() {
                pending.push(SourceChunk {
                    source: number,
                    chunk: chunk?,
                });
                if pending.len() >= at_once {
                    self.decode(std::mem::take(&mut pending), &is_in_vain)?;
                    self.tell(bytes_before + chunks.bytes_taken());
                }
            }
            bytes_before += chunks.bytes_taken();
        }
        self.decode(pending, &is_in_vain)?;
        self.tell(bytes_before);
        Ok(())
    }

    fn tell(&self, bytes: u64) {
        self.progressing.read(self.summary.events, bytes);
    }

    fn chunks_of(&self, source: &SourceFile) -> Result<Chunks> {
        let input = match &source.input {
            SourceInput::Bytes(bytes) => Input::Bytes(bytes.clone()),
            SourceInput::Path(path) => {
                Input::File(File::open(path).map_err(|e| Error::io(&source.name, e))?)
            }
        };
        let scratch = self.directory.path();
        open(self.plan, source.format, &source.name, input, scratch)
    }

    fn decode(
        &mut self,
        chunks: Vec<SourceChunk>,
        is_in_vain: &impl Fn(&Findings) -> bool,
    ) -> Result<()> {
        let classifier = self.kept.as_ref().map(|kept| kept.classifier);
        let plan = self.plan;
        let one = |chunk: SourceChunk| decode_chunk(plan, &chunk, classifier);
        let decoded: Vec<Decoded> = match chunks.len() {
            0 | 1 => chunks.into_iter().map(one).collect::<Result<_>>()?,
            _ => chunks.into_par_iter().map(one).collect::<Result<_>>()?,
        };
        for own in decoded {
            self.take(own)?;
        }
        if self.kept.is_some() && is_in_vain(&self.summary.findings) {
            self.kept = None;
            self.dropped = true;
        }
        Ok(())
    }

    fn take(&mut self, decoded: Decoded) -> Result<()> {
        self.summary.findings.merge(decoded.findings)?;
        self.summary.noted.add(decoded.noted);
        let Some(kept) = &mut self.kept else {
            return Ok(());
        };
        for (classified, part) in decoded.classified {
            self.summary.take(classified, &kept.encoder)?;
            kept.backlog.take(part)?;
        }
        Ok(())
    }
}

fn decode_chunk(
    plan: &DecodePlan,
    chunk: &SourceChunk,
    classifier: Option<&Classifier>,
) -> Result<Decoded> {
    let decoded = plan.decode(&chunk.chunk)?;
    let mut noted = Noted::default();
    let mut classified = Vec::with_capacity(decoded.batches.len());
    for batch in decoded.batches {
        if let Some(classifier) = classifier {
            let mut own = classifier.classify(&batch)?;
            let part = EventPart::of(chunk.source, &mut own)?;
            classified.push((own, part));
        }
        noted.take(batch);
    }
    Ok(Decoded {
        noted,
        findings: decoded.findings,
        classified,
    })
}
