//! What may happen next.

use std::collections::BTreeMap;

use tidegate_change::{Digest, TableVersion};
use tidegate_cluster::metadata::{
    Abort, Collected, CommitBytes, CommitKind, Entry, Finalize, Grant, OpenAttempt, Outcome,
    Prepare, PreparePart, Rebase, Refusal, Role, SlotEvidence, Standing, SyncForeign,
};

use super::world::{
    Content, FIRST_ATTEMPT, Limits, MADE_UP, Mutant, Part, Phase, World, batch_key, digest,
    table_id,
};

type Successors = Vec<(String, World)>;

fn time_of(slot: usize) -> i64 {
    10 * (i64::try_from(slot).unwrap() + 1)
}

fn slot_of(version: TableVersion) -> usize {
    usize::try_from(version.0).unwrap()
}

impl World {
    pub(crate) fn successors(&self, limits: &Limits, mutant: Option<Mutant>) -> Successors {
        let mut next = Vec::new();
        for coordinator in 0..self.coordinators.len() {
            self.coordinate(coordinator, limits, mutant, &mut next);
        }
        for table in 0..self.slots.len() {
            self.publish(table, mutant, &mut next);
            self.observe(table, limits, &mut next);
            self.collect(table, mutant, &mut next);
            self.write_foreign(table, &mut next);
        }
        self.deliver(&mut next);
        self.acknowledge(limits, &mut next);
        next
    }

    fn step(&self, name: String, next: &mut Successors, change: impl FnOnce(&mut Self)) {
        let mut world = self.clone();
        change(&mut world);
        next.push((name, world));
    }

    fn coordinate(&self, c: usize, limits: &Limits, mutant: Option<Mutant>, next: &mut Successors) {
        match &self.coordinators[c].phase {
            Phase::Idle => {
                for batch in 0..limits.batches {
                    self.open(c, Some(batch), limits, next);
                }
                if limits.maintenance && c == 1 {
                    self.open(c, None, limits, next);
                }
                return;
            }
            Phase::Working(parts) => self.step(format!("{c} stages {parts:?}"), next, |world| {
                world.files.extend(parts.iter().map(|part| part.attempt));
                world.coordinators[c].phase = Phase::Staged(parts.clone());
            }),
            Phase::Staged(parts) => {
                self.prepare(c, parts, limits, mutant, next);
                if mutant == Some(Mutant::PublishBeforePrepare) {
                    for part in parts {
                        let slot = part.head.map_or(0, |head| slot_of(head) + 1);
                        self.write_slot(part.table, slot, Content::Ours(part.attempt), next);
                    }
                }
            }
        }
        if self.crashes > 0 {
            self.step(format!("{c} crashes"), next, |world| {
                world.crashes -= 1;
                let node = world.coordinators[c].epoch.node;
                let grant = Entry::Grant(Grant {
                    node,
                    role: Role::Coordinator,
                });
                if let Outcome::Granted(epoch) = world.propose(&grant) {
                    world.coordinators[c].epoch = epoch;
                }
                world.coordinators[c].phase = Phase::Idle;
            });
        }
    }

    /// Opens an attempt on every table that does not have the batch yet.
    fn open(&self, c: usize, batch: Option<u8>, limits: &Limits, next: &mut Successors) {
        let key = batch.map(batch_key);
        let lacks = |table: &usize| {
            key.as_ref()
                .is_none_or(|key| self.table(*table).standing(key) == Standing::New)
        };
        let tables: Vec<_> = (0..self.slots.len()).filter(lacks).collect();
        if tables.is_empty() || self.opened.len() + tables.len() > limits.attempts {
            return;
        }
        self.step(format!("{c} opens {batch:?}"), next, |world| {
            let mut parts = Vec::new();
            for table in tables {
                let entry = OpenAttempt {
                    table: table_id(table),
                    epoch: world.coordinators[c].epoch,
                    kind: if key.is_some() {
                        CommitKind::Batch
                    } else {
                        CommitKind::Maintenance
                    },
                    batches: key.iter().cloned().collect(),
                    proposed_ms: 0,
                };
                let outcome = world.propose(&Entry::OpenAttempt(entry));
                let Outcome::AttemptOpened(attempt) = outcome else {
                    panic!("{outcome:?}")
                };
                world.opened.push(batch);
                parts.push(Part {
                    table,
                    attempt: attempt.index,
                    head: world.table(table).head,
                });
            }
            world.coordinators[c].phase = Phase::Working(parts);
        });
    }

    fn prepare(
        &self,
        c: usize,
        parts: &[Part],
        limits: &Limits,
        mutant: Option<Mutant>,
        next: &mut Successors,
    ) {
        if parts
            .iter()
            .any(|part| slot_of(self.table(part.table).next_version()) >= limits.slots)
        {
            return;
        }
        self.step(format!("{c} prepares {parts:?}"), next, |world| {
            if mutant == Some(Mutant::NoAttemptFence) {
                world.reopen(c, parts);
            }
            let hidden = (mutant == Some(Mutant::NoDedup)).then(|| world.hide_marks());
            let entry = Prepare {
                parts: parts.iter().map(|part| world.prepare_part(part)).collect(),
                proposed_ms: 0,
            };
            let outcome = world.propose(&Entry::Prepare(entry));
            if let Some(hidden) = hidden {
                world.show_marks(hidden);
            }
            world.coordinators[c].phase = match &outcome {
                // Execute again on the new head, under the same attempt.
                Outcome::Refused(Refusal::HeadMoved { .. }) => Phase::Working(
                    parts
                        .iter()
                        .map(|part| Part {
                            head: world.table(part.table).head,
                            ..*part
                        })
                        .collect(),
                ),
                _ => Phase::Idle,
            };
            if let (Outcome::Prepared(versions), Some(Mutant::AckBeforeSlot)) = (outcome, mutant)
                && let Some(batch) = world.batch_of(parts[0].attempt)
            {
                world
                    .acked
                    .insert(batch, versions.iter().map(|version| version.0).collect());
            }
        });
    }

    fn prepare_part(&self, part: &Part) -> PreparePart {
        let slot = part.head.map_or(0, |head| slot_of(head) + 1);
        PreparePart {
            table: table_id(part.table),
            attempt: part.attempt,
            expected: part.head,
            commit_digest: digest(Content::Ours(part.attempt), slot),
            bytes: CommitBytes::Staged,
            offsets: BTreeMap::new(),
            watermark: None,
            time_ms: time_of(slot),
        }
    }

    /// What a resolver may do with the prepared commit of a table.
    fn publish(&self, t: usize, mutant: Option<Mutant>, next: &mut Successors) {
        let Some(pending) = self.table(t).pending.clone() else {
            return;
        };
        let (attempt, version) = (pending.opened.index, pending.version);
        let slot = slot_of(version);
        let Some(content) = self.slots[t].get(slot).copied() else {
            return;
        };
        if self.files.contains(&attempt) {
            self.write_slot(t, slot, Content::Ours(attempt), next);
            self.step(format!("write of {t}/{slot} is delayed"), next, |world| {
                world.in_flight.insert((t, slot, attempt));
            });
        } else {
            self.write_slot(t, slot, Content::Fence, next);
        }
        if self.losses > 0 && self.files.contains(&attempt) {
            self.step(format!("files of {attempt} are lost"), next, |world| {
                world.losses -= 1;
                world.files.remove(&attempt);
                world.lost.insert(attempt);
            });
        }
        let made_up = SlotEvidence {
            version,
            digest: MADE_UP,
        };
        let abort = Entry::Abort(Abort {
            table: table_id(t),
            attempt,
            evidence: Some(made_up),
        });
        let finalize = Entry::Finalize(Finalize {
            table: table_id(t),
            version,
            attempt,
        });
        match (mutant, content) {
            (Some(Mutant::AbortOnTimeout), _) | (Some(Mutant::ExistsIsForeign), Some(_)) => {
                self.step(format!("mutant aborts {attempt}"), next, |world| {
                    world.propose(&abort);
                });
            }
            (Some(Mutant::ExistsIsMine), Some(_)) => {
                self.step(format!("mutant finalizes {attempt}"), next, |world| {
                    world.propose(&finalize);
                });
            }
            (Some(Mutant::ConflictIsExists), None) => self.rebase(t, slot, attempt, MADE_UP, next),
            (Some(Mutant::CleanUnknown), _) => {
                self.step(format!("mutant cleans {attempt}"), next, |world| {
                    world.in_flight.insert((t, slot, attempt));
                    world.files.remove(&attempt);
                });
            }
            _ => {}
        }
    }

    fn write_slot(&self, t: usize, slot: usize, content: Content, next: &mut Successors) {
        if self.slots[t].get(slot) == Some(&None) {
            self.step(format!("{content:?} lands in {t}/{slot}"), next, |world| {
                world.slots[t][slot] = Some(content);
            });
        }
    }

    fn rebase(&self, t: usize, slot: usize, attempt: u64, evidence: Digest, next: &mut Successors) {
        if slot + 1 >= self.slots[t].len() || !self.files.contains(&attempt) {
            return;
        }
        let entry = Entry::Rebase(Rebase {
            table: table_id(t),
            version: TableVersion(slot as u64),
            foreign_digest: evidence,
            foreign_time_ms: time_of(slot),
            attempt,
            commit_digest: digest(Content::Ours(attempt), slot + 1),
            bytes: CommitBytes::Staged,
            time_ms: time_of(slot + 1),
        });
        self.step(
            format!("{attempt} is rebased over {t}/{slot}"),
            next,
            |world| {
                world.propose(&entry);
            },
        );
    }

    /// Whoever saw a slot may say so at any later time, also when the news is old.
    fn observe(&self, t: usize, limits: &Limits, next: &mut Successors) {
        for slot in 0..limits.slots {
            let Some(content) = self.slots[t][slot] else {
                continue;
            };
            let version = TableVersion(slot as u64);
            for attempt in (0..self.opened.len() as u64).map(|n| FIRST_ATTEMPT + n) {
                if content == Content::Ours(attempt) {
                    self.step(
                        format!("{t}/{slot} is seen to hold {attempt}"),
                        next,
                        |world| {
                            let table = table_id(t);
                            world.propose(&Entry::Finalize(Finalize {
                                table,
                                version,
                                attempt,
                            }));
                        },
                    );
                    continue;
                }
                let seen = digest(content, slot);
                let evidence = Some(SlotEvidence {
                    version,
                    digest: seen,
                });
                self.step(format!("{t}/{slot} ends {attempt}"), next, |world| {
                    world.propose(&Entry::Abort(Abort {
                        table: table_id(t),
                        attempt,
                        evidence,
                    }));
                });
                if content == Content::Foreign {
                    self.rebase(t, slot, attempt, seen, next);
                }
            }
            if !matches!(content, Content::Ours(_)) {
                self.step(format!("{t}/{slot} is followed"), next, |world| {
                    let (table, time_ms) = (table_id(t), time_of(slot));
                    let digest = digest(content, slot);
                    world.propose(&Entry::SyncForeign(SyncForeign {
                        table,
                        version,
                        digest,
                        time_ms,
                    }));
                });
            }
        }
    }

    /// Garbage collection with the wildest clock: any open attempt may be closed at any time.
    fn collect(&self, t: usize, mutant: Option<Mutant>, next: &mut Successors) {
        for attempt in self.table(t).attempts.keys().copied() {
            self.step(format!("{attempt} is closed"), next, |world| {
                let entry = Abort {
                    table: table_id(t),
                    attempt,
                    evidence: None,
                };
                world.propose(&Entry::Abort(entry));
            });
        }
        let published = |attempt: &u64| self.slots[t].contains(&Some(Content::Ours(*attempt)));
        for attempt in self
            .files
            .iter()
            .copied()
            .filter(|attempt| !published(attempt))
        {
            if mutant == Some(Mutant::CollectByAge) {
                self.step(format!("files of {attempt} grow old"), next, |world| {
                    world.files.remove(&attempt);
                });
            }
        }
        for attempt in self.table(t).uncollected.iter().copied() {
            self.step(format!("files of {attempt} are collected"), next, |world| {
                world.files.remove(&attempt);
                let entry = Collected {
                    table: table_id(t),
                    attempts: vec![attempt],
                };
                world.propose(&Entry::Collected(entry));
            });
        }
    }

    fn write_foreign(&self, t: usize, next: &mut Successors) {
        let free = self.slots[t].iter().position(Option::is_none);
        if let (Some(slot), true) = (free, self.foreign > 0) {
            self.step(
                format!("a foreign commit lands in {t}/{slot}"),
                next,
                |world| {
                    world.foreign -= 1;
                    world.slots[t][slot] = Some(Content::Foreign);
                },
            );
        }
    }

    /// Delayed writes arrive, now or never.
    fn deliver(&self, next: &mut Successors) {
        for write in &self.in_flight {
            let (t, slot, attempt) = *write;
            self.step(
                format!("the delayed write of {t}/{slot} arrives"),
                next,
                |world| {
                    world.in_flight.remove(write);
                    world.slots[t][slot].get_or_insert(Content::Ours(attempt));
                },
            );
        }
    }

    fn acknowledge(&self, limits: &Limits, next: &mut Successors) {
        for batch in 0..limits.batches {
            if let (None, Some(versions)) = (self.acked.get(&batch), self.final_versions(batch)) {
                self.step(format!("batch {batch} is acknowledged"), next, |world| {
                    world.acked.insert(batch, versions);
                });
            }
        }
    }
}

/// What mutants do to the replicated state behind the product's back.
impl World {
    fn reopen(&mut self, c: usize, parts: &[Part]) {
        for part in parts {
            let attempt = tidegate_cluster::metadata::Attempt {
                epoch: self.coordinators[c].epoch,
                kind: CommitKind::Batch,
                batches: self
                    .batch_of(part.attempt)
                    .map(batch_key)
                    .into_iter()
                    .collect(),
                opened_ms: 0,
            };
            let table = self.state.tables.get_mut(&table_id(part.table)).unwrap();
            let table = std::sync::Arc::make_mut(table);
            table.attempts.insert(part.attempt, attempt);
        }
    }

    fn hide_marks(
        &mut self,
    ) -> Vec<std::collections::VecDeque<tidegate_cluster::metadata::BatchMark>> {
        let tables = self.state.tables.values_mut();
        tables
            .map(|table| std::mem::take(&mut std::sync::Arc::make_mut(table).marks))
            .collect()
    }

    fn show_marks(
        &mut self,
        hidden: Vec<std::collections::VecDeque<tidegate_cluster::metadata::BatchMark>>,
    ) {
        for (table, marks) in self.state.tables.values_mut().zip(hidden) {
            std::sync::Arc::make_mut(table).marks = marks;
        }
    }
}
