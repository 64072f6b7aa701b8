//! Batch marks and producers in the table's own log, so that it alone can rebuild the replicated state.
//!
//! Mark number `n` lies in domain `tidegate.batches.<n mod 16>`, which holds the newest 16 marks of its
//! residue: together always exactly the newest 256, of which a commit of one batch rewrites a sixteenth.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_change::{Error, Result};
use tidegate_delta::TableSnapshot;
use tidegate_delta::actions::{Action, DomainMetadata};

use crate::metadata::limits::BATCH_MARKS_MAX;
use crate::metadata::{BatchMark, ProducerMark, TableState};

/// Domains that the marks are spread over.
const DOMAINS: u64 = 16;
/// Prefix of these domains' names.
const BATCHES_PREFIX: &str = "tidegate.batches.";
/// Domain of the sources with sequence numbers.
const PRODUCERS_DOMAIN: &str = "tidegate.producers";

#[derive(Debug, Default, Serialize, Deserialize)]
struct BatchesDomain {
    marks: Vec<NumberedMark>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NumberedMark {
    n: u64,
    mark: BatchMark,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct ProducersDomain {
    producers: BTreeMap<String, ProducerMark>,
}

/// The actions that add marks to those of the table.
pub(super) fn mark_actions(table: &TableState, new: &[BatchMark]) -> Result<Vec<Action>> {
    let first = table.first_mark_number();
    let all: Vec<_> = (first..).zip(table.marks.iter().chain(new)).collect();
    let next = first + all.len() as u64;
    let keep_from = next.saturating_sub(BATCH_MARKS_MAX as u64);
    let touched: std::collections::BTreeSet<u64> =
        (table.batches_count..next).map(|n| n % DOMAINS).collect();
    touched
        .into_iter()
        .map(|domain| {
            let marks = all
                .iter()
                .filter(|(n, _)| n % DOMAINS == domain && *n >= keep_from)
                .map(|(n, mark)| NumberedMark {
                    n: *n,
                    mark: (*mark).clone(),
                })
                .collect();
            set(
                &format!("{BATCHES_PREFIX}{domain}"),
                &BatchesDomain { marks },
            )
        })
        .collect()
}

/// The action that stores the producers.
pub(super) fn producers_action(producers: BTreeMap<String, ProducerMark>) -> Result<Action> {
    set(PRODUCERS_DOMAIN, &ProducersDomain { producers })
}

/// Number of batches, and the newest marks, oldest first, as the log has them.
pub(super) fn read_marks(snapshot: &TableSnapshot) -> Result<(u64, Vec<BatchMark>)> {
    let mut numbered = Vec::new();
    for domain in 0..DOMAINS {
        let stored: BatchesDomain = get(snapshot, &format!("{BATCHES_PREFIX}{domain}"))?;
        numbered.extend(stored.marks);
    }
    numbered.sort_by_key(|numbered| numbered.n);
    let count = numbered.last().map_or(0, |newest| newest.n + 1);
    Ok((
        count,
        numbered.into_iter().map(|numbered| numbered.mark).collect(),
    ))
}

/// The producers, as the log has them.
pub(super) fn read_producers(snapshot: &TableSnapshot) -> Result<BTreeMap<String, ProducerMark>> {
    Ok(get::<ProducersDomain>(snapshot, PRODUCERS_DOMAIN)?.producers)
}

/// Moves the marks that a staged commit holds of itself to another version.
pub(super) fn move_marks(
    domain: &mut DomainMetadata,
    from: u64,
    to: u64,
    time_ms: i64,
) -> Result<()> {
    if !domain.domain.starts_with(BATCHES_PREFIX) {
        return Ok(());
    }
    let mut stored: BatchesDomain = parse(&domain.domain, &domain.configuration)?;
    for numbered in stored
        .marks
        .iter_mut()
        .filter(|numbered| numbered.mark.version.0 == from)
    {
        numbered.mark.version.0 = to;
        numbered.mark.time_ms = time_ms;
    }
    domain.configuration = text(&domain.domain, &stored)?;
    Ok(())
}

fn set<T: Serialize>(domain: &str, value: &T) -> Result<Action> {
    Ok(Action::Domain(DomainMetadata::set(
        domain,
        text(domain, value)?,
    )))
}

fn text<T: Serialize>(domain: &str, value: &T) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|e| Error::internal(format!("domain {domain} cannot be written")).with_source(e))
}

fn get<T: Default + serde::de::DeserializeOwned>(
    snapshot: &TableSnapshot,
    domain: &str,
) -> Result<T> {
    snapshot
        .domains
        .get(domain)
        .map_or_else(|| Ok(T::default()), |text| parse(domain, text))
}

fn parse<T: serde::de::DeserializeOwned>(domain: &str, text: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|e| Error::corrupt(format!("domain {domain} cannot be read")).with_source(e))
}
