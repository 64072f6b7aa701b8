//! The events of a batch, regrouped by key bucket: each slice is merged on its own.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StructArray, new_null_array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{concat, interleave};
use arrow::datatypes::DataType;
use tidegate_change::spec::TableLayout;
use tidegate_change::{Error, KeyBucket, KeyHash, Result};
use tidegate_merge::{EventKind, Events, PayloadColumn};

use crate::event_part::{EventPart, Places, Sources};

/// The events of one range of the key hash.
#[derive(Debug)]
pub(crate) struct Slice {
    /// The events, until the merge takes them.
    pub events: Option<Events>,
    /// Old keys of key changes (R-K6).
    pub old_keys: Option<StructArray>,
    /// Where the events came from.
    pub places: Places,
}

impl Slice {
    /// The events, which the merge owns from then on.
    ///
    /// # Errors
    /// `INTERNAL` when they were taken before.
    pub(crate) fn take_events(&mut self) -> Result<Events> {
        self.events
            .take()
            .ok_or_else(|| Error::internal("events of a slice were taken"))
    }
}

/// How a batch is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Buckets of the table.
    pub buckets: u32,
    /// Slices; each holds a range of buckets.
    pub slices: usize,
}

/// Regroups the parts by bucket range. Order within a slice is order of arrival.
///
/// # Errors
/// `INTERNAL` when parts disagree on types.
pub(crate) fn slice_by_bucket(
    parts: &[EventPart],
    layout: &TableLayout,
    cut: Cut,
) -> Result<Vec<Slice>> {
    let slice = |hash: KeyHash| {
        hash.bucket(cut.buckets).0 as usize * cut.slices / cut.buckets.max(1) as usize
    };
    let gathered = regroup(parts, layout, cut.slices, slice)?;
    let filled = gathered.into_iter().filter(|part| part.len() > 0);
    Ok(filled.map(|part| into_slice(part, cut.buckets)).collect())
}

/// One slice of all events of some parts.
///
/// # Errors
/// `INTERNAL` when parts disagree on types.
pub(crate) fn one_slice(parts: &[EventPart], layout: &TableLayout, buckets: u32) -> Result<Slice> {
    let whole = Regrouped { parts, layout }.gather(&Picked::All)?;
    Ok(into_slice(whole, buckets))
}

fn into_slice(part: EventPart, buckets: u32) -> Slice {
    let bucket = |hash: &KeyHash| hash.bucket(buckets);
    let buckets: Vec<KeyBucket> = part.hashes.iter().map(bucket).collect();
    Slice {
        events: Some(Events {
            keys: part.keys,
            sequence: part.sequence,
            kinds: part.kinds,
            payload: part.payload,
            buckets,
        }),
        old_keys: part.old_keys,
        places: part.places,
    }
}

/// The events of some parts as groups, by a function of their hash; order in a group is order of arrival.
///
/// # Errors
/// `INTERNAL` when parts disagree on types.
pub(crate) fn regroup(
    parts: &[EventPart],
    layout: &TableLayout,
    groups: usize,
    group_of: impl Fn(KeyHash) -> usize,
) -> Result<Vec<EventPart>> {
    let source = Regrouped { parts, layout };
    if groups == 1 {
        return Ok(vec![source.gather(&Picked::All)?]);
    }
    let places = places_by_group(parts, groups, group_of);
    places
        .into_iter()
        .map(|places| source.gather(&Picked::Places(places)))
        .collect()
}

/// `(part, event of the part)` by group.
pub(crate) fn places_by_group(
    parts: &[EventPart],
    groups: usize,
    group_of: impl Fn(KeyHash) -> usize,
) -> Vec<Vec<(usize, usize)>> {
    let mut places: Vec<Vec<(usize, usize)>> = vec![Vec::new(); groups];
    for (part, own) in parts.iter().enumerate() {
        for (event, hash) in own.hashes.iter().enumerate() {
            if let Some(places) = places.get_mut(group_of(*hash)) {
                places.push((part, event));
            }
        }
    }
    places
}

/// Which events are gathered.
#[derive(Debug)]
pub(crate) enum Picked {
    /// All, part by part.
    All,
    /// Those at `(part, event of the part)`.
    Places(Vec<(usize, usize)>),
}

/// Parts whose events are gathered into others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Regrouped<'a> {
    /// The parts.
    pub parts: &'a [EventPart],
    /// What they are events of.
    pub layout: &'a TableLayout,
}

impl Regrouped<'_> {
    /// Gathers events into one part.
    ///
    /// # Errors
    /// `INTERNAL` when parts disagree on types.
    pub(crate) fn gather(&self, picked: &Picked) -> Result<EventPart> {
        let keys = self.layout.key_columns().enumerate().map(|(key, column)| {
            self.column(picked, &column.data_type, |part| {
                part.keys.get(key).cloned()
            })
        });
        let keys = keys.collect::<Result<Vec<_>>>()?;
        let payload = self
            .layout
            .payload_columns()
            .enumerate()
            .map(|(column, of)| self.payload(picked, column, &of.data_type))
            .collect::<Result<Vec<_>>>()?;
        let sequence = self.layout.sequence_type.clone();
        let sequence = sequence.unwrap_or(DataType::Int64);
        Ok(EventPart {
            keys,
            hashes: self.each(picked, |part, event| part.hashes.get(event).copied())?,
            sequence: self.column(picked, &sequence, |part| Some(Arc::clone(&part.sequence)))?,
            kinds: self.kinds(picked)?,
            payload,
            old_keys: self.old_keys(picked)?,
            places: self.places(picked)?,
        })
    }

    fn kinds(&self, picked: &Picked) -> Result<Vec<EventKind>> {
        self.each(picked, |part, event| part.kinds.get(event).copied())
    }

    fn places(&self, picked: &Picked) -> Result<Places> {
        let source = |part: &EventPart, event| part.places.get(event).map(|place| place.0);
        Ok(Places {
            sources: Sources::Each(self.each(picked, source)?),
            rows: self.each(picked, |part, event| part.places.rows.get(event).copied())?,
        })
    }

    /// One value of each event.
    fn each<T>(
        &self,
        picked: &Picked,
        of: impl Fn(&EventPart, usize) -> Option<T>,
    ) -> Result<Vec<T>> {
        let lacking = || Error::internal("an event of the batch is not there");
        match picked {
            Picked::All => {
                let all = self
                    .parts
                    .iter()
                    .flat_map(|part| (0..part.len()).map(move |event| (part, event)));
                all.map(|(part, event)| of(part, event))
                    .collect::<Option<_>>()
            }
            Picked::Places(places) => places
                .iter()
                .map(|(part, event)| of(self.parts.get(*part)?, *event))
                .collect::<Option<_>>(),
        }
        .ok_or_else(lacking)
    }

    fn payload(
        &self,
        picked: &Picked,
        column: usize,
        data_type: &DataType,
    ) -> Result<PayloadColumn> {
        let of = |part: &EventPart| part.payload.get(column).cloned();
        let carried = |part: &EventPart| of(part).is_some_and(|p| p.values.is_some());
        if !self.parts.iter().any(carried) {
            return Ok(PayloadColumn::default());
        }
        let values = self.column(picked, data_type, |part| {
            of(part)?
                .values
                .or_else(|| Some(new_null_array(data_type, part.len())))
        })?;
        let partial =
            |part: &EventPart| of(part).is_none_or(|p| p.values.is_none() || p.authored.is_some());
        if !self.parts.iter().any(partial) {
            return Ok(PayloadColumn {
                values: Some(values),
                authored: None,
            });
        }
        let authored = self.column(picked, &DataType::Boolean, |part| {
            let mask = match of(part) {
                Some(PayloadColumn {
                    values: Some(_),
                    authored,
                }) => authored.unwrap_or_else(|| BooleanBuffer::new_set(part.len())),
                _ => BooleanBuffer::new_unset(part.len()),
            };
            let mask: ArrayRef = Arc::new(BooleanArray::new(mask, None));
            Some(mask)
        })?;
        Ok(PayloadColumn {
            values: Some(values),
            authored: Some(authored.as_boolean().values().clone()),
        })
    }

    fn old_keys(&self, picked: &Picked) -> Result<Option<StructArray>> {
        let Some(data_type) = self
            .parts
            .iter()
            .find_map(|p| Some(p.old_keys.as_ref()?.data_type().clone()))
        else {
            return Ok(None);
        };
        let old = self.column(picked, &data_type, |part| match &part.old_keys {
            Some(old) => {
                let old: ArrayRef = Arc::new(old.clone());
                Some(old)
            }
            None => Some(new_null_array(&data_type, part.len())),
        })?;
        Ok((old.null_count() < old.len()).then(|| old.as_struct().clone()))
    }

    fn column(
        &self,
        picked: &Picked,
        data_type: &DataType,
        of: impl Fn(&EventPart) -> Option<ArrayRef>,
    ) -> Result<ArrayRef> {
        let lacking = || Error::internal("a part of the batch lacks a column");
        let arrays: Vec<ArrayRef> = self
            .parts
            .iter()
            .map(|part| of(part).ok_or_else(lacking))
            .collect::<Result<_>>()?;
        let borrowed: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        let gathered = match (picked, arrays.as_slice()) {
            (_, []) => Ok(new_null_array(data_type, 0)),
            (Picked::All, [only]) => Ok(Arc::clone(only)),
            (Picked::All, _) => concat(&borrowed),
            (Picked::Places(places), _) => interleave(&borrowed, places),
        };
        gathered.map_err(|e| Error::internal("parts of the batch disagree on types").with_source(e))
    }
}
