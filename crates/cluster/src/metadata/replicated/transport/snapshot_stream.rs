//! A state as a stream of bounded chunks: its tables one by one, then its head, which counts them.
//!
//! An item is its length, the length of an id, the id and a stored form with its checksum; the head has
//! an empty id. Neither side holds more than an item and a chunk beside the state itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde::{Deserialize, Serialize};
use tidegate_change::{Code, Error, Result};

use crate::metadata::replicated::store::{AppliedState, StateHead, decode, encode, table_sum};
use crate::metadata::replicated::types::{SnapshotMeta, Vote};
use crate::metadata::{TableId, TableState};

/// Bytes of a chunk, roughly.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes of an item beyond which a snapshot is refused.
const ITEM_BYTES_MAX: usize = 8 << 20;
/// Tables beyond which a snapshot is refused.
const TABLES_MAX: usize = 1 << 20;
const LENGTH_BYTES: usize = 4;

/// What goes before the chunks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SnapshotHeader {
    /// The leader's vote.
    pub(super) vote: Vote,
    /// Position and membership of the state.
    pub(super) meta: SnapshotMeta,
}

/// What is left to send of a state.
struct Outgoing {
    state: AppliedState,
    /// The table that was sent last.
    after: Option<TableId>,
    sum: u64,
    is_done: bool,
}

/// The chunks of a state.
pub(super) fn chunks_of(state: AppliedState) -> BoxStream<'static, Result<Bytes>> {
    let outgoing = Outgoing {
        state,
        after: None,
        sum: 0,
        is_done: false,
    };
    stream::try_unfold(outgoing, |mut outgoing| async move {
        let chunk = outgoing.next_chunk()?;
        Ok(chunk.map(|chunk| (chunk, outgoing)))
    })
    .boxed()
}

impl Outgoing {
    fn next_chunk(&mut self) -> Result<Option<Bytes>> {
        if self.is_done {
            return Ok(None);
        }
        let mut chunk = BytesMut::new();
        let from = match &self.after {
            None => std::ops::Bound::Unbounded,
            Some(after) => std::ops::Bound::Excluded(after.clone()),
        };
        let tables = Arc::clone(&self.state.state);
        for (id, table) in tables.tables.range((from, std::ops::Bound::Unbounded)) {
            let frame = encode("a table", table.as_ref())?;
            self.sum = self.sum.wrapping_add(table_sum(id, &frame));
            self.after = Some(id.clone());
            put_item(&mut chunk, &id.0, &frame)?;
            if chunk.len() >= CHUNK_BYTES {
                return Ok(Some(chunk.freeze()));
            }
        }
        let head = encode("the state", &StateHead::of(&self.state, self.sum))?;
        put_item(&mut chunk, "", &head)?;
        self.is_done = true;
        Ok(Some(chunk.freeze()))
    }
}

fn put_item(chunk: &mut BytesMut, id: &str, frame: &[u8]) -> Result<()> {
    let too_large =
        || Error::internal(format!("table {id}: its state is too large for a snapshot"));
    let length = LENGTH_BYTES + id.len() + frame.len();
    let length_bytes = u32::try_from(length).map_err(|_| too_large())?;
    if length > ITEM_BYTES_MAX {
        return Err(too_large());
    }
    let id_bytes = u32::try_from(id.len()).map_err(|_| too_large())?;
    chunk.extend_from_slice(&length_bytes.to_le_bytes());
    chunk.extend_from_slice(&id_bytes.to_le_bytes());
    chunk.extend_from_slice(id.as_bytes());
    chunk.extend_from_slice(frame);
    Ok(())
}

/// Puts a state together again.
#[derive(Debug, Default)]
pub(super) struct SnapshotReceiver {
    /// What is not a whole item yet.
    rest: BytesMut,
    tables: BTreeMap<TableId, Arc<TableState>>,
    sum: u64,
    head: Option<StateHead>,
}

impl SnapshotReceiver {
    /// Takes the next chunk.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for what is no snapshot, `CORRUPT` where it contradicts a checksum.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Result<()> {
        self.rest.extend_from_slice(chunk);
        while let Some(length) = self.rest.first_chunk::<LENGTH_BYTES>() {
            let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
            if length > ITEM_BYTES_MAX {
                return Err(malformed("holds an item that is too large"));
            }
            if self.rest.len() < LENGTH_BYTES + length {
                break;
            }
            let item = self.rest.split_to(LENGTH_BYTES + length);
            let item = item.get(LENGTH_BYTES..).unwrap_or_default();
            self.take_item(item)?;
        }
        Ok(())
    }

    fn take_item(&mut self, item: &[u8]) -> Result<()> {
        if self.head.is_some() {
            return Err(malformed("goes on after its end"));
        }
        let (length, rest) = item
            .split_first_chunk::<LENGTH_BYTES>()
            .ok_or_else(|| malformed("is cut short"))?;
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (id, frame) = rest
            .split_at_checked(length)
            .ok_or_else(|| malformed("is cut short"))?;
        if id.is_empty() {
            self.head = Some(decode("the state", frame)?);
            return Ok(());
        }
        let id = std::str::from_utf8(id).map_err(|_| malformed("has a table without id"))?;
        let id = TableId(id.to_owned());
        self.sum = self.sum.wrapping_add(table_sum(&id, frame));
        let table: TableState = decode("a table", frame)?;
        if self.tables.insert(id, Arc::new(table)).is_some() || self.tables.len() > TABLES_MAX {
            return Err(malformed("has too many tables"));
        }
        Ok(())
    }

    /// The state, which must be whole.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(super) fn finish(self) -> Result<AppliedState> {
        let head = self.head.ok_or_else(|| malformed("is cut short"))?;
        if !self.rest.is_empty() {
            return Err(malformed("goes on after its end"));
        }
        head.assemble(self.tables, self.sum)
    }
}

fn malformed(how: &str) -> Error {
    Error::new(
        Code::InvalidArgument,
        format!("a snapshot of the metadata {how}"),
    )
}

#[cfg(test)]
mod tests {
    use tidegate_change::WriterId;

    use super::*;
    use crate::metadata::{CreateTable, Entry, State, apply};

    fn state(tables: u64) -> AppliedState {
        let mut state = State::new(WriterId(7));
        for n in 0..tables {
            let name = format!("{n:0>400}");
            let entry = Entry::CreateTable(CreateTable {
                epoch: None,
                table: TableId(format!("id{n}")),
                location: name.clone(),
                name,
            });
            apply(&mut state, n + 1, &entry);
        }
        AppliedState {
            state: Arc::new(state),
            ..AppliedState::default()
        }
    }

    async fn bytes_of(state: &AppliedState) -> Vec<Bytes> {
        let chunks: Vec<_> = chunks_of(state.clone()).collect().await;
        chunks.into_iter().map(Result::unwrap).collect()
    }

    fn receive(chunks: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<AppliedState> {
        let mut receiver = SnapshotReceiver::default();
        for chunk in chunks {
            receiver.push(chunk.as_ref())?;
        }
        receiver.finish()
    }

    #[tokio::test]
    async fn a_state_comes_back_from_its_chunks_however_they_are_cut() {
        for tables in [0, 1, 2_000] {
            let state = state(tables);
            let chunks = bytes_of(&state).await;
            assert!(chunks.iter().all(|chunk| chunk.len() < 2 * CHUNK_BYTES));
            assert_eq!(chunks.len() > 3, tables > 1_000);
            assert_eq!(receive(&chunks).unwrap().state, state.state);
            let whole = chunks.concat();
            for size in [1_000, 77_777] {
                assert_eq!(receive(whole.chunks(size)).unwrap().state, state.state);
            }
        }
    }

    #[tokio::test]
    async fn a_state_that_is_not_whole_is_refused() {
        let whole = bytes_of(&state(20)).await.concat();
        for length in (0..whole.len()).step_by(37) {
            assert!(receive([&whole[..length]]).is_err(), "cut to {length}");
        }
        for at in (0..whole.len()).step_by(11) {
            let mut flipped = whole.clone();
            flipped[at] ^= 4;
            let received = receive([&flipped]);
            assert!(received.is_err(), "byte {at} flipped");
        }
        let mut longer = whole.clone();
        longer.extend_from_slice(&whole);
        assert!(receive([&longer]).is_err());
        // A table left out is missed, though every item is whole.
        let item = usize::try_from(u32::from_le_bytes(*whole.first_chunk().unwrap())).unwrap();
        assert!(receive([&whole[LENGTH_BYTES + item..]]).is_err());
    }
}
