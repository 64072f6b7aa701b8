//! `make-load`: the tables and batches of changes that the benches run on. The same arguments give the same
//! bytes.
//!
//! The table looks like TPC-H's orders. Its keys are multiples of 4, so that inserts can fall between them as
//! well as behind them. An event's `_seq` says its place in the source; some events arrive displaced, some
//! twice, and some are older than the row that they meet.

mod batch;
mod debezium;
mod orders;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use arrow::record_batch::RecordBatch;
use clap::{Parser, Subcommand, ValueEnum};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::batch::{Distribution, Load};

/// Rows of one data file of the base.
const FILE_ROWS: u64 = 2_000_000;
/// Rows that are made at once.
const CHUNK_ROWS: u64 = 250_000;

/// Makes the data that the benches run on.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The rows that the table starts with, as Parquet files.
    Base {
        /// Rows of the table.
        #[arg(long)]
        rows: u64,
        /// Directory of the files.
        #[arg(long)]
        out: PathBuf,
    },
    /// One batch of changes: 70 % updates, 20 % inserts, 10 % deletes; a tenth comes twice, a twentieth late.
    Changes {
        /// Rows that the table started with.
        #[arg(long)]
        rows: u64,
        /// Events of the batch.
        #[arg(long)]
        events: u64,
        /// Number of the batch, from 1.
        #[arg(long)]
        batch: u64,
        /// Which keys change.
        #[arg(long, value_enum, default_value = "uniform")]
        distribution: Distribution,
        /// Form of the file.
        #[arg(long, value_enum, default_value = "parquet")]
        format: Format,
        /// The file.
        #[arg(long)]
        out: PathBuf,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Flat rows with the columns `op` and `_seq`.
    Parquet,
    /// Debezium's JSON without schema, of a PostgreSQL source.
    Debezium,
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Base { rows, out } => write_base(rows, &out),
        Command::Changes {
            rows,
            events,
            batch,
            distribution,
            format,
            out,
        } => {
            let load = Load {
                rows,
                events,
                batch,
                distribution,
            };
            let changes = batch::changes(&load)?;
            match format {
                Format::Parquet => write_parquet(&out, &[changes]),
                Format::Debezium => debezium::write(&out, &changes),
            }
        }
    }
}

fn write_base(rows: u64, out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    for (number, first) in (0..rows).step_by(usize::try_from(FILE_ROWS)?).enumerate() {
        let end = rows.min(first + FILE_ROWS);
        let chunks = (first..end).step_by(usize::try_from(CHUNK_ROWS)?);
        let chunks = chunks.map(|from| orders::base(from, end.min(from + CHUNK_ROWS), rows));
        let chunks = chunks.collect::<Result<Vec<_>>>()?;
        write_parquet(&out.join(format!("part-{number:05}.parquet")), &chunks)?;
    }
    Ok(())
}

fn write_parquet(path: &Path, chunks: &[RecordBatch]) -> Result<()> {
    let first = chunks.first().context("there are no rows")?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_max_row_group_row_count(Some(usize::try_from(CHUNK_ROWS)?))
        .build();
    let file = File::create(path).with_context(|| path.display().to_string())?;
    let mut writer = ArrowWriter::try_new(file, first.schema(), Some(properties))?;
    for chunk in chunks {
        writer.write(chunk)?;
    }
    writer.close()?;
    Ok(())
}
