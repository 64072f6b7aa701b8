//! What held for the feed in which versions: whether it is recorded, and whether images are paired.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_change::spec::{FeedMode, ResolvedSpec, ScdType};
use tidegate_change::{Code, Error, Result, TableVersion, types};

use super::VersionRange;
use crate::actions::{Action, Metadata, SPEC_DOMAIN, parse_commit};
use crate::definition::properties;
use crate::log::{DeltaLog, TableSnapshot};
use crate::names;
use crate::schema::TableSchema;

/// Default name of the column where an SCD 2 version starts.
const START_COLUMN: &str = "__START_AT";

/// What holds from a version on.
#[derive(Clone, Debug, Default)]
pub(super) struct Epoch {
    /// Columns that tell rows apart, where images are to be paired; empty where they are not.
    pub(super) identity: Arc<[String]>,
}

/// The epochs of a range.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    by_version: BTreeMap<TableVersion, Epoch>,
}

/// Metadata and spec at a version.
#[derive(Clone)]
struct State {
    metadata: Arc<Metadata>,
    spec: Option<String>,
}

impl State {
    fn of(snapshot: &TableSnapshot) -> Self {
        Self {
            metadata: Arc::clone(&snapshot.metadata),
            spec: snapshot.domains.get(SPEC_DOMAIN).cloned(),
        }
    }
}

impl Epochs {
    /// Checks every version of the range and tells what holds in it.
    pub(super) async fn of_range(
        log: &DeltaLog,
        latest: &TableSnapshot,
        range: VersionRange,
    ) -> Result<Self> {
        let mut changed = Vec::new();
        for version in (range.first.0..=range.last.0).map(TableVersion) {
            let name = names::commit(version);
            let bytes = log.read_slot(version).await?.ok_or_else(|| {
                let message = format!("version {version}: its commit is not in the log");
                Error::new(Code::Expired, message)
            })?;
            // Few commits change what holds: only those are parsed.
            if contains(&bytes, b"\"metaData\"") || contains(&bytes, SPEC_DOMAIN.as_bytes()) {
                changed.push((version, parse_commit(&name, &bytes)?));
            }
        }
        let holds_still = changed.is_empty() && range.last == latest.version;
        let is_defined = changed
            .first()
            .is_some_and(|(version, _)| *version == range.first && version.0 == 0);
        let mut state = match (holds_still, is_defined) {
            (true, _) => Some(State::of(latest)),
            (false, true) => None,
            (false, false) => Some(State::of(&log.snapshot(Some(range.first)).await?)),
        };
        let mut epochs = Self::default();
        if let Some(state) = &state {
            epochs.enter(range.first, state, latest)?;
        }
        for (version, actions) in changed {
            if let Some(next) = apply(state.clone(), actions) {
                epochs.enter(version, &next, latest)?;
                state = Some(next);
            }
        }
        Ok(epochs)
    }

    /// What holds at a version.
    pub(super) fn at(&self, version: TableVersion) -> Epoch {
        let found = self.by_version.range(..=version).next_back();
        found.map(|(_, epoch)| epoch.clone()).unwrap_or_default()
    }

    fn enter(
        &mut self,
        version: TableVersion,
        state: &State,
        latest: &TableSnapshot,
    ) -> Result<()> {
        let property = state
            .metadata
            .configuration
            .get(properties::CHANGE_DATA_FEED);
        if property.map(String::as_str) != Some("true") {
            let message = format!("version {version}: the table kept no change feed then");
            return Err(Error::new(Code::NotRecorded, message));
        }
        check_schema(version, &state.metadata, latest.schema())?;
        self.by_version.insert(
            version,
            Epoch {
                identity: identity(state)
                    .map_err(|e| e.context(format!("version {version}: the stored spec")))?,
            },
        );
        Ok(())
    }
}

fn apply(state: Option<State>, actions: Vec<Action>) -> Option<State> {
    let (mut metadata, mut spec) = match state {
        Some(state) => (Some(state.metadata), state.spec),
        None => (None, None),
    };
    for action in actions {
        match action {
            Action::Metadata(next) => metadata = Some(Arc::new(next)),
            Action::Domain(domain) if domain.domain == SPEC_DOMAIN => {
                spec = (!domain.removed).then_some(domain.configuration);
            }
            _ => {}
        }
    }
    metadata.map(|metadata| State { metadata, spec })
}

/// The columns that tell rows apart, for tables whose images this reader pairs (R-C3, R-C9).
///
/// Without them, an update would read as a delete and an insert.
fn identity(state: &State) -> Result<Arc<[String]>> {
    let Some(json) = state.spec.as_deref() else {
        return Ok(Arc::default());
    };
    let resolved: ResolvedSpec = serde_json::from_str(json)
        .map_err(|e| Error::corrupt("it cannot be read").with_source(e))?;
    let spec = resolved.spec;
    if spec.change_data_feed != FeedMode::Inferred {
        return Ok(Arc::default());
    }
    let mut columns = spec.keys.clone();
    if spec.stored_as_scd_type == ScdType::Two && !columns.is_empty() {
        let start = spec.history_columns.and_then(|columns| columns.start);
        columns.push(start.unwrap_or_else(|| START_COLUMN.into()));
    }
    Ok(columns.into())
}

/// Whether the latest schema can hold the rows of an older one.
fn check_schema(version: TableVersion, metadata: &Metadata, latest: &TableSchema) -> Result<()> {
    let then = TableSchema::from_metadata(metadata)?;
    for field in then.arrow().fields() {
        let name = field.name();
        let holds = latest.field(name).is_some_and(|(physical, logical)| {
            physical.name() == then.physical_name(name)
                && (field.data_type().is_nested()
                    || types::widens_to(field.data_type(), logical.data_type()))
        });
        if !holds {
            let message =
                format!("version {version}: column {name} is not what it is in the latest version");
            return Err(Error::new(Code::Unsupported, message)
                .with_hint("read the versions before and after the change separately"));
        }
    }
    Ok(())
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
