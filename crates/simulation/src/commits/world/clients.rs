//! Clients: what they ask for, what they are told, and what they may conclude.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_change::{BatchResult, Code, Error, Kind, Result as Told, TableVersion};
use tidegate_cluster::{BatchRequest, Coordinator};

use super::{Running, World, told};
use crate::commits::check::{self, Reading};
use crate::commits::ledger::{self, Raise};
use crate::commits::plan::Plan;

/// What a client asks for at most while things go wrong, for each of its batches.
const ASKS_PER_BATCH: usize = 14;

/// What a task was for.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// A node starts.
    Start,
    /// A client submits a batch.
    Submit(Submission),
    /// A client reads the newest version.
    Read {
        client: usize,
        /// The greatest version that was acknowledged before.
        least: Option<TableVersion>,
    },
    /// A client alters the table.
    Alter { client: usize },
}

/// A batch on its way.
#[derive(Clone, Debug)]
pub(crate) struct Submission {
    client: usize,
    batch: usize,
    /// Sent with other content under the same id.
    is_altered: bool,
}

/// How a task ended.
pub(crate) enum Done {
    Started(Told<Arc<Coordinator>>),
    Submitted(Told<BatchResult>),
    Read(Told<Reading>),
    Altered(Told<TableVersion>),
}

/// What is known of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    client: usize,
    pub(crate) raise: Raise,
    /// Place in the client's source; every second client sends no offsets.
    place: Option<i64>,
    /// Step of its first submission.
    pub(crate) invoked: Option<u64>,
    /// Step of the first answer, and the answer.
    pub(crate) acked: Option<(u64, BatchResult)>,
}

/// All clients.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) batches: Vec<Batch>,
    busy: Vec<usize>,
    submissions_left: Vec<usize>,
    columns: usize,
    failed: u64,
    pub(crate) reads: Vec<Reading>,
    hits: BTreeMap<&'static str, u64>,
}

impl What {
    /// The submission of a batch as it is.
    pub(crate) fn submit(clients: &mut Clients, batch: usize, step: u64) -> Self {
        let mut client = 0;
        if let Some(batch) = clients.batches.get_mut(batch) {
            batch.invoked.get_or_insert(step);
            client = batch.client;
        }
        Self::Submit(Submission {
            client,
            batch,
            is_altered: false,
        })
    }

    fn client(&self) -> Option<usize> {
        match self {
            Self::Start => None,
            Self::Submit(submission) => Some(submission.client),
            Self::Read { client, .. } | Self::Alter { client } => Some(*client),
        }
    }
}

impl Clients {
    pub(super) fn new(plan: &Plan) -> Result<Self, String> {
        let mut batches = Vec::new();
        for client in 0..plan.clients {
            for place in 0..plan.batches {
                let number = (client * 100 + place) as u64;
                batches.push(Batch {
                    client,
                    raise: Raise::new(format!("c{client}-{place}"), number),
                    place: (client % 2 == 0).then(|| i64::try_from(place).unwrap_or_default()),
                    invoked: None,
                    acked: None,
                });
            }
        }
        Ok(Self {
            batches,
            busy: vec![0; plan.clients],
            submissions_left: vec![plan.batches * ASKS_PER_BATCH; plan.clients],
            columns: 0,
            failed: 0,
            reads: Vec::new(),
            hits: BTreeMap::new(),
        })
    }

    fn hit(&mut self, name: &'static str) {
        *self.hits.entry(name).or_default() += 1;
    }

    pub(super) fn hits(&self) -> BTreeMap<&'static str, u64> {
        self.hits.clone()
    }

    /// Whether all have their answers, or have asked often enough.
    pub(super) fn are_done(&self) -> bool {
        let is_idle = self.busy.iter().all(|tasks| *tasks == 0);
        let tired = (0..self.busy.len())
            .all(|client| self.next_of(client).is_none() || self.left(client) == 0);
        is_idle && tired
    }

    fn left(&self, client: usize) -> usize {
        self.submissions_left.get(client).copied().unwrap_or(0)
    }

    /// The first batch of a client that has no answer.
    fn next_of(&self, client: usize) -> Option<usize> {
        let mut batches = self.batches.iter();
        batches.position(|batch| batch.client == client && batch.acked.is_none())
    }

    /// The batches without an answer, in the order of their sources.
    pub(super) fn open(&self) -> Vec<usize> {
        let open = self.batches.iter().enumerate();
        let open = open.filter(|(_, batch)| batch.acked.is_none());
        open.map(|(number, _)| number).collect()
    }

    /// How many batches were sent and have no answer.
    pub(super) fn unknown(&self) -> u64 {
        let batches = self.batches.iter();
        let sent = batches.filter(|batch| batch.invoked.is_some() && batch.acked.is_none());
        sent.count() as u64
    }

    pub(super) fn is_acked(&self, batch: usize) -> bool {
        let batch = self.batches.get(batch);
        batch.is_some_and(|batch| batch.acked.is_some())
    }

    pub(super) fn acked(&self) -> u64 {
        self.batches.iter().filter(|b| b.acked.is_some()).count() as u64
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    /// The greatest version that anybody was told.
    fn newest_acked(&self) -> Option<TableVersion> {
        let acked = self.batches.iter().filter_map(|batch| batch.acked.as_ref());
        acked.map(|(_, result)| result.version).max()
    }

    /// The request of a batch.
    pub(crate) fn request(&self, batch: usize) -> Result<BatchRequest, String> {
        let batch = self.batches.get(batch).ok_or("no such batch")?;
        let source = format!("client{}", batch.client);
        batch.raise.request(&source, batch.place).map_err(told)
    }

    fn altered_request(&self, batch: usize) -> Result<BatchRequest, String> {
        let mut batch = self.batches.get(batch).ok_or("no such batch")?.clone();
        batch.raise.keys.reverse();
        let source = format!("client{}", batch.client);
        batch.raise.request(&source, batch.place).map_err(told)
    }

    /// A task that nobody will hear of again.
    pub(super) fn abandon(&mut self, what: &What) {
        self.free(what);
        if matches!(what, What::Submit(_)) {
            self.failed += 1;
        }
    }

    fn free(&mut self, what: &What) {
        let busy = what.client().and_then(|client| self.busy.get_mut(client));
        if let Some(busy) = busy {
            *busy = busy.saturating_sub(1);
        }
    }

    /// Takes an answer.
    pub(super) fn finish(
        &mut self,
        what: What,
        done: Done,
        step: u64,
        appended: bool,
        is_published: &dyn Fn(TableVersion) -> bool,
    ) -> Result<(), String> {
        self.free(&what);
        match (what, done) {
            (What::Submit(submission), Done::Submitted(answer)) if submission.is_altered => {
                match answer {
                    Ok(_) => Err("other content under a used id was taken".into()),
                    Err(error) if error.code() == Code::BatchContentMismatch => {
                        self.hit("client: other content refused");
                        Ok(())
                    }
                    Err(error) => self.judge(error, appended),
                }
            }
            (What::Submit(submission), Done::Submitted(Ok(result))) => {
                if !is_published(result.version) {
                    let version = result.version;
                    return Err(format!(
                        "version {version} was acknowledged before it is there"
                    ));
                }
                self.acknowledge(&submission, step, result)
            }
            (What::Submit(_), Done::Submitted(Err(error))) => {
                self.failed += 1;
                self.judge(error, appended)
            }
            (What::Read { least, .. }, Done::Read(Ok(reading))) => {
                if Some(reading.version) < least {
                    let version = reading.version;
                    return Err(format!(
                        "version {version} was read after {least:?} was told"
                    ));
                }
                self.reads.push(reading);
                Ok(())
            }
            (What::Read { .. }, Done::Read(Err(error))) => self.judge(error, appended),
            (What::Alter { .. }, Done::Altered(Ok(_))) => {
                self.hit("client: altered the table");
                Ok(())
            }
            (What::Alter { .. }, Done::Altered(Err(error))) => match error.code() {
                // Another one has added more columns.
                Code::InvalidAlter => Ok(()),
                _ => self.judge(error, appended),
            },
            _ => Err("a task ended as another".into()),
        }
    }

    fn acknowledge(
        &mut self,
        submission: &Submission,
        step: u64,
        result: BatchResult,
    ) -> Result<(), String> {
        let batch = self.batches.get_mut(submission.batch);
        let batch = batch.ok_or("no such batch")?;
        if result.batch_id.0 != batch.raise.id {
            let id = &result.batch_id.0;
            return Err(format!("batch {} got the answer of {id}", batch.raise.id));
        }
        match &batch.acked {
            None => batch.acked = Some((step, result)),
            Some((_, known)) if known.version != result.version => {
                return Err(format!(
                    "batch {} was told version {}, then {}",
                    batch.raise.id, known.version, result.version
                ));
            }
            Some(_) => self.hit("client: asked again, same answer"),
        }
        Ok(())
    }

    /// Errors that faults may end in; any other is a violation.
    fn judge(&mut self, error: Error, appended: bool) -> Result<(), String> {
        let code = error.code();
        let is_expected = match error.kind() {
            Kind::Conflict | Kind::Unavailable | Kind::Fenced => true,
            Kind::Corrupt => code == Code::Corrupt,
            Kind::Invalid => match code {
                Code::PermissionDenied | Code::NotFound | Code::Expired => true,
                // A listing that lacks its newest commit.
                Code::TableNotFound | Code::InvalidVersion => true,
                Code::Quarantined | Code::ForeignRewrite => appended,
                _ => false,
            },
            Kind::Unsupported | Kind::Internal => false,
        };
        match is_expected {
            true => Ok(()),
            false => Err(format!("an error that no fault explains: {}", told(error))),
        }
    }
}

impl World {
    /// Lets clients that have nothing to do begin something.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        for client in 0..self.plan.clients {
            let is_idle = self.clients.busy.get(client) == Some(&0);
            if is_idle && self.clients.left(client) > 0 && self.dice.percent(20) {
                self.act(client)?;
            }
        }
        Ok(())
    }

    fn act(&mut self, client: usize) -> Result<(), String> {
        let up: Vec<_> = (0..self.nodes.len())
            .filter(|node| self.coordinator(*node).is_ok())
            .collect();
        if up.is_empty() {
            return Ok(());
        }
        if let Some(left) = self.clients.submissions_left.get_mut(client) {
            *left -= 1;
        }
        let node = *self.dice.pick(&up);
        let done: Vec<_> = (0..self.clients.batches.len())
            .filter(|batch| self.clients.is_acked(*batch))
            .collect();
        match self.dice.below(100) {
            0..10 => self.read(client, node),
            10..14 => self.alter(client, node),
            14..24 if !done.is_empty() => {
                let batch = *self.dice.pick(&done);
                self.submit(client, node, batch, true)
            }
            24..34 if !done.is_empty() => {
                let batch = *self.dice.pick(&done);
                self.submit(client, node, batch, false)
            }
            roll => {
                let Some(batch) = self.clients.next_of(client) else {
                    return self.read(client, node);
                };
                if roll >= 80 {
                    let other = *self.dice.pick(&up);
                    self.submit(client, other, batch, false)?;
                    self.clients.hit("client: one batch by two at once");
                }
                self.submit(client, node, batch, false)
            }
        }
    }

    fn occupy(&mut self, client: usize) {
        if let Some(busy) = self.clients.busy.get_mut(client) {
            *busy += 1;
        }
    }

    fn submit(
        &mut self,
        client: usize,
        node: usize,
        batch: usize,
        is_altered: bool,
    ) -> Result<(), String> {
        let request = match is_altered {
            true => self.clients.altered_request(batch)?,
            false => self.clients.request(batch)?,
        };
        let invoked = self.step;
        if let Some(batch) = self.clients.batches.get_mut(batch) {
            batch.invoked.get_or_insert(invoked);
        }
        let coordinator = self.coordinator(node)?;
        let future: Running =
            Box::pin(async move { Done::Submitted(coordinator.submit(&request).await) });
        let what = What::Submit(Submission {
            client,
            batch,
            is_altered,
        });
        self.occupy(client);
        self.spawn(node, what, future);
        Ok(())
    }

    fn read(&mut self, client: usize, node: usize) -> Result<(), String> {
        let coordinator = self.coordinator(node)?;
        let store = self.store.clone();
        let future: Running =
            Box::pin(async move { Done::Read(check::read(&coordinator, &store).await) });
        let least = self.clients.newest_acked();
        self.occupy(client);
        self.spawn(node, What::Read { client, least }, future);
        Ok(())
    }

    fn alter(&mut self, client: usize, node: usize) -> Result<(), String> {
        self.clients.columns += 1;
        let spec = ledger::spec(self.clients.columns).map_err(told)?;
        let coordinator = self.coordinator(node)?;
        let future: Running =
            Box::pin(async move { Done::Altered(coordinator.alter(ledger::TABLE, spec).await) });
        self.occupy(client);
        self.spawn(node, What::Alter { client }, future);
        Ok(())
    }
}
