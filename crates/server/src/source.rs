//! The sources of a batch: which files they are, and what tells their content.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tidegate_apply::work::{SourceFile, SourceInput};
use tidegate_change::{Code, Digest, Error, Result};
use tidegate_decode::FileFormat;

use crate::glob;
use crate::spool::{Spool, SpoolDirectory};
use crate::stores::{self, Address, RemoteStores};

/// Name that standard input has in errors and in `_source_file`.
const STDIN_NAME: &str = "-";
/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;
/// Begins every input digest, so that a change of what is hashed changes all of them.
const DIGEST_CONTEXT: &str = "tidegate input digest 1";

/// A source as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceArgument {
    /// A file, a directory, or a pattern.
    Path(String),
    /// Standard input.
    Stdin,
}

impl SourceArgument {
    /// The source that a word of the command line names.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if text == STDIN_NAME {
            Self::Stdin
        } else {
            Self::Path(text.to_owned())
        }
    }
}

/// A file that a source names: standard input has no path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalFile {
    /// Name that errors, rejects and `_source_file` show.
    pub name: String,
    /// Where it is.
    pub path: Option<PathBuf>,
}

/// The files that the arguments name, in their order; directories in name order.
///
/// # Errors
/// `NOT_FOUND` for a source that names no file, `UNSUPPORTED` for an address, or what the disk says.
pub fn local_files(arguments: &[SourceArgument]) -> Result<Vec<LocalFile>> {
    let mut files = Vec::new();
    for argument in arguments {
        match argument {
            SourceArgument::Stdin => files.push(LocalFile {
                name: STDIN_NAME.to_owned(),
                path: None,
            }),
            SourceArgument::Path(text) => {
                files.extend(expand(text)?.into_iter().map(|(name, path)| LocalFile {
                    name,
                    path: Some(path),
                }));
            }
        }
    }
    if files.is_empty() {
        return Err(no_file());
    }
    Ok(files)
}

fn no_file() -> Error {
    Error::new(Code::InvalidArgument, "the sources hold no file")
}

/// The files of a batch; what was spooled of them goes with this value.
#[derive(Debug, Default)]
pub(crate) struct SourceSet {
    pub(crate) files: Vec<SourceFile>,
    spooled: Vec<PathBuf>,
    spool: Option<SpoolDirectory>,
}

impl Drop for SourceSet {
    fn drop(&mut self) {
        for path in &self.spooled {
            let _ = fs::remove_file(path);
        }
    }
}

impl SourceSet {
    /// Files that came by stream, with the directory that holds them.
    pub(crate) fn spooled(files: Vec<SourceFile>, directory: SpoolDirectory) -> Self {
        Self {
            files,
            spooled: Vec::new(),
            spool: Some(directory),
        }
    }

    /// The files that the arguments name, in their order; directories and prefixes in name order.
    pub(crate) async fn collect(
        arguments: &[SourceArgument],
        format: Option<FileFormat>,
        spool: &Spool,
        stores: &RemoteStores,
    ) -> Result<Self> {
        let mut set = Self::default();
        for argument in arguments {
            match argument {
                SourceArgument::Path(text) if Address::is_one(text) => {
                    set.fetch(&Address::parse(text)?, format, spool, stores)
                        .await?;
                }
                local => set.collect_local(local, format, spool)?,
            }
        }
        if set.files.is_empty() {
            return Err(no_file());
        }
        Ok(set)
    }

    fn collect_local(
        &mut self,
        argument: &SourceArgument,
        format: Option<FileFormat>,
        spool: &Spool,
    ) -> Result<()> {
        for LocalFile { name, path } in local_files(std::slice::from_ref(argument))? {
            let path = match path {
                Some(path) => path,
                None => self.spool_stdin(spool.directory())?,
            };
            self.push(name, path, format);
        }
        Ok(())
    }

    /// Brings the objects of an address to this machine.
    pub(crate) async fn fetch(
        &mut self,
        address: &Address,
        format: Option<FileFormat>,
        spool: &Spool,
        stores: &RemoteStores,
    ) -> Result<()> {
        let mut directory = match self.spool.take() {
            Some(directory) => directory,
            None => spool.open()?,
        };
        let fetched = stores::fetch(stores, address, &mut directory, self.files.len()).await;
        self.spool = Some(directory);
        for (name, path) in fetched? {
            self.push(name, path, format);
        }
        Ok(())
    }

    pub(crate) fn push(&mut self, name: String, path: PathBuf, format: Option<FileFormat>) {
        self.files.push(SourceFile {
            name,
            input: SourceInput::Path(path),
            format,
        });
    }

    /// Digest of names and bytes of all files: what the submitter sent, and nothing of the table.
    pub(crate) fn digest(&self) -> Result<Digest> {
        let mut digest = InputDigest::default();
        let mut buffer = vec![0; READ_BYTES];
        for file in &self.files {
            digest.begin(&file.name);
            match &file.input {
                SourceInput::Bytes(bytes) => digest.update(bytes),
                SourceInput::Path(path) | SourceInput::Shared(path) => digest
                    .update_from(path, &mut buffer)
                    .map_err(|e| Error::io(path.display(), e))?,
            }
            digest.end();
        }
        Ok(digest.finish())
    }

    fn spool_stdin(&mut self, spool: &Path) -> Result<PathBuf> {
        fs::create_dir_all(spool).map_err(|e| Error::io(spool.display(), e))?;
        let path = spool.join(format!(
            "stdin-{}-{}",
            std::process::id(),
            self.spooled.len()
        ));
        let mut file = File::create(&path).map_err(|e| Error::io(path.display(), e))?;
        self.spooled.push(path.clone());
        io::copy(&mut io::stdin().lock(), &mut file).map_err(|e| Error::io("standard input", e))?;
        Ok(path)
    }
}

/// Digest of files, as their bytes come.
#[derive(Debug)]
pub(crate) struct InputDigest {
    hasher: blake3::Hasher,
    file_bytes: u64,
}

impl Default for InputDigest {
    fn default() -> Self {
        Self {
            hasher: blake3::Hasher::new_derive_key(DIGEST_CONTEXT),
            file_bytes: 0,
        }
    }
}

impl InputDigest {
    /// Begins a file.
    pub(crate) fn begin(&mut self, name: &str) {
        self.hasher.update(&(name.len() as u64).to_le_bytes());
        self.hasher.update(name.as_bytes());
        self.file_bytes = 0;
    }

    /// Adds the next bytes of the file.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.file_bytes += bytes.len() as u64;
    }

    /// Ends the file.
    pub(crate) fn end(&mut self) {
        self.hasher.update(&self.file_bytes.to_le_bytes());
    }

    /// The digest of all files.
    pub(crate) fn finish(&self) -> Digest {
        Digest(*self.hasher.finalize().as_bytes())
    }

    fn update_from(&mut self, path: &Path, buffer: &mut [u8]) -> io::Result<()> {
        let mut file = File::open(path)?;
        loop {
            let count = file.read(buffer)?;
            if count == 0 {
                return Ok(());
            }
            self.update(buffer.get(..count).unwrap_or_default());
        }
    }
}

/// The files of one argument, with the names that errors and `_source_file` show.
pub(crate) fn expand(text: &str) -> Result<Vec<(String, PathBuf)>> {
    if let Some((scheme, _)) = text.split_once("://") {
        let message = format!("source {text}: store {scheme} is not supported here");
        return Err(Error::new(Code::Unsupported, message));
    }
    let path = Path::new(text);
    let base = |path: &Path| {
        let name = path.file_name().unwrap_or(path.as_os_str());
        name.to_string_lossy().into_owned()
    };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(_) if glob::is_pattern(text) => {
            let files = glob::expand(text)?;
            if files.is_empty() {
                return Err(Error::new(
                    Code::NotFound,
                    format!("source {text}: names no file"),
                ));
            }
            return Ok(files.into_iter().map(|path| (base(&path), path)).collect());
        }
        Err(e) => return Err(Error::io(format!("source {text}"), e)),
    };
    if !metadata.is_dir() {
        return Ok(vec![(base(path), path.to_owned())]);
    }
    let mut files = Vec::new();
    files_below(path, "", &mut files)?;
    files.sort();
    if files.is_empty() {
        return Err(Error::new(
            Code::NotFound,
            format!("source {text}: the directory holds no file"),
        ));
    }
    Ok(files)
}

fn files_below(directory: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) -> Result<()> {
    for entry in fs::read_dir(directory).map_err(|e| Error::io(directory.display(), e))? {
        let entry = entry.map_err(|e| Error::io(directory.display(), e))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let path = entry.path();
        if path.is_dir() {
            files_below(&path, &format!("{prefix}{name}/"), files)?;
        } else {
            files.push((format!("{prefix}{name}"), path));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_is_read_in_name_order_and_named_from_its_top() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("b")).unwrap();
        for name in ["z.jsonl", "b/x.jsonl", "a.jsonl", ".hidden"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        let argument = SourceArgument::parse(&dir.path().display().to_string());
        let (spool, stores) = (
            Spool::new(dir.path().join(".spool"), 1 << 20),
            RemoteStores::default(),
        );
        let set = SourceSet::collect(&[argument], None, &spool, &stores).await;
        let set = set.unwrap();
        let names: Vec<_> = set.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["a.jsonl", "b/x.jsonl", "z.jsonl"]);
        let before = set.digest().unwrap();
        assert_eq!(before, set.digest().unwrap());
        fs::write(dir.path().join("z.jsonl"), "other").unwrap();
        assert_ne!(before, set.digest().unwrap());
    }
}
