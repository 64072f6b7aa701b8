//! The rules one by one, and replicas that replay the same entries.

use std::collections::BTreeMap;

use tidegate_change::{BatchId, Digest, TableVersion, WriterId};

use super::*;

fn digest(n: u64) -> Digest {
    Digest::of(&n.to_le_bytes())
}

fn table() -> TableId {
    TableId("t0".into())
}

fn batch(n: u64, content: u64) -> BatchKey {
    BatchKey {
        id: BatchId(format!("b{n}")),
        input_digest: digest(content),
        sequence: None,
        logical_time_ms: None,
    }
}

/// A state with an epoch, and a table whose version 0 is final.
struct Machine {
    state: State,
    index: u64,
    epoch: Epoch,
}

impl Machine {
    fn new() -> Self {
        let mut machine = Self {
            state: State::new(WriterId(1)),
            index: 0,
            epoch: Epoch {
                node: NodeId(0),
                role: Role::Coordinator,
                number: 0,
            },
        };
        let grant = Grant {
            node: NodeId(0),
            role: Role::Coordinator,
        };
        let Outcome::Granted(epoch) = machine.run(Entry::Grant(grant)) else {
            panic!()
        };
        machine.epoch = epoch;
        machine.run(Entry::CreateTable(CreateTable {
            table: table(),
            name: "customers".into(),
            location: "customers".into(),
            epoch: None,
        }));
        let attempt = machine.open(CommitKind::Schema, vec![]).unwrap();
        assert_eq!(
            machine.prepare(attempt, None, 10),
            Outcome::Prepared(vec![TableVersion(0)])
        );
        assert_eq!(machine.finalize(0, attempt), Outcome::Finalized);
        machine
    }

    fn run(&mut self, entry: Entry) -> Outcome {
        self.index += 1;
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(
            serde_json::from_str::<Entry>(&text).unwrap(),
            entry,
            "{text}"
        );
        apply(&mut self.state, self.index, &entry)
    }

    fn open(&mut self, kind: CommitKind, batches: Vec<BatchKey>) -> Result<u64, Refusal> {
        let entry = OpenAttempt {
            table: table(),
            epoch: self.epoch,
            kind,
            batches,
            proposed_ms: 0,
        };
        match self.run(Entry::OpenAttempt(entry)) {
            Outcome::AttemptOpened(attempt) => Ok(attempt.index),
            Outcome::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    fn part(&self, attempt: u64, expected: Option<u64>, time_ms: i64) -> PreparePart {
        PreparePart {
            table: table(),
            attempt,
            expected: expected.map(TableVersion),
            commit_digest: digest(1000 + attempt),
            bytes: CommitBytes::Staged,
            offsets: BTreeMap::new(),
            watermark: None,
            time_ms,
        }
    }

    fn prepare(&mut self, attempt: u64, expected: Option<u64>, time_ms: i64) -> Outcome {
        let part = self.part(attempt, expected, time_ms);
        self.run(Entry::Prepare(Prepare {
            parts: vec![part],
            proposed_ms: 0,
        }))
    }

    fn finalize(&mut self, version: u64, attempt: u64) -> Outcome {
        self.run(Entry::Finalize(Finalize {
            table: table(),
            version: TableVersion(version),
            attempt,
        }))
    }

    fn abort(&mut self, attempt: u64, evidence: Option<(u64, u64)>) -> Outcome {
        let evidence = evidence.map(|(version, n)| SlotEvidence {
            version: TableVersion(version),
            digest: digest(n),
        });
        self.run(Entry::Abort(Abort {
            table: table(),
            attempt,
            evidence,
        }))
    }

    fn commit(&mut self, batch: BatchKey) -> u64 {
        let attempt = self.open(CommitKind::Batch, vec![batch]).unwrap();
        let head = self.table().head.unwrap().0;
        let time_ms = self.table().head_time_ms + 1;
        assert!(matches!(
            self.prepare(attempt, Some(head), time_ms),
            Outcome::Prepared(_)
        ));
        self.finalize(head + 1, attempt);
        head + 1
    }

    fn table(&self) -> &TableState {
        &self.state.tables[&table()]
    }
}

#[test]
fn a_batch_is_prepared_once() {
    let mut m = Machine::new();
    let (a, b) = (
        m.open(CommitKind::Batch, vec![batch(1, 1)]).unwrap(),
        m.open(CommitKind::Batch, vec![batch(1, 1)]).unwrap(),
    );
    assert_eq!(
        m.prepare(a, Some(0), 11),
        Outcome::Prepared(vec![TableVersion(1)])
    );
    assert_eq!(
        m.prepare(b, Some(0), 12),
        Outcome::Refused(Refusal::PendingExists {
            version: TableVersion(1)
        })
    );
    assert_eq!(m.finalize(1, a), Outcome::Finalized);
    assert_eq!(
        m.finalize(1, a),
        Outcome::Finalized,
        "finalize is idempotent"
    );
    let final_ = Refusal::BatchFinal {
        version: TableVersion(1),
    };
    assert_eq!(m.prepare(b, Some(1), 12), Outcome::Refused(final_.clone()));
    assert_eq!(m.open(CommitKind::Batch, vec![batch(1, 1)]), Err(final_));
    let mismatch = m.open(CommitKind::Batch, vec![batch(1, 2)]).unwrap_err();
    assert_eq!(
        mismatch.into_error("t").code(),
        tidegate_change::Code::BatchContentMismatch
    );
}

#[test]
fn a_prepared_attempt_is_closed_only_on_foreign_evidence() {
    let mut m = Machine::new();
    let a = m.open(CommitKind::Batch, vec![batch(1, 1)]).unwrap();
    m.prepare(a, Some(0), 11);
    let own = 1000 + a;
    for evidence in [None, Some((1, own)), Some((2, 7))] {
        assert_eq!(
            m.abort(a, evidence),
            Outcome::Refused(Refusal::EvidenceMissing)
        );
    }
    assert_eq!(m.abort(a, Some((1, 7))), Outcome::Aborted);
    assert!(m.table().uncollected.contains(&a));
    assert_eq!(
        m.prepare(a, Some(0), 12),
        Outcome::Refused(Refusal::AttemptNotOpen)
    );
}

#[test]
fn a_rebased_attempt_waits_for_the_next_version() {
    let mut m = Machine::new();
    let a = m.open(CommitKind::Batch, vec![batch(1, 1)]).unwrap();
    m.prepare(a, Some(0), 11);
    let rebase = Rebase {
        table: table(),
        version: TableVersion(1),
        foreign_digest: digest(7),
        foreign_time_ms: 20,
        attempt: a,
        commit_digest: digest(8),
        bytes: CommitBytes::Staged,
        time_ms: 21,
    };
    assert_eq!(
        m.run(Entry::Rebase(rebase)),
        Outcome::Rebased(TableVersion(2))
    );
    assert_eq!(m.finalize(1, a), Outcome::Refused(Refusal::NotPending));
    assert_eq!(m.finalize(2, a), Outcome::Finalized);
    assert_eq!(m.table().marks[0].version, TableVersion(2));
}

#[test]
fn a_grant_kills_older_epochs_of_its_node_only() {
    let mut m = Machine::new();
    let a = m.open(CommitKind::Batch, vec![batch(1, 1)]).unwrap();
    m.run(Entry::Grant(Grant {
        node: NodeId(9),
        role: Role::Coordinator,
    }));
    assert!(m.state.is_current(&m.epoch));
    m.run(Entry::Grant(Grant {
        node: NodeId(0),
        role: Role::Worker,
    }));
    assert!(m.state.is_current(&m.epoch));
    m.run(Entry::Grant(Grant {
        node: NodeId(0),
        role: Role::Coordinator,
    }));
    assert_eq!(
        m.prepare(a, Some(0), 11),
        Outcome::Refused(Refusal::EpochDead)
    );
}

#[test]
fn the_window_forgets_ids_and_sequences_never_do() {
    let mut m = Machine::new();
    let numbered = |number| BatchKey {
        sequence: Some(ProducerSequence {
            source: "s".into(),
            producer_epoch: 1,
            number,
        }),
        ..batch(10_000 + number, number)
    };
    m.commit(numbered(5));
    for n in 0..limits::BATCH_MARKS_MAX as u64 {
        m.commit(batch(n, n));
    }
    assert_eq!(m.table().marks.len(), limits::BATCH_MARKS_MAX);
    assert_eq!(
        m.open(CommitKind::Batch, vec![numbered(5)]),
        Err(Refusal::AlreadyApplied)
    );
    let old = BatchKey {
        logical_time_ms: Some(0),
        ..batch(77_777, 1)
    };
    assert_eq!(
        m.open(CommitKind::Batch, vec![old]),
        Err(Refusal::BatchExpired)
    );
    assert!(m.open(CommitKind::Batch, vec![batch(77_777, 1)]).is_ok());
}

#[test]
fn sent_offsets_must_follow_and_found_ones_need_not() {
    let mut m = Machine::new();
    let mut prepare = |n: u64, from: Option<i64>, to: i64| {
        let attempt = m.open(CommitKind::Batch, vec![batch(n, n)]).unwrap();
        let head = m.table().head.unwrap().0;
        let mut part = m.part(attempt, Some(head), 100 + n as i64);
        part.offsets
            .insert("topic/0".into(), OffsetRange { from, to });
        let outcome = m.run(Entry::Prepare(Prepare {
            parts: vec![part],
            proposed_ms: 0,
        }));
        m.finalize(head + 1, attempt);
        (outcome, m.table().offsets.get("topic/0").copied())
    };
    assert_eq!(prepare(1, Some(0), 10).1, Some(10));
    assert_eq!(
        prepare(2, None, 4).1,
        Some(10),
        "a replayed file takes no offset back"
    );
    let gap = Refusal::OffsetMismatch {
        partition: "topic/0".into(),
        expected: 10,
    };
    assert_eq!(prepare(3, Some(12), 20).0, Outcome::Refused(gap));
    assert_eq!(prepare(4, Some(10), 20).1, Some(20));
}

#[test]
fn a_decision_over_tables_is_all_or_none() {
    let mut m = Machine::new();
    let other = TableId("t1".into());
    m.run(Entry::CreateTable(CreateTable {
        table: other.clone(),
        name: "orders".into(),
        location: "orders".into(),
        epoch: None,
    }));
    let a = m.open(CommitKind::Batch, vec![batch(1, 1)]).unwrap();
    let entry = OpenAttempt {
        table: other.clone(),
        epoch: m.epoch,
        kind: CommitKind::Batch,
        batches: vec![batch(1, 1)],
        proposed_ms: 0,
    };
    let Outcome::AttemptOpened(b) = m.run(Entry::OpenAttempt(entry)) else {
        panic!()
    };
    let part = m.part(a, Some(0), 11);
    let wrong = PreparePart {
        table: other.clone(),
        attempt: b.index,
        expected: Some(TableVersion(3)),
        ..part.clone()
    };
    let both = |second: PreparePart| {
        Entry::Prepare(Prepare {
            parts: vec![part.clone(), second],
            proposed_ms: 0,
        })
    };
    assert!(matches!(
        m.run(both(wrong.clone())),
        Outcome::Refused(Refusal::HeadMoved { .. })
    ));
    assert!(m.table().pending.is_none());
    let right = PreparePart {
        expected: None,
        ..wrong
    };
    assert_eq!(
        m.run(both(right)),
        Outcome::Prepared(vec![TableVersion(1), TableVersion(0)])
    );
    // Each table becomes visible by its own slot; foreign evidence in one ends that one's part only.
    let evidence = Some(SlotEvidence {
        version: TableVersion(0),
        digest: digest(7),
    });
    assert_eq!(
        m.run(Entry::Abort(Abort {
            table: other.clone(),
            attempt: b.index,
            evidence
        })),
        Outcome::Aborted
    );
    assert_eq!(m.finalize(1, a), Outcome::Finalized);
    assert_eq!(m.state.tables[&other].standing(&batch(1, 1)), Standing::New);
}

#[test]
fn places_do_not_overlap() {
    let mut m = Machine::new();
    for (location, free) in [
        ("customers/2024", false),
        ("customers", false),
        ("customers2", true),
    ] {
        let outcome = m.run(Entry::CreateTable(CreateTable {
            table: TableId(location.into()),
            name: location.replace('/', "_") + "_t",
            location: location.into(),
            epoch: None,
        }));
        assert_eq!(outcome == Outcome::Done, free, "{location}");
    }
}

#[test]
fn the_floor_stays_below_every_living_attempt() {
    let mut m = Machine::new();
    let a = m.open(CommitKind::Batch, vec![batch(1, 1)]).unwrap();
    let floor = |floor| {
        Entry::GcFloor(GcFloor {
            table: table(),
            floor,
        })
    };
    assert_eq!(m.run(floor(a + 1)), Outcome::Refused(Refusal::Busy));
    assert_eq!(m.run(floor(a)), Outcome::Done);
    m.prepare(a, Some(0), 11);
    assert_eq!(m.run(floor(a + 1)), Outcome::Refused(Refusal::Busy));
    m.finalize(1, a);
    assert_eq!(m.run(floor(a + 1)), Outcome::Done);
    assert_eq!(
        m.run(floor(1_000)),
        Outcome::Refused(Refusal::Busy),
        "later attempts may lie below it"
    );
}

#[test]
fn a_table_takes_no_more_of_the_state_than_its_bound() {
    let mut m = Machine::new();
    let long = |n: u64| format!("source/{n:0>400}");
    let (mut refused, mut next) = (0, 0);
    for round in 1..400_u64 {
        let Ok(attempt) = m.open(CommitKind::Batch, vec![batch(round, round)]) else {
            refused += 1;
            continue;
        };
        let head = m.table().head.map(|head| head.0);
        let mut part = m.part(attempt, head, 10 + i64::try_from(round).unwrap());
        for _ in 0..8 {
            part.offsets
                .insert(long(next), OffsetRange { from: None, to: 1 });
            next += 1;
        }
        let prepare = Entry::Prepare(Prepare {
            parts: vec![part],
            proposed_ms: 0,
        });
        let outcome = m.run(prepare);
        let stored = serde_json::to_vec(m.table()).unwrap().len();
        assert!(
            stored <= limits::TABLE_BYTES_MAX,
            "round {round}: {stored} bytes"
        );
        match outcome {
            Outcome::Prepared(versions) => {
                m.finalize(versions[0].0, attempt);
            }
            Outcome::Refused(Refusal::Limit { what }) => {
                assert_eq!(what, "bytes of progress in a table");
                m.run(Entry::Abort(Abort {
                    table: table(),
                    attempt,
                    evidence: None,
                }));
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    let stored = serde_json::to_vec(m.table()).unwrap().len();
    assert!(
        refused > 0 && stored > limits::TABLE_BYTES_MAX / 2,
        "{refused} refused, {stored} bytes"
    );
    // A batch that brings no new names goes on.
    let attempt = m.open(CommitKind::Batch, vec![batch(9_999, 1)]).unwrap();
    let head = m.table().head.map(|head| head.0);
    assert!(matches!(
        m.prepare(attempt, head, 9_999),
        Outcome::Prepared(_)
    ));
}

mod random;
