//! Each point on a batch's way, with each event that can come there.
//!
//! A node makes a table and takes two batches. The points before and after each operation of store and log
//! are numbered by a first run; then, for each point and each event, a run of its own goes up to the point,
//! lets the event come, goes on, and must end with both batches in the table, once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tidegate_change::{Code, Error};
use tidegate_cluster::{Consensus, Coordinator, CoordinatorOptions};

use super::check::{self, Leftovers};
use super::ledger::{self, Raise, TABLE};
use super::log::{LogFaults, SimulatedLog};
use super::plan::{Events, Plan};
use super::world::{World, drive, parts_of, poll_boxed, told};
use crate::dice::Dice;
use crate::toxic::{Forced, Points, Rule, Toxin};

/// The node whose way it is, and one that may come in between.
const NODE: usize = 0;
const OTHER: usize = 1;
/// A span that no attempt outlives, milliseconds.
const MONTH_MS: i64 = 30 * 86_400_000;
/// Submissions within which a batch must be in once nothing fails.
const TRIES: usize = 8;

/// What comes at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The node ends there, and starts again.
    Crash,
    /// The operation fails.
    Error,
    /// The operation is done, and its answer is lost.
    AnswerLost,
    /// The operation fails, and is done later.
    Late,
    /// The node stands still while another one does the same work to its end.
    Delay,
    /// The node starts anew while its old process goes on.
    Zombie,
    /// Another node takes another batch.
    OtherBatch,
    /// Another node is asked for the same batch with other content.
    OtherContent,
    /// A stranger writes a commit that changes nothing.
    Foreign,
    /// Staged commits are lost.
    LoseStaged,
    /// The log's state comes back from a snapshot.
    Restore,
    /// The clock goes back a month.
    ClockBack,
    /// The clock goes on by a month.
    ClockOn,
    /// The log answers nobody until the node gives up.
    LogDown,
    /// The store refuses everything until the node gives up.
    StoreDown,
    /// The newest commit is gone, as if the bucket had been rolled back.
    RollBack,
    /// All metadata is lost; another group takes the table over.
    Adopt,
}

impl Event {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Crash,
        Self::Error,
        Self::AnswerLost,
        Self::Late,
        Self::Delay,
        Self::Zombie,
        Self::OtherBatch,
        Self::OtherContent,
        Self::Foreign,
        Self::LoseStaged,
        Self::Restore,
        Self::ClockBack,
        Self::ClockOn,
        Self::LogDown,
        Self::StoreDown,
        Self::RollBack,
        Self::Adopt,
    ];

    fn forced(self) -> Option<Forced> {
        match self {
            Self::Error => Some(Forced::Fails),
            Self::AnswerLost => Some(Forced::AnswerLost),
            Self::Late => Some(Forced::Late),
            _ => None,
        }
    }
}

/// The crash point of the commit protocol that a point stands for, K0 to K8.
#[must_use]
pub fn crash_point(label: &str) -> &'static str {
    match label {
        "before open_attempt" => "K0",
        "after open_attempt" => "K1",
        "before put data" | "after put data" => "K2",
        "before put staged" | "after put staged" => "K3",
        "before prepare" => "K4",
        "after prepare" | "before create slot" => "K5",
        "after create slot" => "K6",
        "before finalize" => "K7",
        "after finalize" => "K8",
        _ => "other",
    }
}

/// The rows of the protocol's table that an event stands for, besides the point that it comes at.
#[must_use]
pub fn protocol_rows(event: Event) -> &'static str {
    match event {
        Event::Crash | Event::Error | Event::AnswerLost => "",
        Event::Late => "K6b K17",
        Event::Delay => "K6b K9 K10 K12",
        Event::Zombie => "K9 K17",
        Event::OtherBatch => "K11 K16",
        Event::OtherContent => "K13",
        Event::Foreign => "K14",
        Event::LoseStaged => "fence",
        Event::Restore => "K15",
        Event::ClockBack | Event::ClockOn => "K18",
        Event::LogDown => "K19",
        Event::StoreDown => "fault 44",
        Event::Adopt => "K20",
        Event::RollBack => "K21",
    }
}

/// How often which event came at which crash point.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Runs by crash point and event.
    pub runs: BTreeMap<(&'static str, Event), u64>,
}

impl Counts {
    /// All runs.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.runs.values().sum()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in Event::ALL {
            write!(f, "{event:?} {}:", protocol_rows(event))?;
            let runs = self.runs.iter().filter(|((_, known), _)| *known == event);
            for ((point, _), count) in runs {
                write!(f, " {point} {count}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Runs every event at every point, with commits in the log or staged.
///
/// # Errors
/// The runs that end otherwise than they must, with point and event.
pub fn run_all(inline_bytes_max: usize) -> Result<Counts, String> {
    let labels = points(inline_bytes_max)?;
    let mut counts = Counts::default();
    let mut broken = Vec::new();
    for (at, label) in labels.iter().enumerate() {
        for event in Event::ALL {
            match run_one(inline_bytes_max, at, event) {
                Ok(()) => *counts.runs.entry((crash_point(label), event)).or_default() += 1,
                Err(what) => broken.push(format!("{event:?} at point {at}, {label}: {what}")),
            }
        }
    }
    match broken.is_empty() {
        true => Ok(counts),
        false => Err(format!(
            "{} runs break:\n{}",
            broken.len(),
            broken.join("\n")
        )),
    }
}

fn world(inline_bytes_max: usize) -> Result<World, String> {
    let plan = Plan {
        nodes: 2,
        clients: 1,
        batches: 2,
        inline_bytes_max,
        rules: Vec::new(),
        log: LogFaults::default(),
        events: Events::default(),
        foreign_append: false,
        late_at_the_end: false,
        adopt: false,
    };
    let mut world = World::with_plan(1, Arc::new(Dice::new(1)), plan)?;
    world.start_now(NODE)?;
    world.start_now(OTHER)?;
    Ok(world)
}

/// The points of a run in which nothing comes.
fn points(inline_bytes_max: usize) -> Result<Vec<String>, String> {
    let world = world(inline_bytes_max)?;
    world.points.arm(None, None);
    drive(work(world.coordinator(NODE)?))?.map_err(told)?;
    Ok(world.points.seen())
}

/// The way: a table and two batches; each step may have been taken before.
async fn work(coordinator: Arc<Coordinator>) -> Result<(), Error> {
    match coordinator.create(ledger::spec(0)?, TABLE).await {
        Ok(_) => {}
        Err(error) if error.code() == Code::TableExists => {}
        Err(error) => return Err(error),
    }
    for place in [0, 1] {
        coordinator.submit(&batch(place)?).await?;
    }
    Ok(())
}

fn batch(place: i64) -> Result<tidegate_cluster::BatchRequest, Error> {
    let number = u64::try_from(place).unwrap_or_default();
    Raise::new(format!("c0-{place}"), number).request("client0", Some(place))
}

fn run_one(inline_bytes_max: usize, at: usize, event: Event) -> Result<(), String> {
    let mut world = world(inline_bytes_max)?;
    world.points.arm(Some(at), event.forced());
    let mut way: std::pin::Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> =
        Box::pin(work(world.coordinator(NODE)?));
    while !world.points.is_reached() {
        if poll_boxed(&mut way).is_ready() {
            return Err("the way ends before the point".into());
        }
    }
    world.points.disarm();
    let goes_on = come(&mut world, event)?;
    if goes_on {
        // How it ends is open; what it leaves is not.
        while poll_boxed(&mut way).is_pending() {}
    }
    drop(way);
    world.store.heal();
    world.log.set_faults(LogFaults::default());
    let log = match event {
        Event::Adopt => adopted(&world)?,
        _ => world.log.clone(),
    };
    match finish(&mut world, &log, event) {
        // An acknowledged version is gone: that is told, and the table stands still.
        Err(_) if event == Event::RollBack && is_told(&world)? => Ok(()),
        ended => ended,
    }
}

/// Whether a table that lost a commit says so to a writer, or to a reader that has not seen it before.
fn is_told(world: &World) -> Result<bool, String> {
    let is_loss = |error: &Error| {
        matches!(
            error.code(),
            Code::Quarantined | Code::LogBehindRaft | Code::Corrupt | Code::Expired
        )
    };
    let writer = world.coordinator(OTHER)?;
    let later = Raise::new("later".into(), 7).request("later", Some(0));
    let later = later.map_err(told)?;
    let written = drive(async move { writer.submit(&later).await })?;
    let parts = parts_of(world, Arc::new(world.log.clone()), OTHER);
    let reader = Coordinator::new(parts, CoordinatorOptions::default());
    let read = drive(async move { reader.snapshot(TABLE).await })?;
    Ok(written.is_err_and(|e| is_loss(&e)) || read.is_err_and(|e| is_loss(&e)))
}

/// Lets the event come; whether the node goes on after it.
fn come(world: &mut World, event: Event) -> Result<bool, String> {
    match event {
        Event::Crash | Event::Adopt => {
            world.crash(NODE);
            return Ok(false);
        }
        Event::Error | Event::AnswerLost | Event::Late => {}
        Event::Delay => {
            // What another one cannot do yet, the node does when it goes on.
            let _ = drive(work(world.coordinator(OTHER)?))?;
        }
        Event::Zombie => world.start_now(NODE)?,
        Event::OtherBatch => {
            let other = world.coordinator(OTHER)?;
            let raise = Raise::new("other".into(), 9);
            let request = raise.request("other", Some(0)).map_err(told)?;
            let _ = drive(async move { other.submit(&request).await })?;
        }
        Event::OtherContent => other_content(world)?,
        Event::Foreign => {
            world.foreign_commit(false)?;
        }
        // A table that is being made has no version to go back to: its place is lost with its first commit.
        Event::LoseStaged if has_version(world) => {
            world.lose_staged()?;
        }
        Event::LoseStaged => {}
        Event::RollBack => world.lose_newest_commit()?,
        Event::Restore => world.log.restore_replica().map_err(told)?,
        Event::ClockBack => world.clock().jump(-MONTH_MS),
        Event::ClockOn => world.clock().jump(MONTH_MS),
        Event::LogDown => world.log.set_faults(LogFaults::DOWN),
        Event::StoreDown => world.store.poison(vec![Rule::new(Toxin::Unauthorized)]),
    }
    Ok(true)
}

fn has_version(world: &World) -> bool {
    let state = world.log.state();
    let table = state.table_named(TABLE);
    table.is_some_and(|(_, table)| table.head.is_some())
}

/// The first batch with other content, at the other node, once its id is taken.
fn other_content(world: &World) -> Result<(), String> {
    let other = world.coordinator(OTHER)?;
    let mut raise = Raise::new("c0-0".into(), 0);
    raise.keys.reverse();
    let request = raise.request("client0", Some(0)).map_err(told)?;
    let state = world.log.state();
    let table = state.table_named(TABLE);
    let is_taken = table.is_some_and(|(_, table)| {
        let pending = table.pending.iter();
        let mut batches = pending.flat_map(|pending| &pending.opened.attempt.batches);
        batches.any(|batch| batch.id.0 == "c0-0") || !table.marks.is_empty()
    });
    if !is_taken {
        return Ok(());
    }
    match drive(async move { other.submit(&request).await })? {
        Err(error) if error.code() == Code::BatchContentMismatch => Ok(()),
        answer => Err(format!("other content came to {answer:?}")),
    }
}

/// Another group that takes the table over, where there is one.
fn adopted(world: &World) -> Result<SimulatedLog, String> {
    let log = SimulatedLog::new(2, 2, Arc::new(Points::default())).map_err(told)?;
    let consensus: Arc<dyn Consensus> = Arc::new(log.clone());
    let parts = parts_of(world, consensus, NODE);
    let start = Coordinator::start(parts, CoordinatorOptions::default());
    let coordinator = drive(start)?.map_err(told)?;
    match drive(coordinator.adopt(TABLE, None))? {
        Err(error) if error.code() != Code::TableNotFound => Err(told(error)),
        // Without a version there is no table, and nothing was acknowledged.
        _ => Ok(log),
    }
}

/// Starts a node on the log and brings the way to its end; then everything must be as if nothing had come.
fn finish(world: &mut World, log: &SimulatedLog, event: Event) -> Result<(), String> {
    let consensus: Arc<dyn Consensus> = Arc::new(log.clone());
    // A node that ended comes first: what it had open is closed when it starts.
    for node in [NODE, OTHER] {
        let parts = parts_of(world, Arc::clone(&consensus), node);
        let start = async move {
            let coordinator = Coordinator::start(parts, CoordinatorOptions::default()).await?;
            coordinator.recover().await?;
            Ok::<_, Error>(Arc::new(coordinator))
        };
        let coordinator = drive(start)?.map_err(told)?;
        let mut ended = Err("never tried".to_owned());
        for _ in 0..TRIES {
            ended = drive(work(Arc::clone(&coordinator)))?.map_err(told);
            if ended.is_ok() {
                break;
            }
        }
        ended.map_err(|e| format!("nothing fails any more, and yet: {e}"))?;
        let store = world.store.clone();
        drive(async move { store.land_late().await })?;
        log.land_late().map_err(told)?;
        let settled = async move {
            coordinator.recover().await?;
            // Whoever writes follows what strangers wrote; that this one changes nothing is as well.
            let followed = coordinator.alter(TABLE, ledger::spec(0)?).await;
            Ok::<_, Error>(followed.is_ok())
        };
        drive(settled)?.map_err(told)?;
    }
    let leftovers = match event {
        // What a group that is gone had begun, and what an old process writes late, is left to vacuum.
        Event::Adopt | Event::Zombie | Event::Delay => Leftovers::Any,
        // A staged commit that could not be deleted stays: nobody looks for it behind `Finalize`.
        Event::Error | Event::AnswerLost | Event::Late | Event::StoreDown => Leftovers::Staged,
        _ => Leftovers::None,
    };
    check::check_table(world, log, leftovers)
}
