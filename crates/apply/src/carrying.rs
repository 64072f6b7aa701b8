//! Key changes take unavailable values along (R-K6): the old keys are looked up before anything is merged.
//!
//! The two halves of a key change lie in different buckets, and changes of keys form chains. So the key
//! changes that leave a column open, with all events of the keys that they come from, are taken out of the
//! backlog, chain by chain; `merge` fills the values in, and the filled events go back. Memory holds the
//! hashes of the keys that such changes lead from and to, and at a time chains that fit into a slice: one
//! chain with the events of its keys bounds it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StructArray, UInt32Array, new_null_array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::take;
use tidegate_change::key::CanonicalKeys;
use tidegate_change::sequence::normalize_floats;
use tidegate_change::{Error, IndexHash, Result};
use tidegate_merge::{MergeRules, PayloadColumn, Stored, StoredRef, carry};

use crate::backlog::{Backlog, EventReader};
use crate::event_part::EventPart;
use crate::lookup::{self, Need};
use crate::partition::one_slice;
use crate::regrouping::Regrouping;
use crate::spill::SpilledBatch;
use crate::table::TableView;

/// Seed of the hashes that chains are told by. Nothing stored depends on it.
const SEED: u64 = 0x6361_7272;
/// Groups of chains that events go to files by.
const GROUPS: u32 = 64;

/// Fills in what the key changes of a batch carry; returns how many values stay unresolved.
///
/// # Errors
/// Failures of storage.
pub(crate) async fn fill(
    table: &TableView,
    rules: &MergeRules,
    backlog: &mut Backlog,
    slice_bytes: usize,
) -> Result<u64> {
    if !backlog.has_key_changes() {
        return Ok(0);
    }
    let mut chains = Chains::default();
    backlog.visit(|part| chains.link(part))?;
    if chains.links == 0 {
        return Ok(0);
    }
    let groups = Groups::extract(backlog, &mut chains)?;
    backlog.drop_lacking()?;
    let mut unresolved = 0;
    for group in groups.fitting(slice_bytes) {
        let parts = groups.load(&group)?;
        let (filled, open) = fill_group(table, rules, &parts, backlog.carried()).await?;
        unresolved += open;
        backlog.take(filled)?;
    }
    Ok(unresolved)
}

/// Which keys are linked by key changes that leave a column open.
#[derive(Default)]
struct Chains {
    /// Position of each key in `parents`, and whether a change leads away from it.
    keys: HashMap<IndexHash, (u32, bool)>,
    parents: Vec<u32>,
    links: u64,
}

impl Chains {
    fn link(&mut self, part: &EventPart) -> Result<()> {
        let lacking = part.lacking_events();
        if lacking.is_empty() {
            return Ok(());
        }
        let changes = part.take(&lacking)?;
        let new = hashes(&changes.keys)?;
        let old = old_hashes(&changes)?;
        for (new, old) in new.into_iter().zip(old) {
            self.links += 1;
            let new = self.key(new, false);
            if let Some(old) = old {
                let old = self.key(old, true);
                let (a, b) = (self.root(new), self.root(old));
                if let Some(parent) = self.parents.get_mut(a as usize) {
                    *parent = b;
                }
            }
        }
        Ok(())
    }

    fn key(&mut self, hash: IndexHash, is_old: bool) -> u32 {
        let next = u32::try_from(self.parents.len()).unwrap_or(u32::MAX);
        let (key, was_old) = self.keys.entry(hash).or_insert((next, false));
        *was_old |= is_old;
        if *key == next {
            self.parents.push(next);
        }
        *key
    }

    fn root(&mut self, mut key: u32) -> u32 {
        loop {
            let parent = self.parent(key);
            if parent == key {
                return key;
            }
            // Halves the path, so that long chains stay cheap.
            let above = self.parent(parent);
            if let Some(entry) = self.parents.get_mut(key as usize) {
                *entry = above;
            }
            key = above;
        }
    }

    fn parent(&self, key: u32) -> u32 {
        self.parents.get(key as usize).copied().unwrap_or(key)
    }

    /// The group of chains that an event belongs to; None for those that no change asks about.
    fn group(&mut self, hash: IndexHash, is_lacking: bool) -> Option<u32> {
        let (key, is_old) = *self.keys.get(&hash)?;
        if !is_old && !is_lacking {
            return None;
        }
        Some(self.root(key) % GROUPS)
    }
}

fn hashes(keys: &[ArrayRef]) -> Result<Vec<IndexHash>> {
    Ok(CanonicalKeys::encode(keys)?.index_hashes(SEED))
}

/// The hashes of old keys; None for those that have a NULL, which no key has.
fn old_hashes(changes: &EventPart) -> Result<Vec<Option<IndexHash>>> {
    let Some(old) = &changes.old_keys else {
        return Ok(vec![None; changes.len()]);
    };
    let whole = whole_keys(old)?;
    let mut found = vec![None; changes.len()];
    for (event, hash) in whole.iter().zip(hashes(&gathered(old.columns(), &whole)?)?) {
        if let Some(entry) = found.get_mut(*event as usize) {
            *entry = Some(hash);
        }
    }
    Ok(found)
}

/// The events of chains, by group.
enum Groups {
    Held(Vec<EventPart>),
    Spilled(Arc<EventReader>, Vec<Vec<SpilledBatch>>),
}

/// Chains that are filled at once.
enum Group {
    Held,
    Spilled(Vec<SpilledBatch>),
}

impl Groups {
    fn extract(backlog: &Backlog, chains: &mut Chains) -> Result<Self> {
        if !backlog.has_spilled() {
            let mut parts = Vec::new();
            backlog.visit(|part| {
                let wanted: Vec<u32> = by_group(part, chains)?
                    .into_iter()
                    .map(|(event, _)| event)
                    .collect();
                if !wanted.is_empty() {
                    parts.push(part.take(&wanted)?);
                }
                Ok(())
            })?;
            return Ok(Self::Held(parts));
        }
        let reader = backlog.reader();
        let mut regrouping = Regrouping::new(&reader, GROUPS as usize)?;
        backlog.visit(|part| {
            let events = by_group(part, chains)?.into_iter();
            regrouping.put(part, events.map(|(event, group)| (event, group as usize)))
        })?;
        let mut groups = regrouping.finish();
        groups.retain(|group| !group.is_empty());
        Ok(Self::Spilled(reader, groups))
    }

    /// The groups, small ones together.
    fn fitting(&self, bytes_max: usize) -> Vec<Group> {
        let Self::Spilled(_, groups) = self else {
            return vec![Group::Held];
        };
        let mut fitting: Vec<Vec<SpilledBatch>> = Vec::new();
        let mut bytes = usize::MAX;
        for group in groups {
            let own: usize = group.iter().map(|batch| batch.bytes).sum();
            bytes = bytes.saturating_add(own);
            match fitting.last_mut() {
                Some(last) if bytes <= bytes_max => last.extend(group.iter().cloned()),
                Some(_) | None => {
                    bytes = own;
                    fitting.push(group.clone());
                }
            }
        }
        fitting.into_iter().map(Group::Spilled).collect()
    }

    fn load(&self, group: &Group) -> Result<Vec<EventPart>> {
        match (self, group) {
            (Self::Spilled(reader, _), Group::Spilled(batches)) => {
                batches.iter().map(|batch| reader.load(batch)).collect()
            }
            (Self::Held(parts), _) => Ok(parts.clone()),
            (Self::Spilled(..), Group::Held) => Ok(Vec::new()),
        }
    }
}

/// The events that belong to chains, each with its group of chains.
fn by_group(part: &EventPart, chains: &mut Chains) -> Result<Vec<(u32, u32)>> {
    let lacking = part.lacking_events();
    let hashes = hashes(&part.keys)?;
    let grouped = (0u32..).zip(hashes).filter_map(|(event, hash)| {
        let is_lacking = lacking.binary_search(&event).is_ok();
        Some((event, chains.group(hash, is_lacking)?))
    });
    Ok(grouped.collect())
}

/// Fills some chains; returns their key changes and how many values stay unresolved.
async fn fill_group(
    table: &TableView,
    rules: &MergeRules,
    parts: &[EventPart],
    carried: &[bool],
) -> Result<(EventPart, u64)> {
    let lacking: Vec<u32> = {
        let mut start = 0u32;
        let mut all = Vec::new();
        for part in parts {
            all.extend(part.lacking_events().into_iter().map(|event| start + event));
            start += u32::try_from(part.len())
                .map_err(|_| Error::internal("chains of more than 2^32 events"))?;
        }
        all
    };
    let mut slice = one_slice(parts, &table.layout, table.resolved.spec.buckets.count())?;
    let mut events = slice.take_events()?;
    // What is known of the batch is known of its chains: a column that another source carries is open
    // here, one that none carries is no unavailable value (R-N5).
    let types = table.layout.payload_columns();
    for ((column, carried), of) in events.payload.iter_mut().zip(carried).zip(types) {
        if *carried && column.values.is_none() {
            let len = events.kinds.len();
            *column = PayloadColumn {
                values: Some(new_null_array(&of.data_type, len)),
                authored: Some(BooleanBuffer::new_unset(len)),
            };
        }
    }
    let old_keys = slice
        .old_keys
        .take()
        .ok_or_else(|| Error::internal("key changes without old keys"))?;
    let known = Distinct::of(&old_keys)?;
    let found = lookup::find(table, &known.keys, Need::All).await?;
    let refs: Vec<StoredRef> = known
        .by_event
        .iter()
        .map(|key| {
            key.and_then(|key| found.refs.get(key).copied())
                .unwrap_or_default()
        })
        .collect();
    let stored = Stored {
        refs: &refs,
        rows: &found.rows,
        tombstones: &found.tombstones,
    };
    let filled = carry(rules, events, &old_keys, &stored)?;
    let whole = EventPart {
        hashes: CanonicalKeys::encode(&filled.events.keys)?.key_hashes(),
        keys: filled.events.keys,
        sequence: filled.events.sequence,
        kinds: filled.events.kinds,
        payload: filled.events.payload,
        old_keys: None,
        places: slice.places,
    };
    Ok((whole.take(&lacking)?, filled.unresolved))
}

/// The distinct old keys and which one each event has.
struct Distinct {
    keys: Vec<ArrayRef>,
    by_event: Vec<Option<usize>>,
}

impl Distinct {
    fn of(old_keys: &StructArray) -> Result<Self> {
        let events = whole_keys(old_keys)?;
        let columns = gathered(old_keys.columns(), &events)?;
        let canonical = CanonicalKeys::encode(&columns)?;
        let mut seen: HashMap<&[u8], usize> = HashMap::new();
        let mut first = Vec::new();
        let mut by_event = vec![None; old_keys.len()];
        for (row, event) in events.iter().enumerate() {
            let next = seen.len();
            let key = *seen.entry(canonical.get(row)).or_insert(next);
            if key == next {
                first.push(*event);
            }
            if let Some(entry) = by_event.get_mut(*event as usize) {
                *entry = Some(key);
            }
        }
        Ok(Self {
            keys: gathered(old_keys.columns(), &first)?,
            by_event,
        })
    }
}

/// The events whose old key has no NULL.
fn whole_keys(old_keys: &StructArray) -> Result<Vec<u32>> {
    let whole = |event: &u32| {
        let event = *event as usize;
        old_keys.is_valid(event)
            && old_keys
                .columns()
                .iter()
                .all(|column| column.is_valid(event))
    };
    let count = u32::try_from(old_keys.len())
        .map_err(|_| Error::internal("a slice has more than 2^32 events"))?;
    Ok((0..count).filter(whole).collect())
}

fn gathered(columns: &[ArrayRef], rows: &[u32]) -> Result<Vec<ArrayRef>> {
    let rows = UInt32Array::from(rows.to_vec());
    columns
        .iter()
        .map(|column| {
            take(column, &rows, None)
                .map(|column| normalize_floats(&column))
                .map_err(|e| Error::internal("old keys cannot be gathered").with_source(e))
        })
        .collect()
}
