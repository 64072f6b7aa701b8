//! What an input is: format, compression, and a reader that refuses to blow up.

use std::fs::{self, File};
use std::io::{self, BufReader, Cursor, Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidegate_change::{Code, Error, Result};

/// Bytes that are looked at to tell what a file is.
const SNIFF_BYTES: usize = 512;
/// Decompressed bytes that are taken whatever the ratio.
const RATIO_FREE_BYTES: u64 = 256 << 20;
/// Most decompressed bytes for one compressed byte beyond that.
const RATIO_MAX: u64 = 1000;

/// Bytes of a Parquet file that came compressed or as a stream and is held in memory; a larger one is
/// unpacked to a file, because its end must be read first.
const UNPACKED_BYTES_MAX: u64 = 64 << 20;

/// How a file holds records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileFormat {
    /// One JSON value a line.
    JsonLines,
    /// RFC 4180 with a header.
    Csv,
    /// Apache Parquet.
    Parquet,
    /// One record of a broker a line: a JSON object with `value` as text, and `key`, `topic`, `partition`,
    /// `offset` and `headers` where there are any. Never told from content or name.
    Records,
}

impl FileFormat {
    /// The format that `--format` names.
    ///
    /// # Errors
    /// `UNSUPPORTED` for `avro`, `INVALID_ARGUMENT` for an unknown word.
    pub fn from_word(word: &str) -> Result<Self> {
        match word.to_ascii_lowercase().as_str() {
            "jsonl" | "json" | "ndjson" => Ok(Self::JsonLines),
            "csv" => Ok(Self::Csv),
            "parquet" => Ok(Self::Parquet),
            "avro" => Err(avro()),
            _ => Err(Error::new(
                Code::InvalidArgument,
                format!("file format {word:?} is unknown"),
            )
            .with_hint("use jsonl, csv or parquet")),
        }
    }

    /// The format that the end of a name tells, below a compression's suffix.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match end_of(name)?.as_str() {
            "jsonl" | "json" | "ndjson" => Some(Self::JsonLines),
            "csv" => Some(Self::Csv),
            "parquet" | "parq" => Some(Self::Parquet),
            _ => None,
        }
    }
}

fn avro() -> Error {
    Error::new(Code::Unsupported, "Avro files are not read by this build")
        .with_hint("use JSON lines, CSV or Parquet")
}

/// Where the bytes come from.
pub enum Input {
    /// A stream.
    Read(Box<dyn Read + Send>),
    /// A file, read from its start.
    File(File),
    /// Bytes in memory.
    Bytes(Bytes),
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read(_) => "Input::Read",
            Self::File(_) => "Input::File",
            Self::Bytes(_) => "Input::Bytes",
        })
    }
}

/// An input whose format is known.
pub(crate) enum Opened {
    /// Decompressed text.
    Text(OpenedText),
    /// A Parquet file: bytes in memory or a file.
    Parquet(Input),
}

/// Text of a known format.
pub(crate) struct OpenedText {
    pub(crate) format: FileFormat,
    /// Whether neither the name nor `--format` said so.
    pub(crate) is_guessed: bool,
    pub(crate) reader: Box<dyn Read + Send>,
    /// How many bytes of the input were taken so far.
    pub(crate) taken: Arc<AtomicU64>,
}

/// Tells what an input is: by content, then by name, unless `format` says it. What must be unpacked and is
/// large goes to a file in the directory `scratch`.
pub(crate) fn identify(
    format: Option<FileFormat>,
    name: &str,
    input: Input,
    scratch: Option<&Path>,
) -> Result<Opened> {
    let failed = |e| Error::io(name, e);
    let (start, input) = peek(input).map_err(failed)?;
    if start.starts_with(b"PAR1") || format == Some(FileFormat::Parquet) {
        return Ok(Opened::Parquet(match input {
            Input::Read(reader) => unpack(name, reader, scratch)?,
            Input::File(_) | Input::Bytes(_) => input,
        }));
    }
    let gzip = start.starts_with(&[0x1f, 0x8b]);
    let zstd = start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
    let taken = Arc::new(AtomicU64::new(0));
    let reader: Box<dyn Read + Send> = Box::new(Counted {
        reader: raw_reader(input),
        taken: Arc::clone(&taken),
    });
    let (start, reader) = if gzip || zstd {
        let decompressed = decompress(reader, &taken, gzip).map_err(failed)?;
        peek_reader(decompressed).map_err(|e| unreadable(e).context(name))?
    } else {
        (start, reader)
    };
    if start.starts_with(b"Obj\x01") && format.is_none() {
        return Err(avro().context(name));
    }
    if start.starts_with(b"PAR1") {
        return unpack(name, reader, scratch).map(Opened::Parquet);
    }
    let told = format.or_else(|| FileFormat::from_name(name));
    let format = match told {
        Some(format) => format,
        None => by_text(name, &start)?,
    };
    Ok(Opened::Text(OpenedText {
        format,
        is_guessed: told.is_none(),
        reader,
        taken,
    }))
}

/// Why text cannot be read on: what unpacks it finds it damaged, or storage fails.
pub(crate) fn unreadable(error: io::Error) -> Error {
    // Only failures of the system have its number; the others are those of the decompressors.
    if error.raw_os_error().is_some() {
        return Error::io("the file", error);
    }
    Error::new(Code::InvalidRecord, "the compressed data is damaged").with_source(error)
}

/// The refusal of a file of which nothing tells what it holds.
pub(crate) fn untold() -> Error {
    let message = "neither content nor name tells what the file holds";
    Error::new(Code::InvalidRecord, message).with_hint("say it with --format jsonl, csv or parquet")
}

/// A stream as something that can be read at positions.
fn unpack(name: &str, mut reader: Box<dyn Read + Send>, scratch: Option<&Path>) -> Result<Input> {
    let mut bytes = Vec::new();
    let mut read = reader.by_ref().take(UNPACKED_BYTES_MAX + 1);
    read.read_to_end(&mut bytes)
        .map_err(|e| unreadable(e).context(name))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= UNPACKED_BYTES_MAX) {
        return Ok(Input::Bytes(bytes.into()));
    }
    let Some(directory) = scratch else {
        let message = format!("{name}: a Parquet file of more than 64 MiB inside a stream");
        return Err(Error::new(Code::ResourceExhausted, message)
            .with_hint("unpack it and give the file itself"));
    };
    let file = scratch_file(directory).and_then(|mut file| {
        file.write_all(&bytes)?;
        io::copy(&mut reader, &mut file)?;
        file.rewind()?;
        Ok(file)
    });
    file.map(Input::File).map_err(|e| Error::io(name, e))
}

/// A file that is gone when it is closed, whatever ends the process.
fn scratch_file(directory: &Path) -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    fs::create_dir_all(directory)?;
    let path = directory.join(format!("unpacked-{}-{number}", std::process::id()));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// The format of text whose name does not tell it. CSV has no mark of its own: text is taken for it only
/// where the name leaves that open.
fn by_text(name: &str, start: &[u8]) -> Result<FileFormat> {
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    match start.trim_ascii_start() {
        [] | [b'{', ..] | [b'n', b'u', b'l', b'l', ..] => Ok(FileFormat::JsonLines),
        [b'[', ..] => Err(untold().context(name)),
        _ if matches!(end_of(name).as_deref(), None | Some("txt")) => Ok(FileFormat::Csv),
        _ => Err(untold().context(name)),
    }
}

/// The end of a name below a compression's suffix, in lower case.
fn end_of(name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let bare = [".gz", ".gzip", ".zst", ".zstd"]
        .iter()
        .find_map(|end| name.strip_suffix(end));
    let base = bare.unwrap_or(&name).rsplit('/').next()?;
    base.rsplit_once('.').map(|(_, end)| end.to_owned())
}

fn raw_reader(input: Input) -> Box<dyn Read + Send> {
    match input {
        Input::Read(reader) => reader,
        Input::File(file) => Box::new(BufReader::with_capacity(1 << 20, file)),
        Input::Bytes(bytes) => Box::new(Cursor::new(bytes)),
    }
}

fn peek(input: Input) -> io::Result<(Vec<u8>, Input)> {
    match input {
        Input::Bytes(bytes) => {
            let start = bytes
                .get(..SNIFF_BYTES.min(bytes.len()))
                .unwrap_or_default()
                .to_vec();
            Ok((start, Input::Bytes(bytes)))
        }
        Input::File(mut file) => {
            use std::io::{Seek, SeekFrom};
            // A pipe cannot seek; it is read as a stream then.
            if file.seek(SeekFrom::Start(0)).is_err() {
                let (start, reader) = peek_reader(Box::new(file))?;
                return Ok((start, Input::Read(reader)));
            }
            let start = read_start(&mut file)?;
            file.seek(SeekFrom::Start(0))?;
            Ok((start, Input::File(file)))
        }
        Input::Read(reader) => {
            let (start, reader) = peek_reader(reader)?;
            Ok((start, Input::Read(reader)))
        }
    }
}

fn peek_reader(mut reader: Box<dyn Read + Send>) -> io::Result<(Vec<u8>, Box<dyn Read + Send>)> {
    let start = read_start(&mut reader)?;
    let whole = Cursor::new(start.clone()).chain(reader);
    Ok((start, Box::new(whole)))
}

fn read_start(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(SNIFF_BYTES);
    let limit = u64::try_from(SNIFF_BYTES).unwrap_or(u64::MAX);
    reader.by_ref().take(limit).read_to_end(&mut start)?;
    Ok(start)
}

fn decompress(
    counted: Box<dyn Read + Send>,
    taken: &Arc<AtomicU64>,
    gzip: bool,
) -> io::Result<Box<dyn Read + Send>> {
    let inner: Box<dyn Read + Send> = if gzip {
        Box::new(flate2::read::MultiGzDecoder::new(BufReader::with_capacity(
            1 << 18,
            counted,
        )))
    } else {
        Box::new(zstd::stream::read::Decoder::new(counted)?)
    };
    Ok(Box::new(Guarded {
        inner,
        taken: Arc::clone(taken),
        given: 0,
    }))
}

struct Counted {
    reader: Box<dyn Read + Send>,
    taken: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.taken
            .fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
        Ok(count)
    }
}

/// Stops a small file that claims to be a huge one.
struct Guarded {
    inner: Box<dyn Read + Send>,
    taken: Arc<AtomicU64>,
    given: u64,
}

impl Read for Guarded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.given = self
            .given
            .saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        let taken = self.taken.load(Ordering::Relaxed);
        if self.given > RATIO_FREE_BYTES && self.given > taken.saturating_mul(RATIO_MAX) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "compressed data expands beyond 1000 times its size",
            ));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn text_of(format: Option<FileFormat>, name: &str, bytes: Vec<u8>) -> (FileFormat, String) {
        match identify(format, name, Input::Bytes(bytes.into()), None).unwrap() {
            Opened::Text(mut opened) => {
                let mut text = String::new();
                opened.reader.read_to_string(&mut text).unwrap();
                (opened.format, text)
            }
            Opened::Parquet(_) => panic!("taken for Parquet"),
        }
    }

    #[test]
    fn compression_is_told_by_content_whatever_the_name() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"{}\n").unwrap();
        let gzip = gzip.finish().unwrap();
        let zstd = zstd::encode_all(&b"{}\n"[..], 1).unwrap();
        for bytes in [gzip, zstd, b"{}\n".to_vec()] {
            assert_eq!(
                text_of(None, "x", bytes),
                (FileFormat::JsonLines, "{}\n".into())
            );
        }
    }

    #[test]
    fn names_tell_the_format_below_the_compression() {
        assert_eq!(
            FileFormat::from_name("a/b.JSONL.zst"),
            Some(FileFormat::JsonLines)
        );
        assert_eq!(FileFormat::from_name("b.csv.gz"), Some(FileFormat::Csv));
        assert_eq!(FileFormat::from_name("b"), None);
        assert_eq!(text_of(None, "x", b"a,b\n".to_vec()).0, FileFormat::Csv);
        assert_eq!(
            text_of(Some(FileFormat::Csv), "x.jsonl", vec![]).0,
            FileFormat::Csv
        );
    }

    #[test]
    fn a_decompression_bomb_is_stopped() {
        let zeros = vec![0u8; 64 << 20];
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        for _ in 0..5 {
            encoder.write_all(&zeros).unwrap();
        }
        let bomb = encoder.finish().unwrap();
        let bomb = Input::Bytes(bomb.into());
        let Opened::Text(mut opened) = identify(None, "x", bomb, None).unwrap() else {
            panic!("taken for Parquet")
        };
        assert!(io::copy(&mut opened.reader, &mut io::sink()).is_err());
    }

    #[test]
    fn a_large_parquet_file_inside_a_stream_is_unpacked_to_a_file_that_goes() {
        let large = |bytes: u64| {
            let tail = io::repeat(7).take(bytes - 4);
            Input::Read(Box::new(Cursor::new(b"PAR1").chain(tail)))
        };
        let directory = tempfile::tempdir().unwrap();
        let opened = |bytes, scratch| identify(None, "x", large(bytes), scratch);
        assert!(matches!(
            opened(UNPACKED_BYTES_MAX, None),
            Ok(Opened::Parquet(Input::Bytes(_)))
        ));
        let refused = opened(UNPACKED_BYTES_MAX + 1, None).err().unwrap();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        let Ok(Opened::Parquet(Input::File(mut file))) =
            opened(UNPACKED_BYTES_MAX + 1, Some(directory.path()))
        else {
            panic!("not unpacked to a file")
        };
        let mut start = [0; 5];
        file.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"PAR1\x07");
        assert_eq!(file.metadata().unwrap().len(), UNPACKED_BYTES_MAX + 1);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
