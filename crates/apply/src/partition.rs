//! The classified parts of a batch, regrouped by key bucket: each slice is merged on its own.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StructArray, new_null_array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::interleave;
use arrow::datatypes::DataType;
use tidegate_change::key::CanonicalKeys;
use tidegate_change::spec::TableLayout;
use tidegate_change::{Error, KeyBucket, Result};
use tidegate_merge::{Events, PayloadColumn};

use crate::classify::Classified;

/// Where an event of a slice came from: its file and record.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// File.
    pub file: Arc<str>,
    /// Record in the file, from 0.
    pub row: u64,
}

/// The events of one range of buckets.
#[derive(Debug)]
pub(crate) struct Slice {
    /// The events, until the merge takes them.
    pub events: Option<Events>,
    /// Old keys of key changes (R-K6).
    pub old_keys: Option<StructArray>,
    /// `(part, event of the part)` by event.
    places: Vec<(usize, usize)>,
    origins: Arc<Vec<(Arc<str>, Vec<u64>)>>,
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

    /// Where an event came from.
    #[must_use]
    pub(crate) fn place(&self, event: usize) -> Option<Place> {
        let (part, row) = *self.places.get(event)?;
        let (file, rows) = self.origins.get(part)?;
        Some(Place {
            file: Arc::clone(file),
            row: *rows.get(row)?,
        })
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
    parts: Vec<Classified>,
    layout: &TableLayout,
    cut: Cut,
) -> Result<Vec<Slice>> {
    let mut places: Vec<Vec<(usize, usize)>> = vec![Vec::new(); cut.slices];
    let mut buckets: Vec<Vec<KeyBucket>> = vec![Vec::new(); cut.slices];
    for (part, classified) in parts.iter().enumerate() {
        let keys = CanonicalKeys::encode(&classified.keys)?;
        for (row, hash) in keys.key_hashes().into_iter().enumerate() {
            let bucket = hash.bucket(cut.buckets);
            let slice = bucket.0 as usize * cut.slices / cut.buckets.max(1) as usize;
            if let (Some(places), Some(buckets)) = (places.get_mut(slice), buckets.get_mut(slice)) {
                places.push((part, row));
                buckets.push(bucket);
            }
        }
    }
    let origins: Arc<Vec<(Arc<str>, Vec<u64>)>> = Arc::new(
        parts
            .iter()
            .map(|p| (Arc::clone(&p.file), p.rows.clone()))
            .collect(),
    );
    let source = Columns {
        parts: &parts,
        layout,
    };
    places
        .into_iter()
        .zip(buckets)
        .filter(|(places, _)| !places.is_empty())
        .map(|(places, buckets)| {
            Ok(Slice {
                events: Some(source.events(&places, buckets)?),
                old_keys: source.old_keys(&places)?,
                places,
                origins: Arc::clone(&origins),
            })
        })
        .collect()
}

struct Columns<'a> {
    parts: &'a [Classified],
    layout: &'a TableLayout,
}

impl Columns<'_> {
    fn events(&self, places: &[(usize, usize)], buckets: Vec<KeyBucket>) -> Result<Events> {
        let keys = (0..self.layout.key_columns().count())
            .map(|key| self.gather(places, |part| part.keys.get(key).cloned()))
            .collect::<Result<Vec<_>>>()?;
        let kinds = places
            .iter()
            .filter_map(|(part, row)| self.parts.get(*part)?.kinds.get(*row).copied())
            .collect();
        let payload = self
            .layout
            .payload_columns()
            .enumerate()
            .map(|(column, of)| self.payload(places, column, &of.data_type))
            .collect::<Result<Vec<_>>>()?;
        let sequence = self.gather(places, |part| Some(Arc::clone(&part.sequence)))?;
        Ok(Events {
            keys,
            sequence,
            kinds,
            payload,
            buckets,
        })
    }

    fn payload(
        &self,
        places: &[(usize, usize)],
        column: usize,
        data_type: &DataType,
    ) -> Result<PayloadColumn> {
        let of = |part: &Classified| part.payload.get(column).cloned();
        let carried = |part: &Classified| of(part).is_some_and(|p| p.values.is_some());
        if !self.parts.iter().any(carried) {
            return Ok(PayloadColumn {
                values: None,
                authored: None,
            });
        }
        let values = self.gather(places, |part| {
            of(part)?
                .values
                .or_else(|| Some(new_null_array(data_type, part.kinds.len())))
        })?;
        let partial =
            |part: &Classified| of(part).is_none_or(|p| p.values.is_none() || p.authored.is_some());
        if !self.parts.iter().any(partial) {
            return Ok(PayloadColumn {
                values: Some(values),
                authored: None,
            });
        }
        let authored = self.gather(places, |part| {
            let len = part.kinds.len();
            let mask = match of(part) {
                Some(PayloadColumn {
                    values: Some(_),
                    authored,
                }) => authored.unwrap_or_else(|| BooleanBuffer::new_set(len)),
                _ => BooleanBuffer::new_unset(len),
            };
            let mask: ArrayRef = Arc::new(BooleanArray::new(mask, None));
            Some(mask)
        })?;
        Ok(PayloadColumn {
            values: Some(values),
            authored: Some(authored.as_boolean().values().clone()),
        })
    }

    fn old_keys(&self, places: &[(usize, usize)]) -> Result<Option<StructArray>> {
        let Some(data_type) = self
            .parts
            .iter()
            .find_map(|p| Some(p.old_keys.as_ref()?.data_type().clone()))
        else {
            return Ok(None);
        };
        let old = self.gather(places, |part| match &part.old_keys {
            Some(old) => {
                let old: ArrayRef = Arc::new(old.clone());
                Some(old)
            }
            None => Some(new_null_array(&data_type, part.kinds.len())),
        })?;
        Ok((old.null_count() < old.len()).then(|| old.as_struct().clone()))
    }

    fn gather(
        &self,
        places: &[(usize, usize)],
        of: impl Fn(&Classified) -> Option<ArrayRef>,
    ) -> Result<ArrayRef> {
        let lacking = || Error::internal("a part of the batch lacks a column");
        let arrays: Vec<ArrayRef> = self
            .parts
            .iter()
            .map(|part| of(part).ok_or_else(lacking))
            .collect::<Result<_>>()?;
        if let [only] = arrays.as_slice()
            && places.len() == only.len()
        {
            return Ok(Arc::clone(only));
        }
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        interleave(&arrays, places)
            .map_err(|e| Error::internal("parts of the batch disagree on types").with_source(e))
    }
}
