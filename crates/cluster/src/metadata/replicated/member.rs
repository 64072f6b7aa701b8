//! A member of a metadata group.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{Either, select};
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use openraft::type_config::TypeConfigExt;
use tidegate_change::{Code, Error, Random, Result, WriterId};

use super::leadership::{Leadership, no_answer};
use super::lock::DirectoryLock;
use super::options::{MemberOptions, NewDirectory};
use super::store::{Identity, OpenedStore, Store, StoreOptions};
use super::transport::link::Links;
use super::transport::{CallError, Inbox, Refused, Request, Response, from_bytes, to_bytes};
use super::types::{Peer, Raft, Types};
use crate::consensus::{Applied, Consensus};
use crate::metadata::{ClusterId, Entry, Found, NodeId, State, TableId, TableState};

/// How long to wait before asking again who leads.
const LEADER_WAIT: Duration = Duration::from_millis(20);
/// Bytes of an entry beyond which it is refused.
const ENTRY_BYTES_MAX: usize = 4 << 20;

/// A member of a metadata group, with its directory.
#[derive(Debug)]
pub struct Member {
    pub(super) raft: Raft,
    pub(super) leadership: Leadership,
    pub(super) links: Links,
    pub(super) timeout: Duration,
    inbox: Arc<Inbox>,
    store: Arc<Store>,
    cluster: Arc<OnceLock<ClusterId>>,
    directory: PathBuf,
    runtime: tokio::runtime::Handle,
    /// Last, so that the file is closed before somebody else may open it.
    _lock: DirectoryLock,
}

impl Member {
    /// Opens the member of a directory, or makes it; holds the directory until it is dropped.
    ///
    /// A member that is the only voter leads when this returns. One that has still to join, or others to
    /// wait for, returns at once, so that it can be reached; [`Self::ready`] tells when it has caught up.
    ///
    /// # Errors
    /// `DIRECTORY_HELD` when another process has it, `CORRUPT` when what it holds contradicts its
    /// checksums, `UNSUPPORTED` for a directory of another form, or an I/O error.
    pub async fn open(directory: &Path, options: &MemberOptions) -> Result<Self> {
        fs::create_dir_all(directory).map_err(|e| Error::io(directory.display(), e))?;
        let lock = DirectoryLock::acquire(directory, options.wait_lock)?;
        let store_options = StoreOptions {
            step_hook: options.step_hook.clone(),
            check_integrity: options.check_integrity,
            write_mode: options.write_mode,
            cache_bytes: options.cache_bytes,
        };
        let new = || new_identity(options);
        let opened = Store::open(directory, &store_options, new)
            .map_err(|e| e.context(directory.display()))?;
        let member = Self::start(directory, options, opened, lock).await?;
        member.begin(options).await?;
        Ok(member)
    }

    async fn start(
        directory: &Path,
        options: &MemberOptions,
        opened: OpenedStore,
        lock: DirectoryLock,
    ) -> Result<Self> {
        let OpenedStore {
            store,
            log,
            state_machine,
        } = opened;
        let identity = store.identity();
        let cluster = Arc::new(OnceLock::new());
        if let Some(known) = identity.cluster {
            // Nobody else has it yet.
            let _ = cluster.set(known);
        }
        let only_voter = store.membership().voter_ids().eq([identity.node]);
        let config = Arc::new(options.config(only_voter)?);
        let links = Links::new(
            Arc::clone(&options.transport),
            identity.node,
            Arc::clone(&cluster),
        );
        let (published, failure) = (state_machine.published(), store.failure_cell());
        let raft = Raft::new(identity.node, config, links.clone(), log, state_machine)
            .await
            .map_err(|e| store.failure().unwrap_or_else(|| unreadable(directory, e)))?;
        let leadership = Leadership::new(raft.clone(), published, failure, options.timeout);
        let store = Arc::new(store);
        let inbox = Inbox::new(
            raft.clone(),
            leadership.clone(),
            Arc::clone(&store),
            Arc::clone(&cluster),
        );
        Ok(Self {
            raft,
            leadership,
            links,
            timeout: options.timeout,
            inbox: Arc::new(inbox),
            store,
            cluster,
            directory: directory.to_owned(),
            runtime: tokio::runtime::Handle::current(),
            _lock: lock,
        })
    }

    /// Founds the group of a new directory, and leads where nobody else can.
    async fn begin(&self, options: &MemberOptions) -> Result<()> {
        let membership = self.store.membership();
        if let NewDirectory::Found(peer) = &options.new_directory
            && self.identity().is_founder
            && membership.log_id().is_none()
        {
            self.initialize(peer).await?;
        } else if !membership.voter_ids().eq([self.node()]) {
            return Ok(());
        }
        self.lead_alone(options.random.as_ref()).await
    }

    /// Makes a member that waits to join the founder of a group, and leads it alone. What a crash
    /// interrupted is continued by the next call.
    ///
    /// Whoever calls it knows that no group is there to join: two founders are two groups.
    ///
    /// # Errors
    /// `COMMIT_CONFLICT` when the member was taken into a group meanwhile, or what the disk says.
    pub async fn found(&self, peer: &Peer, random: &dyn Random) -> Result<()> {
        self.inbox.become_founder(random).await?;
        // The marks that the store holds since it was opened may be older than what openraft has.
        if self.status().members.is_empty() {
            self.initialize(peer).await?;
        }
        self.lead_alone(random).await
    }

    async fn initialize(&self, peer: &Peer) -> Result<()> {
        let founder = std::collections::BTreeMap::from([(self.node(), peer.clone())]);
        let founded = self.raft.initialize(founder).await;
        founded.map_err(|e| self.leadership.stopped(&e))
    }

    async fn lead_alone(&self, random: &dyn Random) -> Result<()> {
        // Nobody else can lead, so there is nothing to wait for; a leader takes no notice of it.
        let elected = self.raft.trigger().elect(false).await;
        elected.map_err(|e| self.leadership.stopped(&e))?;
        let leads = self
            .raft
            .wait(Some(self.timeout))
            .state(ServerState::Leader, "the only voter leads")
            .await;
        leads.map_err(|e| self.leadership.stopped(&e))?;
        self.name_group(random).await
    }

    /// Gives the group its ids, unless it has them.
    async fn name_group(&self, random: &dyn Random) -> Result<()> {
        let (Some(cluster), None) = (self.cluster(), self.read().await?.cluster) else {
            return Ok(());
        };
        let bits = random.next_u64();
        let writer = WriterId(u32::try_from(bits >> 32).unwrap_or_default());
        self.propose(Entry::Found(Found { cluster, writer }))
            .await?;
        Ok(())
    }

    /// Waits until this member belongs to a group and has applied everything that it may have shown
    /// before it was closed.
    ///
    /// # Errors
    /// `TIMED_OUT`, or why it stopped.
    pub async fn ready(&self, limit: Duration) -> Result<()> {
        let recovered = self.raft.wait_for_recovery(Some(limit)).await;
        recovered.map_err(|e| match e {
            openraft::metrics::WaitError::Timeout(..) => {
                Error::new(Code::TimedOut, "the metadata member has not caught up yet")
            }
            openraft::metrics::WaitError::ShuttingDown => self.leadership.stopped(&e),
        })?;
        if self.state().cluster.is_none() {
            return Err(Error::new(
                Code::TimedOut,
                "the metadata member belongs to no group yet",
            ));
        }
        Ok(())
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The id of this member.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.store.identity().node
    }

    /// The group, once this member belongs to one.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster.get().copied()
    }

    /// Where messages of other members go.
    #[must_use]
    pub fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(&self.inbox)
    }

    /// The state as this member has it, which may lag behind the group's.
    #[must_use]
    pub fn state(&self) -> Arc<State> {
        self.leadership.state()
    }

    /// Waits until this member stops, and says why: its process must end then, with exit code 70 where a
    /// supervisor starts it again.
    pub async fn stopped(&self) -> Error {
        let mut metrics = self.raft.metrics();
        loop {
            if let Err(fatal) = &metrics.borrow_watched().running_state {
                return self.leadership.stopped(fatal);
            }
            if metrics.changed().await.is_err() {
                return self.leadership.stopped(&"it was closed");
            }
        }
    }

    /// A part of that state.
    pub(crate) fn with_state<T>(&self, pick: impl FnOnce(&State) -> T) -> T {
        self.leadership.with_state(pick)
    }

    /// Waits until this member has applied everything that was acknowledged before the call.
    ///
    /// # Errors
    /// When nobody confirms what that is.
    pub(crate) async fn caught_up(&self) -> Result<()> {
        self.barrier().await
    }

    /// Waits until this member may have applied more; for ever where it has stopped.
    pub(crate) async fn applied_more(&self) {
        let mut metrics = self.raft.metrics();
        if metrics.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Stops this member in order: it answers no more, and its file is closed.
    pub async fn stop(&self) {
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "the metadata member did not stop in order");
        }
        self.store.close();
    }

    /// Hands leadership to the voter that is best placed to take it; nothing where this member does not
    /// lead, or nobody else can.
    ///
    /// # Errors
    /// `TIMED_OUT` when it leads all the same, or why it stopped.
    pub async fn step_aside(&self) -> Result<()> {
        let status = self.status();
        let heir = status
            .members
            .iter()
            .filter(|member| member.is_voter && member.node != status.node)
            .max_by_key(|member| {
                let silence = member.silence.unwrap_or(Duration::MAX);
                (member.matched_index, std::cmp::Reverse(silence))
            });
        match heir {
            Some(heir) if status.leads() => self.transfer_leadership(heir.node).await,
            _ => Ok(()),
        }
    }

    /// Confirms by the leader's word that this member belongs to its group still: one that was removed hears
    /// no more of it, and goes on to believe what it heard last.
    ///
    /// # Errors
    /// `FENCED` when it was removed; `NOT_LEADER` when nobody can tell at the moment.
    pub async fn confirm(&self) -> Result<()> {
        self.barrier().await
    }

    /// Whether it founds its group, and has not done so yet.
    #[must_use]
    pub fn is_about_to_found(&self) -> bool {
        self.identity().is_founder && self.status().members.is_empty()
    }

    fn identity(&self) -> Identity {
        self.store.identity()
    }

    /// Passes an entry on to the leader. None: nothing was done, and another leader may be asked.
    async fn forward(&self, leader: (NodeId, Peer), entry: &Entry) -> Result<Option<Applied>> {
        let request = Request::Propose(to_bytes("an entry", entry)?);
        let call = self.links.call(leader.0, &leader.1, request);
        let Some(answer) = self.while_led_by(leader.0, call).await else {
            return Err(no_answer("the leader changed, or did not answer in time"));
        };
        match answer {
            Ok(Response::Applied { index, outcome }) => Ok(Some(Applied {
                index,
                outcome: from_bytes("an outcome", &outcome)?,
            })),
            Ok(_) => Err(no_answer("the leader's answer makes no sense")),
            Err(CallError::NotSent(_)) => Ok(None),
            Err(CallError::NoAnswer(why)) => Err(no_answer(&why)),
            Err(CallError::Refused(Refused { error, .. })) => match is_no_leader(&error) {
                true => Ok(None),
                false => Err(error),
            },
        }
    }

    /// Waits for an answer of the leader, but not when it leads no more: one that is paused or cut off may
    /// answer much later.
    async fn while_led_by<T>(&self, leader: NodeId, call: impl Future<Output = T>) -> Option<T> {
        let waits = self.raft.wait(Some(self.timeout));
        let changed = waits.metrics(
            |metrics| metrics.current_leader != Some(leader),
            "another one leads",
        );
        match select(Box::pin(call), Box::pin(changed)).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(_) => None,
        }
    }

    /// Waits until this member has applied everything that was acknowledged before the call.
    async fn barrier(&self) -> Result<()> {
        let deadline = Types::now() + self.timeout;
        loop {
            let refused = match self.read_index().await {
                Ok(index) => return self.leadership.wait_applied(index, self.timeout).await,
                Err(refused) => refused,
            };
            if refused.error.code() != Code::NotLeader || Types::now() >= deadline {
                return Err(refused.error);
            }
            Types::sleep(LEADER_WAIT).await;
        }
    }

    /// The index that a linearizable read must have applied, asked of whoever leads.
    async fn read_index(&self) -> Result<u64, Refused> {
        let refused = match self.leadership.read_index().await {
            Ok(index) => return Ok(index),
            Err(refused) => refused,
        };
        let Some((leader, peer)) = &refused.leader else {
            return Err(refused);
        };
        let call = self.links.call(*leader, peer, Request::ReadIndex);
        match self.while_led_by(*leader, call).await {
            Some(Ok(Response::ReadIndex(index))) => Ok(index),
            Some(Err(CallError::Refused(other))) if !is_stranger(&other.error) => Err(other),
            // Asking again does no harm.
            _ => Err(refused),
        }
    }
}

#[async_trait]
impl Consensus for Member {
    fn writer(&self) -> WriterId {
        self.leadership.with_state(|state| state.writer)
    }

    async fn propose(&self, entry: Entry) -> Result<Applied> {
        if to_bytes("an entry", &entry)?.len() > ENTRY_BYTES_MAX {
            return Err(Error::new(
                Code::ResourceExhausted,
                format!("{entry}: is larger than {ENTRY_BYTES_MAX} bytes"),
            ));
        }
        let deadline = Types::now() + self.timeout;
        loop {
            let refused = match self.leadership.propose(entry.clone()).await {
                Ok(applied) => return Ok(applied),
                Err(refused) if refused.error.code() == Code::NotLeader => refused,
                Err(refused) => return Err(refused.error),
            };
            if let Some(leader) = refused.leader
                && leader.0 != self.node()
                && let Some(applied) = self.forward(leader, &entry).await?
            {
                return Ok(applied);
            }
            if Types::now() >= deadline {
                return Err(refused.error);
            }
            Types::sleep(LEADER_WAIT).await;
        }
    }

    async fn read(&self) -> Result<Arc<State>> {
        self.barrier().await?;
        Ok(self.state())
    }

    async fn table(&self, id: &TableId) -> Result<Option<Arc<TableState>>> {
        self.barrier().await?;
        let pick = |state: &State| state.tables.get(id).map(Arc::clone);
        Ok(self.leadership.with_state(pick))
    }

    async fn table_named(&self, name: &str) -> Result<Option<(TableId, Arc<TableState>)>> {
        self.barrier().await?;
        let pick = |state: &State| {
            let (id, table) = state.table_named(name)?;
            Some((id.clone(), Arc::clone(table)))
        };
        Ok(self.leadership.with_state(pick))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let raft = self.raft.clone();
        // Tasks that are left find a closed store; they end as soon as the runtime gets to it.
        self.runtime.spawn(async move {
            if let Err(error) = raft.shutdown().await {
                tracing::warn!(%error, "the metadata member did not stop in order");
            }
        });
        self.store.close();
    }
}

/// Whether whoever refused does not lead, so that another may be asked.
fn is_no_leader(error: &Error) -> bool {
    error.code() == Code::NotLeader || is_stranger(error)
}

/// Whether a message reached another node than it was for: the leader is gone, and its address is another's.
fn is_stranger(error: &Error) -> bool {
    error.code() == Code::InvalidArgument
}

fn new_identity(options: &MemberOptions) -> Identity {
    // Zero stands for no node in messages.
    let id = |random: &dyn Random| random.next_u64().max(1);
    let node = NodeId(id(options.random.as_ref()));
    match &options.new_directory {
        NewDirectory::Found(_) => Identity {
            node,
            cluster: Some(ClusterId(id(options.random.as_ref()))),
            is_founder: true,
        },
        NewDirectory::Join { cluster } => Identity {
            node,
            cluster: *cluster,
            is_founder: false,
        },
    }
}

fn unreadable(directory: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::corrupt(format!(
        "{}: the metadata log cannot be recovered",
        directory.display()
    ))
    .with_source(error)
}
