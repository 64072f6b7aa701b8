//! No input makes decoding panic, and events keep one entry in every part.

use arrow::array::Array;
use tidegate_change::SourceBatch;
use tidegate_change::spec::ResolvedSpec;
use tidegate_decode::FileFormat;

use super::{capture, resolved, try_decode};

/// A small generator of its own, so that a failing seed says everything.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }

    fn mutate(&mut self, line: &[u8]) -> Vec<u8> {
        let mut line = line.to_vec();
        for _ in 0..=self.below(3) {
            let place = self.below(line.len());
            match self.below(6) {
                0 => line[place] = u8::try_from(self.below(256)).unwrap(),
                1 => line.truncate(place),
                2 => drop(line.remove(place)),
                3 => line.insert(place, b"{}[]\",:\\0n-"[self.below(11)]),
                4 => {
                    let end = (place + self.below(40)).min(line.len());
                    let part = line[place..end].to_vec();
                    line.splice(place..place, part);
                }
                _ => line[place] = b"0123456789\"nulltrue{}"[self.below(21)],
            }
            if line.is_empty() {
                return line;
            }
        }
        line
    }
}

fn check(batch: &SourceBatch) {
    let events = batch.len();
    assert_eq!(batch.columns.num_rows(), events);
    assert_eq!(batch.authored.len(), batch.columns.num_columns());
    assert!(
        batch
            .authored
            .iter()
            .flatten()
            .all(|bits| bits.len() == events)
    );
    assert_eq!(batch.origin.rows.len(), events);
    assert!(batch.position.as_ref().is_none_or(|p| p.len() == events));
    assert!(batch.old_keys.as_ref().is_none_or(|k| k.len() == events));
    assert!(
        batch
            .origin
            .offsets
            .as_ref()
            .is_none_or(|o| o.len() == events)
    );
}

fn run(spec: &ResolvedSpec, format: Option<FileFormat>, bytes: Vec<u8>) {
    if let Ok(whole) = try_decode(spec, format, bytes) {
        whole.batches.iter().for_each(check);
    }
}

fn specs() -> Vec<ResolvedSpec> {
    let types = "schema:\n  - {name: id, type: string}\n  - {name: c_num38, type: 'decimal(38,10)'}\n  \
        - {name: c_ts, type: timestamp_ntz}\n  - {name: c_date, type: date}\n  - {name: a_int, type: 'array<integer>'}\n  \
        - {name: c_point, type: 'struct<x:double,wkb:binary>'}\n  - {name: c_hstore, type: 'map<string,string>'}\n  \
        - {name: c_json, type: string}\n  - {name: a_num, type: string}\n";
    vec![
        resolved(&format!(
            "name: t\nkeys: [id]\n{types}source: {{format: debezium, table: shop.types_all}}\n"
        )),
        resolved(
            "name: t\nkeys: [id]\nschema: [{name: id, type: long}]\nsource: {format: debezium}\n",
        ),
        resolved(&format!(
            "name: t\nkeys: [id]\nsequence_by: id\n{types}absent_fields: keep\n"
        )),
    ]
}

#[test]
fn mutated_captures_do_not_panic() {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    for path in [
        "small-pg/pg_default/events.sch.jsonl.zst",
        "small-pg/pg_string/events.nosch.jsonl.zst",
    ] {
        let bytes = capture(path);
        let lines: Vec<&[u8]> = bytes
            .split(|b| *b == b'\n')
            .filter(|line| !line.is_empty())
            .collect();
        for spec in specs() {
            for _ in 0..60 {
                let mut text = Vec::new();
                for _ in 0..8 {
                    let line = lines[noise.below(lines.len())];
                    text.extend(noise.mutate(line));
                    text.push(b'\n');
                }
                run(&spec, Some(FileFormat::JsonLines), text);
            }
        }
    }
}

#[test]
fn random_bytes_do_not_panic() {
    let mut noise = Noise(7);
    for spec in specs() {
        for round in 0..300 {
            let length = noise.below(300);
            let json: &[u8] = b"{}[]\",:\\ \n0123456789-+.eEnulltruefalseid";
            let csv: &[u8] = b"\"\",,\n\r\n1a";
            let mut bytes: Vec<u8> = (0..length)
                .map(|_| match round % 3 {
                    0 => u8::try_from(noise.below(256)).unwrap(),
                    1 => json[noise.below(json.len())],
                    _ => csv[noise.below(csv.len())],
                })
                .collect();
            if round % 5 == 0 {
                let magic: [&[u8]; 3] = [b"PAR1", &[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd]];
                bytes.splice(0..0, magic[noise.below(3)].iter().copied());
            }
            for format in [None, Some(FileFormat::Csv), Some(FileFormat::JsonLines)] {
                run(&spec, format, bytes.clone());
            }
        }
    }
}
