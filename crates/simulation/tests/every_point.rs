//! Every event at every point of a batch's way, K0 to K20 of the commit protocol.

use tidegate_simulation::commits::every_point::{Event, run_all};

#[test]
fn every_event_at_every_point_is_survived() {
    for (name, inline_bytes_max) in [("staged", 0), ("inline", 32 << 10)] {
        let counts = run_all(inline_bytes_max).unwrap_or_else(|e| panic!("{name}: {e}"));
        println!("{name} commits, {} runs:\n{counts}", counts.total());
        for event in Event::ALL {
            for point in ["K0", "K1", "K2", "K4", "K5", "K6", "K7", "K8"] {
                assert!(
                    counts.runs.contains_key(&(point, event)),
                    "{name}: {event:?} never came at {point}"
                );
            }
        }
        let staged = counts.runs.contains_key(&("K3", Event::Crash));
        assert_eq!(staged, inline_bytes_max == 0, "{name}");
    }
}
