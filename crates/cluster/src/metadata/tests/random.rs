//! Random entries: a replica from a serialised snapshot and the rest of the log equals the first one.

use super::*;
use crate::placement::PlacedWorker;

/// Sequences of entries; a small generator instead of a framework keeps ten thousand of them in seconds.
const SEQUENCES: u64 = 10_000;
const ENTRIES: usize = 30;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

fn entry(dice: &mut Dice, state: &State) -> Entry {
    let id = TableId(format!("t{}", dice.roll(2)));
    match dice.roll(16) {
        0 => Entry::Grant(Grant {
            node: NodeId(dice.roll(2)),
            role: Role::Coordinator,
        }),
        1 => Entry::CreateTable(CreateTable {
            table: id.clone(),
            name: id.0.clone(),
            location: id.0,
            epoch: None,
        }),
        2..5 => Entry::OpenAttempt(OpenAttempt {
            table: id,
            epoch: current_epoch(state),
            kind: CommitKind::Batch,
            batches: vec![batch(dice.roll(6), dice.roll(2))],
            proposed_ms: 0,
        }),
        5 => Entry::GcFloor(GcFloor {
            table: id,
            floor: dice.roll(40),
        }),
        6 => Entry::Place(Place {
            expected: state.placement.epoch.saturating_sub(dice.roll(2)),
            workers: BTreeMap::from([(NodeId(dice.roll(3)), worker(dice.roll(3)))]),
        }),
        7 => Entry::Drain(Drain {
            node: NodeId(dice.roll(3)),
        }),
        _ => entry_of_attempt(dice, state, id),
    }
}

fn worker(incarnation: u64) -> PlacedWorker {
    PlacedWorker {
        endpoint: "http://w".into(),
        incarnation,
        is_draining: false,
    }
}

fn current_epoch(state: &State) -> Epoch {
    let roles = state.epochs.get(&NodeId(0));
    let number = roles
        .and_then(|roles| roles.get(&Role::Coordinator))
        .copied()
        .unwrap_or_default();
    Epoch {
        node: NodeId(0),
        role: Role::Coordinator,
        number,
    }
}

fn some_attempt(dice: &mut Dice, table: Option<&TableState>) -> u64 {
    let open = table.and_then(|t| t.attempts.keys().next().copied());
    let pending = table.and_then(|t| t.pending.as_ref().map(|p| p.opened.index));
    match dice.roll(3) {
        0 => open.or(pending).unwrap_or(3),
        1 => pending.or(open).unwrap_or(3),
        _ => dice.roll(30),
    }
}

fn entry_of_attempt(dice: &mut Dice, state: &State, id: TableId) -> Entry {
    let known = state.tables.get(&id).map(std::sync::Arc::as_ref);
    let attempt = some_attempt(dice, known);
    let head = known.and_then(|t| t.head);
    let next = known.map_or(TableVersion(0), TableState::next_version);
    let time_ms = known.map_or(0, |t| t.head_time_ms) + i64::try_from(dice.roll(3)).unwrap();
    match dice.roll(9) {
        0..3 => {
            let part = PreparePart {
                table: id,
                attempt,
                expected: if dice.roll(5) == 0 { None } else { head },
                commit_digest: digest(attempt),
                bytes: CommitBytes::Inline("x".into()),
                offsets: BTreeMap::from([(
                    "s/0".into(),
                    OffsetRange {
                        from: None,
                        to: time_ms,
                    },
                )]),
                watermark: Some(Watermark {
                    json: time_ms.to_string(),
                    order: vec![1],
                }),
                time_ms,
            };
            Entry::Prepare(Prepare {
                parts: vec![part],
                proposed_ms: 0,
            })
        }
        3..6 => Entry::Finalize(Finalize {
            table: id,
            version: next,
            attempt,
        }),
        6 => {
            let evidence = Some(SlotEvidence {
                version: next,
                digest: digest(99),
            });
            Entry::Abort(Abort {
                table: id,
                attempt,
                evidence,
            })
        }
        7 => Entry::SyncForeign(SyncForeign {
            table: id,
            version: next,
            digest: digest(98),
            time_ms,
        }),
        _ => Entry::Rebase(Rebase {
            table: id,
            version: next,
            foreign_digest: digest(97),
            foreign_time_ms: time_ms,
            attempt,
            commit_digest: digest(96),
            bytes: CommitBytes::Staged,
            time_ms: time_ms + 1,
        }),
    }
}

fn check_invariants(state: &State) {
    for table in state.tables.values() {
        let mut seen = std::collections::BTreeSet::new();
        for mark in &table.marks {
            assert!(seen.insert(&mark.id), "a batch is in two versions");
            assert!(
                Some(mark.version) <= table.head,
                "a batch is final beyond the head"
            );
        }
        assert!(table.attempts.len() <= limits::OPEN_ATTEMPTS_MAX);
        assert!(
            table
                .attempts
                .keys()
                .all(|attempt| *attempt >= table.gc_floor)
        );
        if let Some(pending) = &table.pending {
            assert_eq!(pending.version, table.next_version());
            assert!(!table.attempts.contains_key(&pending.opened.index));
            assert!(pending.opened.index >= table.gc_floor);
        }
    }
}

/// A hash that any replica can compute: of the canonical serialised form.
fn state_hash(state: &State) -> Digest {
    Digest::of(&serde_json::to_vec(state).unwrap())
}

#[test]
fn replicas_that_replay_from_a_snapshot_are_equal() {
    let mut took_effect = 0;
    for seed in 0..SEQUENCES {
        let mut dice = Dice(seed);
        let cut = dice.roll(ENTRIES as u64) as usize;
        let mut state = State::new(WriterId(1));
        let mut snapshot = None;
        let mut suffix = Vec::new();
        for n in 0..ENTRIES {
            if n == cut {
                snapshot = Some(serde_json::to_vec(&state).unwrap());
            }
            let entry = entry(&mut dice, &state);
            let before = state.clone();
            let outcome = apply(&mut state, n as u64 + 1, &entry);
            match outcome {
                Outcome::Refused(_) => {
                    let unchanged = State {
                        last_applied: n as u64 + 1,
                        ..before
                    };
                    assert_eq!(state, unchanged, "a refused entry had an effect: {entry:?}");
                }
                _ => took_effect += 1,
            }
            check_invariants(&state);
            if n >= cut {
                suffix.push((n as u64 + 1, serde_json::to_vec(&entry).unwrap()));
            }
        }
        let mut replica: State = serde_json::from_slice(&snapshot.unwrap()).unwrap();
        for (index, bytes) in &suffix {
            apply(
                &mut replica,
                *index,
                &serde_json::from_slice(bytes).unwrap(),
            );
        }
        assert_eq!(state_hash(&replica), state_hash(&state), "seed {seed}");
    }
    assert!(
        took_effect > SEQUENCES * 5,
        "the entries hardly ever do anything: {took_effect}"
    );
}
