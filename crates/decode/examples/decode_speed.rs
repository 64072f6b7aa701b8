//! Measures decoding on one thread: `decode_speed SPEC.yaml FILE…`.

use std::io::Write as _;

use tidegate_change::clock::{Clock as _, SystemClock};
use tidegate_change::spec::{ResolvedSpec, TableSpec};
use tidegate_decode::{DecodePlan, Input, open};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let spec = arguments
        .next()
        .ok_or("usage: decode_speed SPEC.yaml FILE…")?;
    let spec = ResolvedSpec::declared(TableSpec::from_yaml(&std::fs::read_to_string(spec)?)?);
    let plan = DecodePlan::new(&spec)?;
    for file in arguments {
        let start = SystemClock.monotonic_ns();
        let chunks: Vec<_> = open(
            &plan,
            None,
            &file,
            Input::File(std::fs::File::open(&file)?),
            None,
        )?
        .collect::<Result<_, _>>()?;
        let cut = SystemClock.monotonic_ns();
        let (mut events, mut others, mut invalid, mut bytes) = (0u64, 0u64, 0u64, 0u64);
        for chunk in &chunks {
            bytes += u64::try_from(chunk.bytes())?;
            for batch in plan.decode(chunk)?.batches {
                events += u64::try_from(batch.len())?;
                others += batch.other.0.values().sum::<u64>();
                invalid += u64::try_from(batch.invalid.len())?;
            }
        }
        let end = SystemClock.monotonic_ns();
        writeln!(
            std::io::stdout(),
            "{file}: {events} events, {others} others, {invalid} invalid, {} MB; cut {} ms, decode {} ms",
            bytes / 1_000_000,
            (cut - start) / 1_000_000,
            (end - cut) / 1_000_000,
        )?;
    }
    Ok(())
}
