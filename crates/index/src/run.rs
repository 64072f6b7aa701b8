//! A run that is open for reading: its segment table and its file table are in memory, nothing else.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tidegate_change::Result;

use crate::entry::{FileRef, RawEntry};
use crate::error;
use crate::format::block::Block;
use crate::format::footer::{self, FOOTER_BYTES, Footer, Segment};
use crate::format::page::Page;
use crate::manifest::RunDescriptor;

/// Bytes at the end of a run that are read to open it; most runs need no more.
const TAIL_BYTES: u64 = 64 * 1024;
/// A segment is read as a whole when this many times the wanted blocks exceed it.
const WHOLE_FACTOR: u64 = 2;
/// About the bytes of a full block.
const BLOCK_BYTES: u64 = 4096;

/// A run that is open for reading.
#[derive(Debug)]
pub(crate) struct Run {
    store: Arc<dyn ObjectStore>,
    path: Path,
    segments: Vec<Segment>,
    files: Arc<[FileRef]>,
    last: u128,
}

/// A hash that is looked for, and its place in the question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub(crate) hash: u128,
    pub(crate) place: u32,
}

/// What a run knows of a probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub(crate) place: u32,
    pub(crate) code: u32,
    pub(crate) row: u32,
}

impl Run {
    /// Opens the run that a manifest names, with one or two reads.
    pub(crate) async fn open(
        store: &Arc<dyn ObjectStore>,
        root: &Path,
        descriptor: &RunDescriptor,
    ) -> Result<Self> {
        let path = path_below(root, &descriptor.path)?;
        let bytes = descriptor.bytes;
        let mut start = bytes.saturating_sub(TAIL_BYTES);
        let mut tail = read(store.as_ref(), &path, start..bytes).await?;
        let footer = tail
            .last_chunk::<FOOTER_BYTES>()
            .and_then(|chunk| Footer::open(chunk, bytes))
            .ok_or_else(|| error::corrupt(&path, "footer does not match its checksum"))?;
        if !descriptor.agrees_with(&footer) {
            return Err(error::corrupt(&path, "footer contradicts the manifest"));
        }
        if footer.segments_offset < start {
            start = footer.segments_offset;
            tail = read(store.as_ref(), &path, start..bytes).await?;
        }
        let part = |range: Range<u64>| slice(&tail, start, range);
        let segments = part(footer.segments_offset..footer.files_offset)
            .and_then(|bytes| footer::open_segments(&bytes, &footer))
            .ok_or_else(|| error::corrupt(&path, "segment table does not match its checksum"))?;
        let files = part(footer.files_offset..footer.footer_offset)
            .and_then(|bytes| footer::open_files(&bytes, &footer))
            .ok_or_else(|| error::corrupt(&path, "file table does not match its checksum"))?;
        let store = Arc::clone(store);
        Ok(Self {
            store,
            path,
            segments,
            files: files.into(),
            last: footer.last,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The files that entries name by their codes.
    pub(crate) fn files(&self) -> &Arc<[FileRef]> {
        &self.files
    }

    pub(crate) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// All entries of a segment, in hash order.
    pub(crate) async fn read_segment(&self, position: usize) -> Result<Vec<RawEntry>> {
        let Some(segment) = self.segments.get(position) else {
            return Ok(Vec::new());
        };
        let (bytes, page) = self.read_whole(segment).await?;
        let mut entries = Vec::with_capacity(size(segment.entries));
        for block in 0..page.len() {
            let range = self.block_range(&page, block)?;
            let bytes = bytes
                .get(size(range.start)..size(range.end))
                .unwrap_or_default();
            let block = self.open_block(bytes, segment, &page, block)?;
            entries.extend((0..block.len()).map(|position| block.entry(position)));
        }
        if entries.len() != size(segment.entries) {
            return Err(error::corrupt(&self.path, "segment lacks entries"));
        }
        Ok(entries)
    }

    /// Splits probes in hash order by the segments that may know them.
    pub(crate) fn split<'p>(&self, mut probes: &'p [Probe]) -> Vec<(&Segment, &'p [Probe])> {
        let mut parts = Vec::new();
        let mut segments = self.segments.iter();
        // Few probes against many segments: jump to the segment of each; else walk both.
        while let Some(probe) = probes.first() {
            let rest = segments.as_slice();
            let position = rest.partition_point(|segment| segment.first <= probe.hash);
            let Some(segment) = position.checked_sub(1).and_then(|p| rest.get(p)) else {
                let Some(next) = rest.first() else { break };
                probes = skip_below(probes, next.first);
                continue;
            };
            let end = match rest.get(position) {
                Some(next) => probes.partition_point(|p| p.hash < next.first),
                None => probes.partition_point(|p| p.hash <= self.last),
            };
            let (inside, beyond) = probes.split_at_checked(end).unwrap_or((probes, &[]));
            if !inside.is_empty() {
                parts.push((segment, inside));
            }
            probes = if rest.get(position).is_some() {
                beyond
            } else {
                &[]
            };
            segments = rest.get(position..).unwrap_or_default().iter();
        }
        parts
    }

    /// What a segment knows of its probes, which are in hash order.
    pub(crate) async fn search(&self, segment: &Segment, probes: &[Probe]) -> Result<Vec<Hit>> {
        let whole = segment.range().end - segment.offset;
        let wanted = u64::try_from(probes.len())
            .unwrap_or(u64::MAX)
            .saturating_mul(BLOCK_BYTES);
        let mut hits = Vec::with_capacity(probes.len());
        if wanted.saturating_mul(WHOLE_FACTOR) >= whole {
            let (bytes, page) = self.read_whole(segment).await?;
            for (block, probes) in split_by_block(&page, probes) {
                let range = self.block_range(&page, block)?;
                let bytes = bytes
                    .get(size(range.start)..size(range.end))
                    .unwrap_or_default();
                search_block(
                    self.open_block(bytes, segment, &page, block)?,
                    probes,
                    &mut hits,
                );
            }
            return Ok(hits);
        }
        let bytes = read(self.store.as_ref(), &self.path, segment.page_range()).await?;
        let page = self.open_page(&bytes, segment)?;
        let parts = split_by_block(&page, probes);
        let mut ranges = Vec::with_capacity(parts.len());
        for (block, _) in &parts {
            ranges.push(self.block_range(&page, *block)?);
        }
        let together = join(&ranges);
        let absolute: Vec<_> = together
            .iter()
            .map(|r| segment.offset + u64::from(r.start)..segment.offset + u64::from(r.end))
            .collect();
        let pieces = self
            .store
            .get_ranges(&self.path, &absolute)
            .await
            .map_err(|e| error::storage(&self.path, e))?;
        let mut pieces = together.iter().zip(&pieces).peekable();
        for ((block, probes), range) in parts.iter().zip(&ranges) {
            while pieces
                .next_if(|(piece, _)| piece.end <= range.start)
                .is_some()
            {}
            let bytes = pieces.peek().and_then(|(piece, bytes)| {
                bytes.get(size(range.start - piece.start)..size(range.end - piece.start))
            });
            let bytes = bytes.ok_or_else(|| error::corrupt(&self.path, "ends too early"))?;
            search_block(
                self.open_block(bytes, segment, &page, *block)?,
                probes,
                &mut hits,
            );
        }
        Ok(hits)
    }

    async fn read_whole(&self, segment: &Segment) -> Result<(Bytes, Page)> {
        let bytes = read(self.store.as_ref(), &self.path, segment.range()).await?;
        let page = bytes.get(size(segment.blocks_bytes)..).unwrap_or_default();
        let page = self.open_page(page, segment)?;
        Ok((bytes, page))
    }

    fn open_page(&self, bytes: &[u8], segment: &Segment) -> Result<Page> {
        Page::open(bytes, segment.page_offset(), segment.blocks_bytes)
            .filter(|page| page.first(0) == Some(segment.first))
            .ok_or_else(|| error::corrupt(&self.path, "page does not match its checksum"))
    }

    fn block_range(&self, page: &Page, block: usize) -> Result<Range<u32>> {
        page.range(block)
            .ok_or_else(|| error::corrupt(&self.path, "page lacks a block"))
    }

    fn open_block<'b>(
        &self,
        bytes: &'b [u8],
        segment: &Segment,
        page: &Page,
        block: usize,
    ) -> Result<Block<'b>> {
        let start = self.block_range(page, block)?.start;
        Block::open(bytes, segment.offset + u64::from(start))
            .filter(|opened| page.first(block) == Some(opened.first()))
            .ok_or_else(|| error::corrupt(&self.path, "block does not match its checksum"))
    }
}

/// The object's path: the table's root and a path below it.
pub(crate) fn path_below(root: &Path, relative: &str) -> Result<Path> {
    let below = Path::parse(relative).map_err(|e| {
        tidegate_change::Error::corrupt(format!("index manifest: {relative:?} is no path"))
            .with_source(e)
    })?;
    Ok(root.parts().chain(below.parts()).collect())
}

/// Reads exactly these bytes.
async fn read(store: &dyn ObjectStore, path: &Path, range: Range<u64>) -> Result<Bytes> {
    let length = range.end - range.start;
    if length == 0 {
        return Ok(Bytes::new());
    }
    let end = range.end;
    let bytes = match store.get_range(path, range).await {
        Ok(bytes) => bytes,
        // Every store has its own answer to a range behind the end.
        Err(e) => {
            return Err(match store.head(path).await {
                Ok(object) if object.size < end => error::corrupt(path, "ends too early"),
                Ok(_) | Err(_) => error::storage(path, e),
            });
        }
    };
    if u64::try_from(bytes.len()) != Ok(length) {
        return Err(error::corrupt(path, "ends too early"));
    }
    Ok(bytes)
}

fn slice(tail: &Bytes, start: u64, range: Range<u64>) -> Option<Bytes> {
    let from = usize::try_from(range.start.checked_sub(start)?).ok()?;
    let to = usize::try_from(range.end.checked_sub(start)?).ok()?;
    (from <= to && to <= tail.len()).then(|| tail.slice(from..to))
}

fn skip_below(probes: &[Probe], hash: u128) -> &[Probe] {
    probes
        .get(probes.partition_point(|p| p.hash < hash)..)
        .unwrap_or_default()
}

/// Splits probes in hash order by the blocks that may know them.
fn split_by_block<'p>(page: &Page, mut probes: &'p [Probe]) -> Vec<(usize, &'p [Probe])> {
    let mut parts = Vec::new();
    for block in 0..page.len() {
        let end = match page.first(block + 1) {
            Some(next) => probes
                .iter()
                .position(|p| p.hash >= next)
                .unwrap_or(probes.len()),
            None => probes.len(),
        };
        let (inside, beyond) = probes.split_at_checked(end).unwrap_or((probes, &[]));
        if !inside.is_empty() {
            parts.push((block, inside));
        }
        probes = beyond;
    }
    parts
}

fn search_block(block: Block<'_>, probes: &[Probe], hits: &mut Vec<Hit>) {
    /// Above this share of a block, walking it beats halving it for each probe.
    const WALK_SHARE: usize = 16;
    let walk = probes.len() * WALK_SHARE >= block.len();
    let mut position = 0;
    for probe in probes {
        if walk {
            while position < block.len() && block.hash(position) < probe.hash {
                position += 1;
            }
        } else {
            position = block.lower_bound(probe.hash, position);
        }
        if position < block.len() {
            let entry = block.entry(position);
            if entry.hash == probe.hash {
                hits.push(Hit {
                    place: probe.place,
                    code: entry.code,
                    row: entry.row,
                });
            }
        }
    }
}

/// Joins ascending ranges that touch. A local read of a block costs less than copying a block that nobody
/// wants; stores with dear requests join further ranges themselves (`get_ranges`).
fn join(ranges: &[Range<u32>]) -> Vec<Range<u32>> {
    let mut joined: Vec<Range<u32>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start == last.end => last.end = range.end,
            _ => joined.push(range.clone()),
        }
    }
    joined
}

fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
