//! Batches of changes.

use anyhow::Result;
use arrow::array::{RecordBatch, UInt64Array};
use arrow::compute::take_record_batch;
use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::orders::{self, KEY_STEP, Payload};

/// Distance of the sequences of two batches.
const BATCH_STEP: i64 = 1_000_000_000_000;
/// Distance of the sequences of two events.
const EVENT_STEP: i64 = 10;
/// How far an event may arrive behind its place.
const DISPLACED_EVENTS_MAX: u64 = 5_000;
/// Keys that one batch may add behind the table.
const TAIL_KEYS: i64 = 20_000_000;
const DUPLICATE_SHARE: f64 = 0.10;
const LATE_SHARE: f64 = 0.05;

/// Which keys a batch changes.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Distribution {
    /// All alike.
    Uniform,
    /// A few again and again.
    Zipf,
    /// The newest most.
    Recent,
}

/// A batch that is to be made.
pub(crate) struct Load {
    pub(crate) rows: u64,
    pub(crate) events: u64,
    pub(crate) batch: u64,
    pub(crate) distribution: Distribution,
}

impl Load {
    /// A row of the table that an event is about.
    fn row(&self, random: &mut StdRng) -> Result<i64> {
        let rows = self.rows;
        let row = match self.distribution {
            Distribution::Uniform => random.random_range(0..rows),
            Distribution::Zipf => {
                let rank = zipf_rank(random.random(), rows);
                // Neighbours in rank are no neighbours in the table.
                rank.wrapping_mul(0x9E37_79B9_7F4A_7C15) % rows
            }
            Distribution::Recent => {
                let back = -(1.0 - random.random::<f64>()).ln() * 0.02 * to_float(rows);
                rows - 1 - from_float(back).min(rows - 1)
            }
        };
        Ok(i64::try_from(row)?)
    }
}

/// The events of a batch in the order of their arrival.
pub(crate) fn changes(load: &Load) -> Result<RecordBatch> {
    let batch = i64::try_from(load.batch)?;
    let seeds = load.rows ^ load.events.rotate_left(20) ^ load.batch.rotate_left(48);
    let mut random = StdRng::seed_from_u64(seeds);
    let distinct = load.events - from_float(to_float(load.events) * DUPLICATE_SHARE);
    let (mut keys, mut sequences, mut operations) = (Vec::new(), Vec::new(), Vec::new());
    let (mut payload, mut places) = (Payload::default(), Vec::new());
    let mut tail = i64::try_from(load.rows)? + (batch - 1) * TAIL_KEYS;
    for event in 0..distinct {
        let row = load.row(&mut random)?;
        let dice = random.random::<f64>();
        let (key, operation) = if dice < 0.7 {
            (row * KEY_STEP, "U")
        } else if dice < 0.8 {
            (row * KEY_STEP + batch % 3 + 1, "I")
        } else if dice < 0.9 {
            tail += 1;
            (tail * KEY_STEP, "I")
        } else {
            (row * KEY_STEP, "D")
        };
        keys.push(key);
        operations.push(operation);
        if operation == "D" {
            payload.push_nulls();
        } else {
            payload.push_random(&mut random);
        }
        let late = random.random_bool(LATE_SHARE);
        let stale = late && operation != "I" && random.random_bool(0.5);
        let place = i64::try_from(event)?;
        sequences.push(match stale {
            // Older than any row of the table.
            true => -place,
            false => batch * BATCH_STEP + place * EVENT_STEP,
        });
        let behind = match late && !stale {
            true => random.random_range(0..DISPLACED_EVENTS_MAX),
            false => 0,
        };
        places.push((event + behind, event));
    }
    for _ in distinct..load.events {
        let of = random.random_range(0..distinct);
        places.push((random.random_range(of..=distinct), of));
    }
    places.sort_unstable();
    let events = orders::table(keys, payload, sequences, Some(operations))?;
    let order = UInt64Array::from_iter_values(places.into_iter().map(|(_, event)| event));
    Ok(take_record_batch(&events, &order)?)
}

/// The rank, from 0, that a uniform number in `[0, 1)` names under a bounded power law with exponent 1.1.
fn zipf_rank(uniform: f64, ranks: u64) -> u64 {
    const EXPONENT: f64 = 1.1;
    let greatest = (to_float(ranks) + 1.0).powf(1.0 - EXPONENT);
    let rank = (uniform * (greatest - 1.0) + 1.0).powf(1.0 / (1.0 - EXPONENT));
    from_float(rank).clamp(1, ranks) - 1
}

#[expect(clippy::cast_precision_loss, reason = "rows are counted below 2^53")]
fn to_float(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates"
)]
fn from_float(number: f64) -> u64 {
    number as u64
}
