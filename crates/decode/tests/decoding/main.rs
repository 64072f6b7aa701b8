//! Decoding of captured Debezium streams and of flat files, through the public interface only.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod append;
mod captures;
mod evolution;
mod flat;
mod fuzz;
mod parquet;

use std::path::PathBuf;

use arrow::array::{Array, ArrayRef};
use tidegate_change::source::SourceOperation;
use tidegate_change::spec::{ResolvedSpec, TableSpec};
use tidegate_change::{SourceBatch, json};
use tidegate_decode::{DecodePlan, FileFormat, Findings, Input, open};

/// Everything that an input decodes to.
struct Whole {
    batches: Vec<SourceBatch>,
    findings: Findings,
}

fn resolved(yaml: &str) -> ResolvedSpec {
    ResolvedSpec::declared(TableSpec::from_yaml(yaml).unwrap())
}

fn decode(spec: &ResolvedSpec, format: Option<FileFormat>, bytes: Vec<u8>) -> Whole {
    try_decode(spec, format, bytes).unwrap()
}

fn try_decode(
    spec: &ResolvedSpec,
    format: Option<FileFormat>,
    bytes: Vec<u8>,
) -> tidegate_change::Result<Whole> {
    let plan = DecodePlan::new(spec)?;
    let mut whole = Whole {
        batches: Vec::new(),
        findings: Findings::default(),
    };
    for chunk in open(&plan, format, "events", Input::Bytes(bytes.into()), None)? {
        let decoded = plan.decode(&chunk?)?;
        whole.batches.extend(decoded.batches);
        whole.findings.merge(decoded.findings)?;
    }
    Ok(whole)
}

fn capture(path: &str) -> Vec<u8> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    zstd::decode_all(std::fs::File::open(root.join(path)).unwrap()).unwrap()
}

impl Whole {
    fn operations(&self) -> Vec<SourceOperation> {
        self.batches
            .iter()
            .flat_map(|batch| batch.operations.iter().copied())
            .collect()
    }

    fn count(&self, operation: SourceOperation) -> usize {
        self.operations()
            .iter()
            .filter(|other| **other == operation)
            .count()
    }

    fn other(&self, class: &str) -> u64 {
        self.batches
            .iter()
            .filter_map(|batch| batch.other.0.get(class))
            .sum()
    }

    fn invalid(&self) -> Vec<String> {
        let invalid = self.batches.iter().flat_map(|batch| &batch.invalid);
        invalid
            .map(|event| {
                let (code, row) = (event.code, event.place.row);
                format!("{code} row {row} {}", event.placed_detail())
            })
            .collect()
    }

    /// A column's values as JSON text; `-` where the event does not author it.
    fn column(&self, name: &str) -> Vec<String> {
        let mut all = Vec::new();
        for batch in &self.batches {
            let Some((place, _)) = batch.columns.schema().column_with_name(name) else {
                all.extend(vec!["-".to_owned(); batch.len()]);
                continue;
            };
            let texts = texts(batch.columns.column(place));
            let authored = &batch.authored[place];
            all.extend(
                texts
                    .into_iter()
                    .enumerate()
                    .map(|(row, text)| match authored {
                        Some(bits) if !bits.value(row) => "-".to_owned(),
                        _ => text,
                    }),
            );
        }
        all
    }

    fn positions(&self) -> Vec<String> {
        self.batches
            .iter()
            .flat_map(|batch| batch.position.as_ref().map(texts))
            .flatten()
            .collect()
    }

    fn old_keys(&self) -> Vec<String> {
        let keys = self
            .batches
            .iter()
            .filter_map(|batch| batch.old_keys.clone());
        keys.flat_map(|keys| {
            let keys: ArrayRef = std::sync::Arc::new(keys);
            texts(&keys)
                .into_iter()
                .filter(|text| text != "null")
                .collect::<Vec<_>>()
        })
        .collect()
    }
}

fn texts(array: &ArrayRef) -> Vec<String> {
    (0..array.len())
        .map(|row| json::value_at(array, row).unwrap().to_string())
        .collect()
}
