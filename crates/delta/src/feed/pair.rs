//! Deletes and inserts of one commit as updates, by the rows' identity.
//!
//! Memory holds the deleted rows of one pass: a commit of more is read in several passes, each over a
//! slice of the identities' hash.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::{filter_record_batch, interleave_record_batch};
use arrow::row::{OwnedRow, RowConverter, Rows, SortField};
use tidegate_change::sequence::normalize_floats;
use tidegate_change::{Error, Result};

use super::FeedReader;
use super::plan::{Unit, UnitKind};
use super::rows::{Stamp, Units};
use crate::cdc::change_type;
use crate::error;
use crate::schema::TableSchema;

/// Rows of an emitted batch of deletes.
const BATCH_ROWS: usize = 8192;

/// The paired changes of one commit.
#[derive(Debug)]
pub(super) struct Pairing {
    identity: Arc<[String]>,
    deletes: Vec<Unit>,
    inserts: Vec<Unit>,
    passes: u64,
    next_pass: u64,
    pass: Option<Pass>,
}

/// One pass: the deleted rows that found no insert yet, and the inserts to come.
#[derive(Debug)]
struct Pass {
    converter: RowConverter,
    number: u64,
    batches: Vec<RecordBatch>,
    /// Places of the deleted rows by identity.
    open: HashMap<OwnedRow, VecDeque<(usize, usize)>>,
    inserts: Units,
    leftover: Option<VecDeque<(usize, usize)>>,
}

impl Pairing {
    /// Pairs units with at most so many deleted rows in memory, as far as hashing is fair.
    pub(super) fn new(identity: Arc<[String]>, units: Vec<Unit>, rows_max: u64) -> Self {
        let (deletes, inserts): (Vec<_>, Vec<_>) = units
            .into_iter()
            .partition(|unit| unit.kind == UnitKind::Delete);
        let deleted: u64 = deletes.iter().map(Unit::rows).sum();
        let passes = deleted.div_ceil(rows_max.max(1)).max(1);
        Self {
            identity,
            deletes,
            inserts,
            passes,
            next_pass: 0,
            pass: None,
        }
    }

    pub(super) async fn next_batch(
        &mut self,
        reader: &FeedReader,
        stamp: Stamp,
    ) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(pass) = &mut self.pass {
                if let Some(batch) = pass
                    .next(reader, &self.identity, self.passes, stamp)
                    .await?
                {
                    return Ok(Some(batch));
                }
                self.pass = None;
            }
            if self.next_pass == self.passes {
                return Ok(None);
            }
            let inserts = Units::new(self.inserts.iter().cloned());
            let deletes = Units::new(self.deletes.iter().cloned());
            let pass = Pass::begin(reader, &self.identity, self.next_pass, inserts)?;
            self.pass = Some(
                pass.load(reader, &self.identity, self.passes, deletes)
                    .await?,
            );
            self.next_pass += 1;
        }
    }
}

impl Pass {
    fn begin(
        reader: &FeedReader,
        identity: &[String],
        number: u64,
        inserts: Units,
    ) -> Result<Self> {
        Ok(Self {
            converter: converter(&reader.schema, identity.iter().map(String::as_str))?,
            number,
            batches: Vec::new(),
            open: HashMap::new(),
            inserts,
            leftover: None,
        })
    }

    /// Reads the deleted rows of the pass.
    async fn load(
        mut self,
        reader: &FeedReader,
        identity: &[String],
        passes: u64,
        mut deletes: Units,
    ) -> Result<Self> {
        while let Some((rows, _)) = deletes.next(reader).await? {
            let (rows, identities) = self.slice(&rows, identity, passes)?;
            let place = self.batches.len();
            for (row, identity) in identities.iter().enumerate() {
                self.open
                    .entry(identity.owned())
                    .or_default()
                    .push_back((place, row));
            }
            self.batches.push(rows);
        }
        Ok(self)
    }

    /// The rows of this pass, with their identities.
    fn slice(
        &self,
        rows: &RecordBatch,
        identity: &[String],
        passes: u64,
    ) -> Result<(RecordBatch, Rows)> {
        let identities = self.identities(rows, identity)?;
        if passes == 1 {
            return Ok((rows.clone(), identities));
        }
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let mine: BooleanArray = identities
            .iter()
            .map(|row| Some(hasher.hash_one(row.data()) % passes == self.number))
            .collect();
        let rows = filter_record_batch(rows, &mine)
            .map_err(|e| error::arrow_internal("rows of a pass cannot be chosen", e))?;
        let identities = self.identities(&rows, identity)?;
        Ok((rows, identities))
    }

    fn identities(&self, rows: &RecordBatch, identity: &[String]) -> Result<Rows> {
        let columns = identity
            .iter()
            .map(|name| {
                let lacks =
                    || Error::internal(format!("feed: no column {name} to tell rows apart"));
                rows.column_by_name(name)
                    .map(normalize_floats)
                    .ok_or_else(lacks)
            })
            .collect::<Result<Vec<_>>>()?;
        convert(&self.converter, &columns)
    }

    async fn next(
        &mut self,
        reader: &FeedReader,
        identity: &[String],
        passes: u64,
        stamp: Stamp,
    ) -> Result<Option<RecordBatch>> {
        while self.leftover.is_none() {
            match self.inserts.next(reader).await? {
                Some((rows, _)) => {
                    let (rows, identities) = self.slice(&rows, identity, passes)?;
                    if let Some(batch) = self.pair(reader, &rows, &identities, stamp)? {
                        return Ok(Some(batch));
                    }
                }
                None => {
                    let mut places: Vec<_> =
                        self.open.drain().flat_map(|(_, places)| places).collect();
                    // The map's order is arbitrary; the files' is not.
                    places.sort_unstable();
                    self.leftover = Some(places.into());
                }
            }
        }
        let Some(leftover) = &mut self.leftover else {
            return Ok(None);
        };
        if leftover.is_empty() {
            return Ok(None);
        }
        let count = leftover.len().min(BATCH_ROWS);
        let places: Vec<_> = leftover.drain(..count).collect();
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        let rows = gather(&batches, &places)?;
        stamp
            .rows(reader, &rows, vec![change_type::DELETE; count])
            .map(Some)
    }

    /// Inserted rows as inserts, or as updates of the deleted rows of the same identity.
    fn pair(
        &mut self,
        reader: &FeedReader,
        inserted: &RecordBatch,
        identities: &Rows,
        stamp: Stamp,
    ) -> Result<Option<RecordBatch>> {
        let new = self.batches.len();
        let partners: Vec<Option<(usize, usize)>> = identities
            .iter()
            .map(|identity| {
                self.open
                    .get_mut(&identity.owned())
                    .and_then(VecDeque::pop_front)
            })
            .collect();
        let mut batches: Vec<&RecordBatch> = self.batches.iter().collect();
        batches.push(inserted);
        let unchanged = unchanged(&reader.schema, &batches, inserted, &partners)?;
        let (mut places, mut types) = (Vec::new(), Vec::new());
        for (row, (partner, is_unchanged)) in partners.iter().zip(unchanged).enumerate() {
            match partner {
                None => {
                    places.push((new, row));
                    types.push(change_type::INSERT);
                }
                Some(_) if is_unchanged => {}
                Some(old) => {
                    places.extend([*old, (new, row)]);
                    types.extend([change_type::UPDATE_PREIMAGE, change_type::UPDATE_POSTIMAGE]);
                }
            }
        }
        if places.is_empty() {
            return Ok(None);
        }
        let rows = gather(&batches, &places)?;
        stamp.rows(reader, &rows, types).map(Some)
    }
}

/// For each inserted row, whether its partner has the same visible values (R-C2).
fn unchanged(
    schema: &TableSchema,
    batches: &[&RecordBatch],
    inserted: &RecordBatch,
    partners: &[Option<(usize, usize)>],
) -> Result<Vec<bool>> {
    let mut same = vec![false; partners.len()];
    let paired: Vec<(usize, (usize, usize))> = partners
        .iter()
        .enumerate()
        .filter_map(|(row, partner)| partner.map(|partner| (row, partner)))
        .collect();
    if paired.is_empty() {
        return Ok(same);
    }
    let new = batches.len() - 1;
    let old_rows = gather(
        batches,
        &paired.iter().map(|(_, old)| *old).collect::<Vec<_>>(),
    )?;
    let new_rows = gather(
        batches,
        &paired
            .iter()
            .map(|(row, _)| (new, *row))
            .collect::<Vec<_>>(),
    )?;
    let names = inserted.schema();
    let converter = converter(
        schema,
        names.fields().iter().map(|field| field.name().as_str()),
    )?;
    let normal = |batch: &RecordBatch| -> Vec<ArrayRef> {
        batch.columns().iter().map(normalize_floats).collect()
    };
    let old_rows = convert(&converter, &normal(&old_rows))?;
    let new_rows = convert(&converter, &normal(&new_rows))?;
    for (((row, _), old), new) in paired.iter().zip(old_rows.iter()).zip(new_rows.iter()) {
        if let Some(same) = same.get_mut(*row) {
            *same = old == new;
        }
    }
    Ok(same)
}

fn converter<'a>(
    schema: &TableSchema,
    names: impl Iterator<Item = &'a str>,
) -> Result<RowConverter> {
    let fields = names
        .map(|name| {
            let lacks = || Error::internal(format!("feed: no column {name} to tell rows apart"));
            let (_, field) = schema.field(name).ok_or_else(lacks)?;
            Ok(SortField::new(field.data_type().clone()))
        })
        .collect::<Result<Vec<_>>>()?;
    RowConverter::new(fields).map_err(|e| error::arrow_internal("feed: rows cannot be compared", e))
}

fn convert(converter: &RowConverter, columns: &[ArrayRef]) -> Result<Rows> {
    let converted = converter.convert_columns(columns);
    converted.map_err(|e| error::arrow_internal("feed: rows cannot be compared", e))
}

fn gather(batches: &[&RecordBatch], places: &[(usize, usize)]) -> Result<RecordBatch> {
    interleave_record_batch(batches, places)
        .map_err(|e| error::arrow_internal("feed: rows cannot be gathered", e))
}
