//! Deletion vectors: which rows of a data file are dead.
//!
//! - [`DeletionVector`]: the set of row positions and its bytes (RoaringBitmapArray, portable form).
//! - [`read`] checks size, checksum and count; [`write_packed`] puts many vectors into one file, whose
//!   UUID (version 8) says which attempt wrote it.
//! - Storage type is always `u` in the table's root on write; `i` is read too, since other engines write it.
//!
//! Source: Delta protocol, "Deletion Vectors" and "Deletion Vector Format".

mod format;
mod name;
mod z85;

use bytes::{BufMut, Bytes, BytesMut};
use object_store::ObjectStoreExt;
use roaring::RoaringTreemap;
use tidegate_change::{AttemptId, Error, Result};

pub(crate) use name::descriptor_file;
pub use name::{attempt_of, file_name, file_uuid};

use crate::actions::{AddFile, DeletionVectorDescriptor};
use crate::error::storage;
use crate::table::TableRoot;

/// Format version, the first byte of every file.
const FILE_VERSION: u8 = 1;
/// Bytes of the size in front of a vector, and of the checksum behind it.
const FRAME_BYTES: usize = 4;

/// The dead rows of a data file, by position.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeletionVector(RoaringTreemap);

/// What deleting rows of a file leaves of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Remains {
    /// Rows live on: the file's next vector, and how many rows died.
    Some(DeletionVector, u64),
    /// No row lives: the file goes.
    Nothing,
    /// Every position was dead before.
    Unchanged,
}

impl DeletionVector {
    /// A vector of these positions.
    pub fn from_positions(positions: impl IntoIterator<Item = u32>) -> Self {
        Self(positions.into_iter().map(u64::from).collect())
    }

    /// Dead rows.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether no row is dead.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a row is dead.
    #[must_use]
    pub fn contains(&self, position: u64) -> bool {
        self.0.contains(position)
    }

    /// The dead positions, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter()
    }

    /// How many dead positions lie in `start..end`.
    #[must_use]
    pub fn count_between(&self, start: u64, end: u64) -> u64 {
        let below = |position: u64| position.checked_sub(1).map_or(0, |last| self.0.rank(last));
        below(end).saturating_sub(below(start))
    }

    /// The positions that are dead here and not in the other vector.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(&self.0 - &other.0)
    }

    /// Adds the positions of another vector; returns how many joined.
    pub fn merge(&mut self, other: &Self) -> u64 {
        let before = self.0.len();
        self.0 |= &other.0;
        self.0.len() - before
    }

    /// How many bytes [`Self::to_bytes`] gives.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        format::encoded_bytes(self)
    }

    /// The vector's bytes, as files hold them.
    ///
    /// # Errors
    /// `INTERNAL` when the vector cannot be written.
    pub fn to_bytes(&self) -> Result<Bytes> {
        format::encode(self).map(Bytes::from)
    }

    /// The vector that these bytes hold; `name` tells errors whose they are.
    ///
    /// # Errors
    /// `CORRUPT` when they are no vector.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self> {
        format::decode(name, bytes)
    }

    /// Adds positions of a file of `num_records` rows and says what remains of the file.
    ///
    /// # Errors
    /// `INTERNAL` when a position lies behind the file's end.
    pub fn delete(
        self,
        positions: impl IntoIterator<Item = u32>,
        num_records: u64,
    ) -> Result<Remains> {
        self.delete_all(&Self::from_positions(positions), num_records)
    }

    /// [`Self::delete`] of the positions of another vector.
    ///
    /// # Errors
    /// As [`Self::delete`].
    pub fn delete_all(mut self, dead: &Self, num_records: u64) -> Result<Remains> {
        let died = self.merge(dead);
        if self.0.max().is_some_and(|last| last >= num_records) {
            let message =
                format!("deletion vector: a position is behind the file's {num_records} rows");
            return Err(Error::internal(message));
        }
        Ok(match died {
            0 => Remains::Unchanged,
            _ if self.len() == num_records => Remains::Nothing,
            _ => Remains::Some(self, died),
        })
    }
}

/// Reads the vector that a descriptor names and checks it against the descriptor.
///
/// # Errors
/// `CORRUPT` when size, checksum or count differ, `NOT_FOUND` when the file is gone.
pub async fn read(
    root: &TableRoot,
    descriptor: &DeletionVectorDescriptor,
) -> Result<DeletionVector> {
    let name = descriptor.unique_id();
    let damaged = |what: &str| Error::corrupt(format!("deletion vector {name}: {what}"));
    let size = usize::try_from(descriptor.size_in_bytes).map_err(|_| damaged("negative size"))?;
    let vector = match descriptor.storage_type.as_str() {
        "i" => {
            let bytes = z85::decode(&descriptor.path_or_inline_dv)
                .ok_or_else(|| damaged("inline bytes are no base85"))?;
            format::decode(
                &name,
                bytes.get(..size).ok_or_else(|| damaged("too few bytes"))?,
            )?
        }
        "u" => {
            let file = descriptor_file(&descriptor.path_or_inline_dv)
                .ok_or_else(|| damaged("no encoded UUID"))?;
            format::decode(&name, &read_frame(root, &file, descriptor, size).await?)?
        }
        _ => {
            return Err(Error::new(
                tidegate_change::Code::Unsupported,
                format!("deletion vector {name}: stored outside the table"),
            ));
        }
    };
    if i64::try_from(vector.len()).is_ok_and(|count| count == descriptor.cardinality) {
        Ok(vector)
    } else {
        Err(damaged("another number of rows than its descriptor says"))
    }
}

/// The vector of a file; empty where it has none.
///
/// # Errors
/// As [`read`].
pub async fn of_file(root: &TableRoot, file: &AddFile) -> Result<DeletionVector> {
    match &file.deletion_vector {
        None => Ok(DeletionVector::default()),
        Some(descriptor) => read(root, descriptor)
            .await
            .map_err(|e| e.context(format!("file {}", file.path))),
    }
}

async fn read_frame(
    root: &TableRoot,
    file: &str,
    descriptor: &DeletionVectorDescriptor,
    size: usize,
) -> Result<Bytes> {
    let damaged = |what: &str| Error::corrupt(format!("deletion vector {file}: {what}"));
    let start =
        u64::try_from(descriptor.offset.unwrap_or(1)).map_err(|_| damaged("negative offset"))?;
    let end = start + u64::try_from(size + 2 * FRAME_BYTES).unwrap_or(u64::MAX);
    let location = root.location(file)?;
    let bytes = root
        .store()
        .get_range(&location, start..end)
        .await
        .map_err(|e| storage(&location, e))?;
    if bytes.len() != size + 2 * FRAME_BYTES {
        return Err(damaged("file ends inside a vector"));
    }
    let number = |at: usize| {
        let field = bytes
            .get(at..at + FRAME_BYTES)
            .and_then(|field| field.try_into().ok());
        field.map(u32::from_be_bytes)
    };
    let data = bytes.slice(FRAME_BYTES..FRAME_BYTES + size);
    if number(0) != u32::try_from(size).ok() {
        return Err(damaged("another size than its descriptor says"));
    }
    if number(FRAME_BYTES + size) != Some(crc32fast::hash(&data)) {
        return Err(damaged("checksum differs"));
    }
    Ok(data)
}

/// Writes vectors of data files into one file and returns, in the same order, their descriptors.
///
/// No file is written for no vectors. `n` counts the vector files of the attempt.
///
/// # Errors
/// What the store says; `RESOURCE_EXHAUSTED` beyond the 2 GiB that offsets can tell.
pub async fn write_packed(
    root: &TableRoot,
    attempt: AttemptId,
    n: u32,
    vectors: &[DeletionVector],
) -> Result<Vec<DeletionVectorDescriptor>> {
    if vectors.is_empty() {
        return Ok(Vec::new());
    }
    let uuid = file_uuid(attempt, n)?;
    let encoded = z85::encode(uuid.as_bytes());
    let mut file = BytesMut::new();
    file.put_u8(FILE_VERSION);
    let too_large = |_| {
        let message = format!("deletion vectors of attempt {attempt}: more than 2 GiB in one file");
        Error::new(tidegate_change::Code::ResourceExhausted, message)
    };
    let mut descriptors = Vec::with_capacity(vectors.len());
    for vector in vectors {
        let offset = i32::try_from(file.len()).map_err(too_large)?;
        let data = format::encode(vector)?;
        let size_in_bytes = i32::try_from(data.len()).map_err(too_large)?;
        file.put_i32(size_in_bytes);
        file.put_slice(&data);
        file.put_u32(crc32fast::hash(&data));
        descriptors.push(DeletionVectorDescriptor {
            storage_type: "u".into(),
            path_or_inline_dv: encoded.clone(),
            offset: Some(offset),
            size_in_bytes,
            cardinality: i64::try_from(vector.len()).unwrap_or(i64::MAX),
        });
    }
    root.write(&file_name(uuid), file.freeze()).await?;
    Ok(descriptors)
}

#[cfg(test)]
mod dv_test;
