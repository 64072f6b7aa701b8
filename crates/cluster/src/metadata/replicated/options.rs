//! How to open a member.

use std::sync::Arc;
use std::time::Duration;

use openraft::{Config, SnapshotPolicy};
use tidegate_change::{Error, Random, Result};
use tidegate_delta::store::StepHook;

use super::store::WriteMode;
use super::transport::{NoTransport, Transport};
use super::types::Peer;
use crate::metadata::ClusterId;

/// Time between two heartbeats of a leader, unless it is set.
const HEARTBEAT: Duration = Duration::from_millis(100);
/// Silence of the leader after which another is elected, at the earliest, unless it is set.
const ELECTION: Duration = Duration::from_millis(900);
/// Milliseconds that a snapshot may take to be sent and taken in.
const SNAPSHOT_MS: u64 = 120_000;
/// Entries of one message; its bytes are bounded too.
const PAYLOAD_ENTRIES_MAX: u64 = 256;

/// What to do with a directory that holds nothing yet.
#[derive(Clone, Debug)]
pub enum NewDirectory {
    /// Found a group of which this member is the only one.
    Found(Peer),
    /// Wait until the leader of a group calls.
    Join {
        /// The only group to belong to; any where it is not given.
        cluster: Option<ClusterId>,
    },
}

/// How to open a [`super::Member`].
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// What to do with a directory that holds nothing yet.
    pub new_directory: NewDirectory,
    /// Wait while another process holds the directory.
    pub wait_lock: bool,
    /// Called around every durable step.
    pub step_hook: Option<Arc<dyn StepHook>>,
    /// Where ids come from.
    pub random: Arc<dyn Random>,
    /// Who carries messages to other members.
    pub transport: Arc<dyn Transport>,
    /// Entries after which a snapshot is taken.
    pub snapshot_entries: u64,
    /// Entries that stay in the log behind a snapshot, for members that lag.
    pub kept_entries: u64,
    /// How long a proposal or a read may take.
    pub timeout: Duration,
    /// Time between two heartbeats of a leader.
    pub heartbeat: Duration,
    /// Silence of the leader after which another is elected, at the earliest; at the latest a third later.
    ///
    /// openraft counts it in two parts: nobody may be elected while a leader's lease may last, which is its
    /// greatest election time; then a random election time passes.
    pub election: Duration,
    /// Verify every page of the file when it is opened, not only what is read.
    pub check_integrity: bool,
    /// Where writes are made.
    pub write_mode: WriteMode,
    /// Bytes of entries to keep in memory.
    pub cache_bytes: usize,
}

impl MemberOptions {
    /// A member of a group of several.
    #[must_use]
    pub fn new(
        random: Arc<dyn Random>,
        transport: Arc<dyn Transport>,
        new_directory: NewDirectory,
    ) -> Self {
        Self {
            new_directory,
            wait_lock: false,
            step_hook: None,
            random,
            transport,
            snapshot_entries: 5_000,
            kept_entries: 1_000,
            timeout: Duration::from_secs(10),
            heartbeat: HEARTBEAT,
            election: ELECTION,
            check_integrity: true,
            write_mode: WriteMode::default(),
            cache_bytes: 16 << 20,
        }
    }

    /// The one member of an embedded group: opened often and for a short time, so that what it reads at
    /// start is kept small.
    #[must_use]
    pub fn alone(random: Arc<dyn Random>) -> Self {
        Self {
            snapshot_entries: 128,
            kept_entries: 0,
            check_integrity: false,
            cache_bytes: 1 << 20,
            ..Self::new(
                random,
                Arc::new(NoTransport),
                NewDirectory::Found(Peer::default()),
            )
        }
    }

    /// The settings of openraft. A leader that restarts goes on without an election only if it is the
    /// only voter: among several, the others may have committed what its own disk never got.
    pub(super) fn config(&self, is_only_voter: bool) -> Result<Config> {
        // Lease and least election time make the whole: twice this, and once.
        let election = milliseconds(self.election) / 3;
        let config = Config {
            cluster_name: "tidegate".into(),
            heartbeat_interval: milliseconds(self.heartbeat),
            election_timeout_min: election,
            election_timeout_max: 2 * election,
            install_snapshot_timeout: SNAPSHOT_MS,
            max_payload_entries: PAYLOAD_ENTRIES_MAX,
            // A member that is further behind gets a snapshot; the log is kept that long.
            replication_lag_threshold: self.snapshot_entries + self.kept_entries,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(self.snapshot_entries.max(1)),
            max_in_snapshot_log_to_keep: self.kept_entries,
            // A leader without a quorum is silent that long, and then tries again.
            quorum_loss_probe_interval: Some(6 * election),
            enable_pre_vote: Some(true),
            allow_log_reversion: Some(false),
            enable_leader_restore: Some(is_only_voter),
            ..Config::default()
        };
        config
            .validate()
            .map_err(|e| Error::internal("the settings of the metadata log").with_source(e))
    }
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX / 8)
}
