//! Nodes, clients, and the events between their steps.

mod clients;
mod events;
mod nodes;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use object_store::ObjectStore;
use object_store::memory::InMemory;
use tidegate_cluster::Coordinator;

use self::clients::{Clients, Done, What};
pub(super) use self::nodes::parts_of;
use self::nodes::{Node, SimulatedClock};
use super::log::{LogFaults, SimulatedLog};
use super::plan::Plan;
use super::{Report, check, ledger};
use crate::dice::Dice;
use crate::toxic::{Points, ToxicStore};

/// Steps after which the faults end, whatever the clients have reached.
const STEPS_MAX: u64 = 8_000;
/// Polls within which one task alone must end.
const POLLS_MAX: usize = 20_000;
/// Starts and submissions within which everything must be well once the faults have ended.
const CALM_TRIES: usize = 8;

/// Name of the event that leaves an old process behind.
const ZOMBIE: &str = "node: started while its old process goes on";

/// What a task is made of: nothing runs unless it is polled.
pub(super) type Running = Pin<Box<dyn Future<Output = Done> + Send>>;

/// A task of a node.
struct Job {
    node: usize,
    what: What,
    future: Running,
}

/// A simulated cluster with its clients.
pub struct World {
    dice: Arc<Dice>,
    pub(super) plan: Plan,
    pub(super) points: Arc<Points>,
    pub(super) store: ToxicStore,
    pub(super) log: SimulatedLog,
    clock: Arc<SimulatedClock>,
    nodes: Vec<Node>,
    jobs: Vec<Job>,
    pub(super) clients: Clients,
    step: u64,
    is_appended: bool,
    hits: BTreeMap<&'static str, u64>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("plan", &self.plan)
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}

impl World {
    /// The world of a seed, with an empty table.
    ///
    /// # Errors
    /// When not even that comes about.
    pub fn new(seed: u64) -> Result<Self, String> {
        let dice = Arc::new(Dice::new(seed));
        let plan = Plan::of(&dice);
        let mut world = Self::with_plan(seed, dice, plan)?;
        for node in 0..world.plan.nodes {
            world.start_now(node)?;
        }
        world.create_table()?;
        Ok(world)
    }

    /// A world in which nothing has happened.
    pub(super) fn with_plan(seed: u64, dice: Arc<Dice>, plan: Plan) -> Result<Self, String> {
        let points = Arc::new(Points::default());
        let inner: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let log = SimulatedLog::new(1, seed ^ 1, Arc::clone(&points)).map_err(told)?;
        Ok(Self {
            clients: Clients::new(&plan)?,
            store: ToxicStore::with_points(inner, seed ^ 2, Arc::clone(&points)),
            nodes: (0..plan.nodes).map(|_| Node::default()).collect(),
            points,
            log,
            clock: Arc::default(),
            dice,
            plan,
            jobs: Vec::new(),
            step: 0,
            is_appended: false,
            hits: BTreeMap::new(),
        })
    }

    /// Makes the table, on the first node.
    pub(super) fn create_table(&mut self) -> Result<(), String> {
        let coordinator = self.coordinator(0)?;
        let created = async move {
            let spec = ledger::spec(0)?;
            coordinator.create(spec, ledger::TABLE).await
        };
        drive(created)?.map_err(|e| format!("the table is not made: {}", told(e)))?;
        Ok(())
    }

    /// Lets everything happen, repairs everything, and checks.
    ///
    /// # Errors
    /// What broke.
    pub fn run(&mut self) -> Result<Report, String> {
        self.store.poison(self.plan.rules.clone());
        self.log.set_faults(self.plan.log);
        while self.step < STEPS_MAX && !self.clients.are_done() {
            self.step += 1;
            self.event()?;
            self.begin()?;
            self.poll_one()?;
        }
        let unknown = self.clients.unknown();
        self.calm()?;
        let checked = check::check(self)?;
        let mut report = Report {
            acked: self.clients.acked(),
            unknown,
            failed: self.clients.failed(),
            versions: checked.versions,
            reads: checked.reads,
            steps: self.step,
            hits: self.all_hits(),
        };
        if self.plan.adopt && !self.is_quarantined() {
            check::adopt(self, &checked)?;
            *report.hits.entry("adopted".into()).or_default() += 1;
        }
        Ok(report)
    }

    fn all_hits(&self) -> BTreeMap<String, u64> {
        let store = self.store.hits().into_iter();
        let store = store.map(|(toxin, count)| (format!("store: {toxin:?}"), count));
        let log = self.log.hits().into_iter();
        let events = self.hits.iter().map(|(name, count)| (*name, *count));
        let named = log.chain(events).map(|(name, n)| (name.to_owned(), n));
        let clients = self.clients.hits().into_iter();
        let clients = clients.map(|(name, n)| (name.to_owned(), n));
        store.chain(named).chain(clients).collect()
    }

    /// Whether a node was started while its old process went on.
    pub(super) fn has_zombies(&self) -> bool {
        self.hits.contains_key(ZOMBIE)
    }

    fn hit(&mut self, name: &'static str) {
        *self.hits.entry(name).or_default() += 1;
    }

    /// Polls a task of the dice's choice once.
    fn poll_one(&mut self) -> Result<(), String> {
        if self.jobs.is_empty() {
            return Ok(());
        }
        let chosen = self.dice.below(self.jobs.len());
        let Some(job) = self.jobs.get_mut(chosen) else {
            return Ok(());
        };
        if let Poll::Ready(done) = poll_boxed(&mut job.future) {
            let job = self.jobs.swap_remove(chosen);
            self.finish(job.node, job.what, done)?;
        }
        Ok(())
    }

    fn finish(&mut self, node: usize, what: What, done: Done) -> Result<(), String> {
        if let Done::Started(started) = done {
            // A node that cannot start is started again.
            if let Ok(coordinator) = started
                && let Some(node) = self.nodes.get_mut(node)
            {
                node.coordinator = Some(coordinator);
            }
            return Ok(());
        }
        let is_published = |version| check::is_published(&self.store, version);
        let (step, appended) = (self.step, self.is_appended);
        self.clients
            .finish(what, done, step, appended, &is_published)
    }

    /// Ends all faults, restarts all nodes, and gets every open batch its answer.
    fn calm(&mut self) -> Result<(), String> {
        self.store.heal();
        self.log.set_faults(LogFaults::default());
        if !self.plan.late_at_the_end {
            self.land_late()?;
        }
        for node in 0..self.nodes.len() {
            self.crash(node);
            self.start_now(node)?;
        }
        for batch in self.clients.open() {
            self.settle(batch)?;
        }
        self.land_late()?;
        let last = self.coordinator(self.nodes.len() - 1)?;
        let recovered = async move {
            last.recover().await?;
            // Whoever writes follows what strangers wrote; that this one changes nothing is as well.
            let followed = last.alter(ledger::TABLE, ledger::spec(0)?).await;
            Ok::<_, tidegate_change::Error>(followed.is_ok())
        };
        drive(recovered)?
            .map(|_| ())
            .map_err(|e| format!("recovery fails without a fault: {}", told(e)))
    }

    fn land_late(&mut self) -> Result<(), String> {
        self.log.land_late().map_err(told)?;
        let store = self.store.clone();
        drive(async move { store.land_late().await })
    }

    /// Submits an open batch until it has its answer.
    fn settle(&mut self, batch: usize) -> Result<(), String> {
        let mut last = String::new();
        for _ in 0..CALM_TRIES {
            let node = self.dice.below(self.nodes.len());
            let coordinator = self.coordinator(node)?;
            let request = self.clients.request(batch)?;
            self.step += 1;
            let invoked = self.step;
            let answer = drive(async move { coordinator.submit(&request).await })?;
            if let Err(error) = &answer {
                last = told_short(error);
            }
            let what = What::submit(&mut self.clients, batch, invoked);
            self.step += 1;
            self.finish(node, what, Done::Submitted(answer))?;
            if self.clients.is_acked(batch) || self.is_quarantined() {
                return Ok(());
            }
        }
        Err(format!(
            "a batch gets no answer though nothing fails any more: {last}"
        ))
    }

    /// Whether the table refuses writes because a stranger wrote rows.
    pub(super) fn is_quarantined(&self) -> bool {
        self.is_appended && check::is_quarantined(&self.log.state())
    }

    pub(super) fn coordinator(&self, node: usize) -> Result<Arc<Coordinator>, String> {
        let node = self.nodes.get(node).ok_or("no such node")?;
        let coordinator = node.coordinator.as_ref().ok_or("the node is down")?;
        Ok(Arc::clone(coordinator))
    }
}

/// Polls a task once; nobody is woken, since everybody is asked again.
pub(super) fn poll_boxed<T>(future: &mut Pin<Box<dyn Future<Output = T> + Send>>) -> Poll<T> {
    let mut context = Context::from_waker(Waker::noop());
    future.as_mut().poll(&mut context)
}

/// Polls one task to its end.
///
/// # Errors
/// When it does not end.
pub(super) fn drive<T>(future: impl Future<Output = T> + Send) -> Result<T, String> {
    let mut future = Box::pin(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..POLLS_MAX {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return Ok(done);
        }
    }
    Err(format!("a task does not end within {POLLS_MAX} polls"))
}

/// An error with its causes.
pub(super) fn told(error: tidegate_change::Error) -> String {
    let mut text = told_short(&error);
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

pub(super) fn told_short(error: &tidegate_change::Error) -> String {
    format!("{}: {error}", error.code())
}
