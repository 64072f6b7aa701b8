//! The object store for local directories.

use std::fmt;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path as FsPath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, RenameOptions, RenameTargetMode, Result, UploadPart,
};

use super::disk::{Disk, TEMPORARY_PREFIX, Temporary};
use super::step::StepHook;

const STORE: &str = "LocalStore";

/// Bytes of one chunk of a streamed read.
const CHUNK_BYTES: u64 = 8 << 20;

/// Objects as files below a directory; every write is durable when it returns.
///
/// A write goes to a temporary file in the target's directory, is synced, gets its name by hard link
/// (create) or rename (overwrite), and the directory is synced. The pinned `object_store` syncs nothing.
/// Calls block: local files answer faster than a thread changes hands.
#[derive(Clone, Debug)]
pub struct LocalStore {
    root: Arc<PathBuf>,
    disk: Disk,
}

impl fmt::Display for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{STORE}({})", self.root.display())
    }
}

impl LocalStore {
    /// A store of the objects below a directory, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: Arc::new(root.into()),
            disk: Disk::default(),
        }
    }

    /// The same store with a hook around every durable step.
    #[must_use]
    pub fn with_hook(mut self, hook: Option<Arc<dyn StepHook>>) -> Self {
        self.disk.hook = hook;
        self
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &FsPath {
        &self.root
    }

    /// Removes what writes that never ended left below a prefix; returns how many files.
    ///
    /// Only for the holder of the directory's lock: it cannot tell a dead writer's file from a live one's.
    ///
    /// # Errors
    /// The first file or directory that cannot be read or removed.
    pub fn remove_temporaries(&self, prefix: &Path) -> Result<u64> {
        let mut removed = 0;
        let mut directories = vec![self.file_path(prefix)];
        while let Some(directory) = directories.pop() {
            let entries = match fs::read_dir(&directory) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(|e| failed(&directory, e))?,
            };
            for entry in entries {
                let entry = entry.map_err(|e| failed(&directory, e))?;
                if entry
                    .file_type()
                    .map_err(|e| failed(&entry.path(), e))?
                    .is_dir()
                {
                    directories.push(entry.path());
                } else if is_temporary(&entry.file_name().to_string_lossy()) {
                    self.disk
                        .delete(&entry.path())
                        .map_err(|e| failed(&entry.path(), e))?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// Removes the directories at and below a prefix that hold nothing, children first.
    ///
    /// # Errors
    /// The first directory that cannot be read or removed.
    pub fn remove_empty_directories(&self, prefix: &Path) -> Result<()> {
        let mut directories = vec![self.file_path(prefix)];
        let mut next = 0;
        while let Some(directory) = directories.get(next).cloned() {
            next += 1;
            let entries = match fs::read_dir(&directory) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(|e| failed(&directory, e))?,
            };
            for entry in entries {
                let entry = entry.map_err(|e| failed(&directory, e))?;
                let kind = entry.file_type().map_err(|e| failed(&entry.path(), e))?;
                directories.extend(kind.is_dir().then(|| entry.path()));
            }
        }
        for directory in directories.iter().rev() {
            match fs::remove_dir(directory) {
                Err(e)
                    if !matches!(
                        e.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
                    ) =>
                {
                    return Err(failed(directory, e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn file_path(&self, location: &Path) -> PathBuf {
        let mut path = self.root.as_ref().clone();
        if !location.as_ref().is_empty() {
            path.push(location.as_ref());
        }
        path
    }

    fn write(&self, location: &Path, payload: &PutPayload, overwrite: bool) -> Result<PutResult> {
        let target = self.file_path(location);
        let placed = self.disk.temporary(&target).and_then(|mut temporary| {
            for part in payload {
                temporary.append(part)?;
            }
            temporary.place(&target, overwrite)
        });
        let metadata = placed.map_err(|e| failed(&target, e))?;
        Ok(PutResult {
            e_tag: Some(e_tag(&metadata)),
            version: None,
        })
    }

    fn object(&self, path: &FsPath, metadata: &fs::Metadata) -> Option<ObjectMeta> {
        let relative = path.strip_prefix(self.root.as_ref()).ok()?;
        Some(ObjectMeta {
            location: Path::parse(relative.to_str()?).ok()?,
            last_modified: modified(metadata),
            size: metadata.len(),
            e_tag: Some(e_tag(metadata)),
            version: None,
        })
    }

    /// The objects below a directory in name order; `keep` spares those that nobody asked for a stat.
    fn walk(
        &self,
        prefix: Option<&Path>,
        deep: bool,
        keep: &dyn Fn(&Path) -> bool,
    ) -> Result<ListResult> {
        let mut found = ListResult {
            common_prefixes: Vec::new(),
            objects: Vec::new(),
        };
        let mut directories =
            vec![prefix.map_or_else(|| self.root.to_path_buf(), |p| self.file_path(p))];
        while let Some(directory) = directories.pop() {
            let entries = match fs::read_dir(&directory) {
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) =>
                {
                    continue;
                }
                other => other.map_err(|e| failed(&directory, e))?,
            };
            for entry in entries {
                let entry = entry.map_err(|e| failed(&directory, e))?;
                let path = entry.path();
                let kind = entry.file_type().map_err(|e| failed(&path, e))?;
                let Some(location) = self.location(&path) else {
                    continue;
                };
                if kind.is_dir() && deep {
                    directories.push(path);
                } else if kind.is_dir() {
                    found.common_prefixes.push(location);
                } else if !is_temporary(&entry.file_name().to_string_lossy()) && keep(&location) {
                    match fs::metadata(&path) {
                        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                        Err(e) => return Err(failed(&path, e)),
                        Ok(metadata) => found.objects.extend(self.object(&path, &metadata)),
                    }
                }
            }
        }
        found.common_prefixes.sort();
        found.objects.sort_by(|a, b| a.location.cmp(&b.location));
        Ok(found)
    }

    fn location(&self, path: &FsPath) -> Option<Path> {
        Path::parse(path.strip_prefix(self.root.as_ref()).ok()?.to_str()?).ok()
    }

    fn list_kept(
        &self,
        prefix: Option<&Path>,
        keep: &dyn Fn(&Path) -> bool,
    ) -> Vec<Result<ObjectMeta>> {
        match self.walk(prefix, true, keep) {
            Ok(found) => found.objects.into_iter().map(Ok).collect(),
            Err(e) => vec![Err(e)],
        }
    }

    fn open(&self, location: &Path) -> Result<(fs::File, ObjectMeta)> {
        let path = self.file_path(location);
        let opened = fs::File::open(&path).and_then(|file| {
            let metadata = file.metadata()?;
            if metadata.is_dir() {
                Err(io::ErrorKind::NotFound.into())
            } else {
                Ok((file, metadata))
            }
        });
        let (file, metadata) = opened.map_err(|e| failed(&path, e))?;
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified: modified(&metadata),
            size: metadata.len(),
            e_tag: Some(e_tag(&metadata)),
            version: None,
        };
        Ok((file, meta))
    }

    fn copy_file(&self, from: &Path, to: &Path, overwrite: bool) -> Result<()> {
        let (source, target) = (self.file_path(from), self.file_path(to));
        let mut file = fs::File::open(&source).map_err(|e| failed(&source, e))?;
        let mut temporary = self
            .disk
            .temporary(&target)
            .map_err(|e| failed(&target, e))?;
        let mut buffer = vec![0; 1 << 20];
        loop {
            let count = file.read(&mut buffer).map_err(|e| failed(&source, e))?;
            let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            temporary.append(bytes).map_err(|e| failed(&target, e))?;
        }
        temporary
            .place(&target, overwrite)
            .map_err(|e| failed(&target, e))?;
        Ok(())
    }
}

#[async_trait]
impl ObjectStore for LocalStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        match opts.mode {
            PutMode::Overwrite => self.write(location, &payload, true),
            PutMode::Create => self.write(location, &payload, false),
            PutMode::Update(_) => Err(Error::NotImplemented {
                operation: "conditional update".into(),
                implementer: STORE.into(),
            }),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let target = self.file_path(location);
        let temporary = self
            .disk
            .temporary(&target)
            .map_err(|e| failed(&target, e))?;
        let temporary = Arc::new(Mutex::new(Some(temporary)));
        Ok(Box::new(LocalUpload { target, temporary }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (file, meta) = self.open(location)?;
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(range) => range.as_range(meta.size).map_err(|source| Error::Generic {
                store: STORE,
                source: Box::new(source),
            })?,
            None => 0..meta.size,
        };
        let payload = if options.head {
            GetResultPayload::Stream(stream::empty().boxed())
        } else {
            GetResultPayload::Stream(chunks(file, self.file_path(location), range.clone()))
        };
        Ok(GetResult {
            payload,
            meta,
            range,
            attributes: object_store::Attributes::default(),
        })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (mut file, meta) = self.open(location)?;
        let path = self.file_path(location);
        ranges
            .iter()
            .map(|range| {
                let range = range.start.min(meta.size)..range.end.min(meta.size);
                read_range(&mut file, range).map_err(|e| failed(&path, e))
            })
            .collect()
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .map(move |location| {
                let location = location?;
                let path = store.file_path(&location);
                store.disk.delete(&path).map_err(|e| failed(&path, e))?;
                Ok(location)
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::iter(self.list_kept(prefix, &|_| true)).boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::iter(self.list_kept(prefix, &|location| location > offset)).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.walk(prefix, false, &|_| true)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.copy_file(from, to, matches!(options.mode, CopyMode::Overwrite))
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.copy_file(
            from,
            to,
            matches!(options.target_mode, RenameTargetMode::Overwrite),
        )?;
        let source = self.file_path(from);
        self.disk.delete(&source).map_err(|e| failed(&source, e))
    }
}

/// An object written in parts, in the order in which they are put.
#[derive(Debug)]
struct LocalUpload {
    target: PathBuf,
    temporary: Arc<Mutex<Option<Temporary>>>,
}

impl LocalUpload {
    fn take(&self) -> Option<Temporary> {
        self.temporary
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

#[async_trait]
impl MultipartUpload for LocalUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        // ORDER: parts are written as they are put, so that futures polled out of order change nothing.
        let mut guard = self
            .temporary
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let written = match guard.as_mut() {
            None => Err(io::Error::other("the upload has ended")),
            Some(temporary) => data.iter().try_for_each(|part| temporary.append(part)),
        };
        let written = written.map_err(|e| failed(&self.target, e));
        Box::pin(std::future::ready(written))
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let ended = || failed(&self.target, io::Error::other("the upload has ended"));
        let temporary = self.take().ok_or_else(ended)?;
        let metadata = temporary
            .place(&self.target, true)
            .map_err(|e| failed(&self.target, e))?;
        Ok(PutResult {
            e_tag: Some(e_tag(&metadata)),
            version: None,
        })
    }

    async fn abort(&mut self) -> Result<()> {
        drop(self.take());
        Ok(())
    }
}

fn is_temporary(name: &str) -> bool {
    name.starts_with(TEMPORARY_PREFIX)
}

fn modified(metadata: &fs::Metadata) -> DateTime<Utc> {
    metadata
        .modified()
        .map_or(DateTime::UNIX_EPOCH, DateTime::from)
}

fn e_tag(metadata: &fs::Metadata) -> String {
    let since = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    format!(
        "{:x}-{:x}",
        since.unwrap_or_default().as_nanos(),
        metadata.len()
    )
}

fn read_range(file: &mut fs::File, range: Range<u64>) -> io::Result<Bytes> {
    let length = range.end.saturating_sub(range.start);
    let mut buffer = Vec::with_capacity(usize::try_from(length).map_err(io::Error::other)?);
    file.seek(SeekFrom::Start(range.start))?;
    Read::by_ref(file).take(length).read_to_end(&mut buffer)?;
    if u64::try_from(buffer.len()).is_ok_and(|read| read == length) {
        Ok(buffer.into())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

fn chunks(file: fs::File, path: PathBuf, range: Range<u64>) -> BoxStream<'static, Result<Bytes>> {
    let state = (file, path, range);
    stream::try_unfold(state, |(mut file, path, range)| async move {
        if range.is_empty() {
            return Ok(None);
        }
        let end = range.end.min(range.start + CHUNK_BYTES);
        let bytes = read_range(&mut file, range.start..end).map_err(|e| failed(&path, e))?;
        Ok(Some((bytes, (file, path, end..range.end))))
    })
    .boxed()
}

/// The store's error for a failed step; the I/O error stays in its chain.
fn failed(path: &FsPath, error: io::Error) -> Error {
    let source = Box::new(error);
    let path = path.display().to_string();
    match source.kind() {
        io::ErrorKind::NotFound => Error::NotFound { path, source },
        io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Error::PermissionDenied { path, source }
        }
        _ => Error::Generic {
            store: STORE,
            source,
        },
    }
}
