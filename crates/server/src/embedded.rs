//! The writer of a local directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_apply::Limits;
use tidegate_change::clock::{Clock, Random, SystemClock, SystemRandom};
use tidegate_change::spec::TableSpec;
use tidegate_change::{Error, Result, TableVersion};
use tidegate_cluster::catalog::Catalog;
use tidegate_cluster::heads::Heads;
use tidegate_cluster::metadata::replicated::{Member, MemberOptions};
use tidegate_cluster::{
    ConflictCounts, Consensus, Coordinator, CoordinatorOptions, CoordinatorParts, LocalWorkers,
    Workers,
};
use tidegate_delta::store::StepHook;
use tidegate_expression::check_conditions;

use crate::description::{HistoryLine, TableDescription, TableListing};
use crate::lake::Lake;
use crate::memory;
use crate::reader::Reader;
use crate::spool::Spool;
use crate::stores::RemoteStores;

/// Directory of log, lock and catalog.
pub(crate) const RAFT_DIRECTORY: &str = "raft";
/// Directory of input that came by stream.
const SPOOL_DIRECTORY: &str = "spool";
/// Directory of what the memory of batches does not hold.
const SPILL_DIRECTORY: &str = "spill";

/// How to open an [`Embedded`].
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Who executes batches.
    pub workers: Arc<dyn Workers>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
    /// Wait while another process holds the directory.
    pub wait_lock: bool,
    /// Called around every durable step.
    pub step_hook: Option<Arc<dyn StepHook>>,
    /// Bytes of memory that the data of a batch takes, about; what exceeds it goes to temporary files.
    pub memory_bytes: u64,
    /// Root of the tables, a directory or an address of a store; `lake` below the directory where it is not
    /// given. A directory remembers an address.
    pub lake: Option<String>,
    /// How object stores are reached.
    pub stores: RemoteStores,
    /// Make sure that the lake's store is safe also where it was found to be so before.
    pub probe_lake: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new(Arc::new(LocalWorkers))
    }
}

impl OpenOptions {
    /// The machine's clock and randomness.
    #[must_use]
    pub fn new(workers: Arc<dyn Workers>) -> Self {
        Self {
            workers,
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            wait_lock: false,
            step_hook: None,
            memory_bytes: memory::bytes_default(),
            lake: None,
            stores: RemoteStores::default(),
            probe_lake: false,
        }
    }
}

/// A directory of tables, held for writing.
#[derive(Debug)]
pub struct Embedded {
    directory: PathBuf,
    lake: Lake,
    member: Arc<Member>,
    /// Whether no other node writes: then readers find the tables by files beside the log.
    is_alone: bool,
    pub(crate) coordinator: Coordinator,
    pub(crate) options: OpenOptions,
    /// Input of batches that has to lie on this machine.
    pub(crate) sources: Spool,
}

impl Embedded {
    /// Takes a directory, makes it if need be, and ends what an earlier holder began.
    ///
    /// # Errors
    /// `DIRECTORY_HELD` when another process has it, or what the disk says.
    pub async fn open(directory: &Path, options: OpenOptions) -> Result<Self> {
        let alone = MemberOptions {
            wait_lock: options.wait_lock,
            step_hook: options.step_hook.clone(),
            ..MemberOptions::alone(Arc::clone(&options.random))
        };
        let lake = lake_of(directory, &options)?;
        let embedded = Self::start(directory, options, lake, &alone).await?;
        embedded.coordinator.recover().await?;
        embedded.write_catalog()?;
        Ok(embedded)
    }

    /// Takes a directory as a member of a group, which need not have a leader yet.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) async fn open_member(
        directory: &Path,
        options: OpenOptions,
        member: &MemberOptions,
    ) -> Result<Self> {
        let lake = lake_of(directory, &options)?.shared();
        let embedded = Self::start(directory, options, lake, member).await?;
        Ok(Self {
            is_alone: false,
            ..embedded
        })
    }

    async fn start(
        directory: &Path,
        options: OpenOptions,
        lake: Lake,
        member: &MemberOptions,
    ) -> Result<Self> {
        let member = Member::open(&directory.join(RAFT_DIRECTORY), member).await?;
        let member = Arc::new(member);
        lake.take(directory, options.random.as_ref(), options.probe_lake)
            .await?;
        let parts = CoordinatorParts {
            consensus: Arc::clone(&member) as Arc<dyn Consensus>,
            workers: Arc::clone(&options.workers),
            stores: Arc::new(lake.clone()),
            clock: Arc::clone(&options.clock),
            random: Arc::clone(&options.random),
            node: member.node(),
        };
        let coordinator_options = CoordinatorOptions {
            limits: Limits {
                memory_bytes: options.memory_bytes,
                spill_directory: Some(directory.join(SPILL_DIRECTORY)),
            },
            ..CoordinatorOptions::default()
        };
        let embedded = Self {
            sources: Spool::new(directory.join(SPOOL_DIRECTORY).join("sources"), u64::MAX),
            directory: directory.to_owned(),
            lake,
            member,
            is_alone: true,
            coordinator: Coordinator::new(parts, coordinator_options),
            options,
        };
        embedded.clear(SPOOL_DIRECTORY);
        embedded.clear(SPILL_DIRECTORY);
        Ok(embedded)
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the tables lie.
    pub(crate) fn lake(&self) -> &Lake {
        &self.lake
    }

    /// The member of the metadata group that this process is.
    pub(crate) fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Creates a table, below the lake's root by its name unless the spec gives a location.
    ///
    /// # Errors
    /// `TABLE_EXISTS`, `INVALID_LOCATION`, or what is wrong with the spec.
    pub async fn create_table(&self, spec: TableSpec) -> Result<TableVersion> {
        check_conditions(&spec)?;
        tidegate_apply::check_supported(&spec)?;
        let location = self
            .lake
            .confine(spec.location.as_deref().unwrap_or(&spec.name))?;
        let version = self.coordinator.create(spec, &location).await?;
        self.write_catalog()?;
        Ok(version)
    }

    /// Gives a table a new spec; its newest version where nothing changes.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, `INVALID_ALTER`, or what is wrong with the spec.
    pub async fn alter_table(&self, name: &str, spec: TableSpec) -> Result<TableVersion> {
        check_conditions(&spec)?;
        tidegate_apply::check_supported(&spec)?;
        let version = self.coordinator.alter(name, spec).await?;
        self.note_heads();
        Ok(version)
    }

    /// Drops a table, with its files unless they are kept.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, or what the store says.
    pub async fn drop_table(&self, name: &str, keep_files: bool) -> Result<()> {
        self.coordinator.drop_table(name, keep_files).await?;
        self.write_catalog()
    }

    /// Takes a table that lies in the lake and that this directory does not know; returns its name.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, `TABLE_EXISTS`, `INVALID_LOCATION`, or what the log says.
    pub async fn adopt(&self, location: &str, name: Option<&str>) -> Result<String> {
        let name = self
            .coordinator
            .adopt(&self.lake.confine(location)?, name)
            .await?;
        self.write_catalog()?;
        Ok(name)
    }

    /// The tables in name order.
    ///
    /// # Errors
    /// What the store says.
    pub async fn list(&self) -> Result<Vec<TableListing>> {
        self.current_reader().await?.list().await
    }

    /// Everything about a table.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, or what the log says.
    pub async fn describe(&self, name: &str) -> Result<TableDescription> {
        self.current_reader().await?.describe(name).await
    }

    /// The versions of a table, newest first.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, or what the log says.
    pub async fn history(&self, name: &str, limit: Option<usize>) -> Result<Vec<HistoryLine>> {
        self.current_reader().await?.history(name, limit).await
    }

    /// How often commits of other engines met those of this process.
    #[must_use]
    pub fn conflicts(&self) -> ConflictCounts {
        self.coordinator.conflicts()
    }

    /// A reader of the tables as they are now.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(self.lake.clone(), &self.member.state())
    }

    /// A reader that sees everything that was acknowledged by any node before the call.
    ///
    /// # Errors
    /// When the group cannot tell.
    pub(crate) async fn current_reader(&self) -> Result<Reader> {
        let state = self.coordinator.state().await?;
        Ok(Reader::new(self.lake.clone(), &state))
    }

    pub(crate) fn spool(&self) -> PathBuf {
        self.directory.join(SPOOL_DIRECTORY)
    }

    /// Tells readers the newest versions; without it they only check less.
    pub(crate) fn note_heads(&self) {
        if !self.is_alone {
            return;
        }
        let heads = Heads::of(&self.member.state());
        if let Err(error) = heads.write(&self.directory.join(RAFT_DIRECTORY)) {
            tracing::warn!(%error, "the heads of the tables were not noted");
        }
    }

    /// Replaces the catalog where it differs from the state.
    fn write_catalog(&self) -> Result<()> {
        if !self.is_alone {
            return Ok(());
        }
        self.note_heads();
        let raft = self.directory.join(RAFT_DIRECTORY);
        let catalog = Catalog::of(&self.member.state());
        // A damaged catalog is replaced like an old one.
        if Catalog::read(&raft).ok().flatten().as_ref() == Some(&catalog) {
            return Ok(());
        }
        catalog.write(&raft, self.options.step_hook.as_ref())
    }

    /// Temporary files of a dead process are of no use to anybody.
    fn clear(&self, name: &str) {
        let directory = self.directory.join(name);
        if let Err(e) = fs::remove_dir_all(&directory)
            && e.kind() != std::io::ErrorKind::NotFound
        {
            let error = Error::io(directory.display(), e);
            tracing::warn!(%error, "temporary files were not removed");
        }
    }
}

/// Where the tables of a directory lie.
pub(crate) fn lake_of(directory: &Path, options: &OpenOptions) -> Result<Lake> {
    let hook = options.step_hook.clone();
    Lake::of(directory, options.lake.as_deref(), &options.stores, hook)
}
