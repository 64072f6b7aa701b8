//! Create, alter and drop: commits of kind `Schema`, and the catalog.

use futures::TryStreamExt;
use object_store::ObjectStore;
use tidegate_change::spec::{ResolvedSpec, TableSpec, alter};
use tidegate_change::{Code, Error, Kind, Result, TableVersion};
use tidegate_delta::actions::Action;
use tidegate_delta::{DeltaLog, TableDefinition, names};

use super::draft::Draft;
use super::right::LOSSES_MAX;
use super::submit::{OpenTry, Progress, resolved_spec};
use super::{Coordinator, removal};
use crate::metadata::{
    CommitKind, CreateTable, DropStage, DropTable, Entry, OpenAttempt, Outcome, Refusal, State,
    TableId, TableState, TableStatus,
};

/// Tries of an alteration before the caller is told that it always loses.
const TRIES_MAX: u32 = 32;

impl Coordinator {
    /// Creates a table at a location, which must be empty; its version 0 holds the declared columns.
    ///
    /// # Errors
    /// `TABLE_EXISTS`, `INVALID_LOCATION`, what is wrong with the spec, or what the store says.
    pub async fn create(&self, spec: TableSpec, location: &str) -> Result<TableVersion> {
        spec.validate()?;
        let name = spec.name.clone();
        if self.state().await?.names.contains_key(&name) {
            return Err(Refusal::TableExists.into_error(&name));
        }
        let log = DeltaLog::new(self.parts.stores.open(location)?);
        if let Some(version) = log.latest_version().await? {
            let message =
                format!("table {name}: its location {location} holds a table at version {version}");
            return Err(Error::new(Code::TableExists, message)
                .with_hint("take it as it is with table adopt, or choose another location"));
        }
        require_empty(&name, location, &log).await?;
        let id = self.new_table_id();
        let lock = self.lock_of(&id);
        let _working = lock.lock().await;
        let created_ms = self.parts.clock.now_ms();
        let actions =
            TableDefinition::create(&ResolvedSpec::declared(spec), &id.0, created_ms)?.actions();
        let entry = CreateTable {
            table: id.clone(),
            name: name.clone(),
            location: location.to_owned(),
            epoch: Some(self.epoch().await?),
        };
        let is_there = |state: &State| state.tables.contains_key(&id);
        self.insist(&name, Entry::CreateTable(entry), is_there)
            .await?;
        let committed = self.commit_first(&id, actions).await;
        if let Ok(Some(version)) = committed {
            return Ok(version);
        }
        let table = self.table(&id).await?;
        if table.pending.is_none() && table.head.is_none() {
            self.forget_unborn(&id, &table).await?;
        }
        Err(committed.err().unwrap_or_else(|| {
            let message = format!("table {name}: another writer made a table at {location}");
            Error::new(Code::TableExists, message)
        }))
    }

    /// Commits version 0, also when an answer is lost on the way; None when another writer was first.
    async fn commit_first(
        &self,
        id: &TableId,
        actions: Vec<Action>,
    ) -> Result<Option<TableVersion>> {
        for _ in 0..LOSSES_MAX {
            let committed = self
                .commit_schema(id, &*self.table(id).await?, "CREATE TABLE", actions.clone())
                .await;
            let Err(error) = committed else {
                return committed;
            };
            if !self.may_go_on(id, &error).await? {
                return Err(error);
            }
            self.resolve(id).await?;
            // The id is this call's, so what has a head is what it committed.
            if let Some(version) = self.table(id).await?.head {
                return Ok(Some(version));
            }
        }
        Err(Error::new(
            Code::OutcomeUnknown,
            "the leader of the metadata group changed again and again",
        ))
    }

    /// Changes a table's spec; the head where nothing changes.
    ///
    /// # Errors
    /// `INVALID_ALTER` for what may not change, or what the store says.
    pub async fn alter(&self, name: &str, spec: TableSpec) -> Result<TableVersion> {
        spec.validate()?;
        let (id, _) = self.table_named(name).await?;
        let lock = self.lock_of(&id);
        let _working = lock.lock().await;
        for _ in 0..TRIES_MAX {
            match self.try_alter(&id, name, &spec).await {
                Ok(Some(version)) => return Ok(version),
                Ok(None) => {}
                Err(error) if error.kind() == Kind::Conflict => {}
                Err(error) if self.may_go_on(&id, &error).await? => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(
            Code::CommitConflict,
            format!("table {name}: other commits were always first"),
        ))
    }

    async fn try_alter(
        &self,
        id: &TableId,
        name: &str,
        spec: &TableSpec,
    ) -> Result<Option<TableVersion>> {
        self.resolve(id).await?;
        let table = self.table(id).await?;
        table
            .require_active()
            .map_err(|refusal| refusal.into_error(name))?;
        let table = self.follow_log(id).await?;
        let head = table
            .head
            .ok_or_else(|| Refusal::TableUnknown.into_error(name))?;
        let digest = table.head_digest;
        let log = self.log(&table)?;
        let snapshot = self.snapshots.at(id, &log, (head, digest)).await?;
        let resolved = alter::alter(&resolved_spec(name, &snapshot)?, spec.clone())?;
        let actions = TableDefinition::evolve(&resolved, &snapshot)?.changes_from(&snapshot);
        if actions.is_empty() {
            return Ok(Some(head));
        }
        self.commit_schema(id, &table, "ALTER TABLE", actions).await
    }

    /// Drops a table; its objects go too unless they are kept, and nobody else's.
    ///
    /// # Errors
    /// `TABLE_NOT_FOUND`, or what the store says; a drop that began is continued at the next opening.
    pub async fn drop_table(&self, name: &str, keep_files: bool) -> Result<()> {
        let (id, _) = self.table_named(name).await?;
        let lock = self.lock_of(&id);
        let _working = lock.lock().await;
        self.resolve(&id).await?;
        let mut begun = self.begin_drop(&id, name, keep_files).await;
        if let Err(error) = &begun
            && self.may_go_on(&id, error).await?
        {
            begun = self.begin_drop(&id, name, keep_files).await;
        }
        begun?;
        let table = self.table(&id).await?;
        self.finish_drop(&id, &table, keep_files).await
    }

    /// Makes a table one that is being dropped, by this coordinator and nobody else.
    pub(super) async fn begin_drop(
        &self,
        id: &TableId,
        name: &str,
        keep_files: bool,
    ) -> Result<()> {
        let epoch = Some(self.epoch().await?);
        let entry = DropTable {
            table: id.clone(),
            stage: DropStage::Begin { keep_files },
            epoch,
        };
        let has_begun = |state: &State| {
            let table = state.tables.get(id);
            table.is_some_and(|table| {
                matches!(table.status, TableStatus::Dropping { .. }) && table.owner == epoch
            })
        };
        self.insist(name, Entry::DropTable(entry), has_begun).await
    }

    pub(super) async fn finish_drop(
        &self,
        id: &TableId,
        table: &TableState,
        keep_files: bool,
    ) -> Result<()> {
        if !keep_files {
            self.parts.stores.remove_temporaries(&table.location)?;
            removal::delete_table(&self.log(table)?).await?;
            self.parts
                .stores
                .remove_empty_directories(&table.location)?;
        }
        self.end_drop(id, &table.name).await?;
        self.snapshots.forget(id);
        Ok(())
    }

    pub(super) async fn end_drop(&self, id: &TableId, name: &str) -> Result<()> {
        let entry = DropTable {
            table: id.clone(),
            stage: DropStage::Finish,
            epoch: Some(self.epoch().await?),
        };
        let is_gone = |state: &State| !state.tables.contains_key(id);
        self.insist(name, Entry::DropTable(entry), is_gone).await
    }

    /// Commits actions of kind `Schema`; None when another commit was first.
    async fn commit_schema(
        &self,
        id: &TableId,
        table: &TableState,
        operation: &'static str,
        actions: Vec<Action>,
    ) -> Result<Option<TableVersion>> {
        let log = self.log(table)?;
        let attempt = self.open_plain(id, table, CommitKind::Schema).await?;
        let open = OpenTry {
            id,
            table,
            log: &log,
            attempt,
        };
        let tried = self
            .try_plain(&open, (CommitKind::Schema, operation), actions)
            .await;
        let tried = match tried {
            Ok(true) => Ok(true),
            tried => open.ended(tried, self.give_up(&open).await),
        };
        Ok(tried?.then(|| table.next_version()))
    }

    /// Opens an attempt that belongs to no batch; returns its index.
    pub(super) async fn open_plain(
        &self,
        id: &TableId,
        table: &TableState,
        kind: CommitKind,
    ) -> Result<u64> {
        let entry = OpenAttempt {
            table: id.clone(),
            epoch: self.epoch().await?,
            kind,
            batches: Vec::new(),
            proposed_ms: self.parts.clock.now_ms(),
        };
        match self.require(&table.name, Entry::OpenAttempt(entry)).await? {
            Outcome::AttemptOpened(attempt) => Ok(attempt.index),
            _ => Err(Error::internal("an attempt was not opened")),
        }
    }

    /// Commits actions that belong to no batch; false when another commit was first.
    pub(super) async fn try_plain(
        &self,
        open: &OpenTry<'_>,
        (kind, operation): (CommitKind, &'static str),
        actions: Vec<Action>,
    ) -> Result<bool> {
        let time_ms = self.commit_time(open.table);
        let draft = Draft {
            id: open.id,
            table: open.table,
            attempt: self.attempt_id(open.attempt),
            kind,
            batches: &[],
            operation,
            result: None,
            offsets: &Default::default(),
            actions,
            time_ms,
        }
        .build()?;
        if !self
            .prepare(open, &draft, time_ms, Progress::default())
            .await?
        {
            return Ok(false);
        }
        let resolved = self.resolve(open.id).await;
        resolved.map_err(|e| open.undecided(e))?;
        // The head may be a later one by now; this attempt is in when its slot holds its bytes.
        let table = self.table(open.id).await?;
        if table.head_attempt == Some(open.attempt) {
            return Ok(true);
        }
        let slot = open.log.read_slot(open.table.next_version()).await?;
        Ok(slot.is_some_and(|slot| tidegate_change::Digest::of(&slot) == draft.digest))
    }

    fn new_table_id(&self) -> TableId {
        let random = &self.parts.random;
        let bits = (u128::from(random.next_u64()) << 64) | u128::from(random.next_u64());
        // RFC 9562: version 4, variant 10.
        let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        TableId(format!(
            "{}-{}-{}-{}-{}",
            part(0, 8),
            part(8, 12),
            part(12, 16),
            part(16, 20),
            part(20, 32)
        ))
    }
}

/// Refuses a location where something lies: it is not ours, and dropping the table must not meet it.
async fn require_empty(table: &str, location: &str, log: &DeltaLog) -> Result<()> {
    let root = log.root();
    // A coordinator that was replaced may have staged a commit late; nothing will ever refer to it.
    let staged = root.location(names::STAGED_DIRECTORY)?;
    let objects = root.store().list(Some(root.path()));
    let others = objects.try_filter(|object| {
        let is_staged = object.location.prefix_matches(&staged);
        std::future::ready(!is_staged)
    });
    let first = std::pin::pin!(others).try_next().await;
    let first = first.map_err(|e| {
        Error::new(Code::Io, format!("{}: cannot be listed", root.path())).with_source(e)
    })?;
    let Some(object) = first else { return Ok(()) };
    let message = format!(
        "table {table}: its location {location} holds files that are no table, such as {}",
        object.location
    );
    Err(Error::new(Code::InvalidLocation, message)
        .with_hint("choose another location, or move the files away"))
}
