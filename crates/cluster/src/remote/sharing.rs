//! Which reader reads which sources, and how many owners a batch has: pure functions.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::placement::Seat;

/// Gives sources, by number with their bytes, to readers: the largest first, to the one with least.
pub(super) fn shared_out(sources: &[(u32, u64)], seats: &[Seat]) -> BTreeMap<Seat, Vec<u32>> {
    let mut ordered: Vec<(u32, u64)> = sources.to_vec();
    ordered.sort_by_key(|(number, bytes)| (Reverse(*bytes), *number));
    let mut loads: BTreeMap<&Seat, (u64, usize)> =
        seats.iter().map(|seat| (seat, (0, 0))).collect();
    let mut shares: BTreeMap<Seat, Vec<u32>> = BTreeMap::new();
    for (number, bytes) in ordered {
        let least = loads.iter_mut().min_by_key(|(_, load)| **load);
        let Some((seat, load)) = least else { break };
        *load = (load.0 + bytes, load.1 + 1);
        shares.entry((*seat).clone()).or_default().push(number);
    }
    for share in shares.values_mut() {
        share.sort_unstable();
    }
    shares
}

/// Owners of a batch with that many bytes of sources.
pub(super) fn owners_count(bytes: u64, owner_bytes: u64, workers: usize) -> usize {
    let worth = bytes.div_ceil(owner_bytes.max(1));
    usize::try_from(worth)
        .unwrap_or(usize::MAX)
        .clamp(1, workers.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::NodeId;

    fn seat(node: u64) -> Seat {
        Seat {
            node: NodeId(node),
            incarnation: 1,
            endpoint: String::new(),
        }
    }

    #[test]
    fn every_source_has_one_reader_and_readers_have_equal_bytes() {
        let seats = [seat(1), seat(2), seat(3)];
        let sources: Vec<(u32, u64)> = (0..30).map(|n| (n, u64::from(n % 5) * 100)).collect();
        let shares = shared_out(&sources, &seats);
        let mut all: Vec<u32> = shares.values().flatten().copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..30).collect::<Vec<u32>>());
        let bytes =
            |share: &Vec<u32>| -> u64 { share.iter().map(|n| u64::from(n % 5) * 100).sum() };
        let loads: Vec<u64> = shares.values().map(bytes).collect();
        assert_eq!(loads, [2_000, 2_000, 2_000]);
        assert!(shared_out(&sources, &[]).is_empty());
        let empty = shared_out(&[(0, 0), (1, 0), (2, 0)], &seats);
        assert_eq!(empty.len(), 3, "files without a size are spread too");
    }

    #[test]
    fn a_small_batch_has_one_owner_and_a_large_one_all() {
        assert_eq!(owners_count(0, 100, 4), 1);
        assert_eq!(owners_count(100, 100, 4), 1);
        assert_eq!(owners_count(101, 100, 4), 2);
        assert_eq!(owners_count(u64::MAX, 100, 4), 4);
        assert_eq!(owners_count(1, 0, 4), 1);
    }
}
