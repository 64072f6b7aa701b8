//! A table under load, and the model of what it must hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::Result;
use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use futures::TryStreamExt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_client::Client;
use tidegate_client::flight::{ReadTicket, Ticket};

use crate::Arguments;
use crate::model::Model;
use crate::report::{Outcome, Report};

/// A batch that is to be sent.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) id: String,
    /// Its events, a JSON object a line.
    pub(crate) lines: String,
    /// New values by key.
    values: BTreeMap<i64, i64>,
}

/// A table of one client.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    keys: u64,
    random: StdRng,
    batches: u64,
    sequence: i64,
    model: Model,
    /// Version by batch that was acknowledged.
    acknowledged: BTreeMap<String, i64>,
    /// Batches of unknown outcome, with what they would change; the last ones of their table.
    unknown: BTreeSet<String>,
}

impl Table {
    pub(crate) fn new(arguments: &Arguments, number: usize) -> Self {
        Self {
            name: format!("{}_{number}", arguments.prefix),
            keys: arguments.keys,
            random: StdRng::seed_from_u64(number as u64),
            batches: 0,
            sequence: 0,
            model: Model::default(),
            acknowledged: BTreeMap::new(),
            unknown: BTreeSet::new(),
        }
    }

    /// The spec, as JSON.
    pub(crate) fn spec(&self, buckets: Option<u32>) -> String {
        let mut spec = serde_json::json!({
            "name": self.name,
            "schema": [
                {"name": "id", "type": "long"},
                {"name": "seq", "type": "long"},
                {"name": "n", "type": "long"},
                {"name": "note", "type": "string"},
            ],
            "keys": ["id"],
            "sequence_by": "seq",
        });
        if let (Some(buckets), Some(spec)) = (buckets, spec.as_object_mut()) {
            spec.insert("buckets".to_owned(), buckets.into());
        }
        spec.to_string()
    }

    /// The next batch: random keys get random values.
    pub(crate) fn next_batch(&mut self, events: u64) -> Batch {
        self.batches += 1;
        let keys = i64::try_from(self.keys).unwrap_or(i64::MAX);
        let mut values = BTreeMap::new();
        let mut lines = String::new();
        for _ in 0..events {
            self.sequence += 1;
            let id = self.random.random_range(0..keys);
            let n = self.random.random_range(0..1_000_000_i64);
            let seq = self.sequence;
            // Writing to a string does not fail.
            let _ = writeln!(
                lines,
                r#"{{"id": {id}, "seq": {seq}, "n": {n}, "note": "event {seq} of {id}"}}"#
            );
            values.insert(id, n);
        }
        Batch {
            id: format!("{}-{}", self.name, self.batches),
            lines,
            values,
        }
    }

    /// Notes what became of a batch.
    pub(crate) fn note(&mut self, batch: Batch, outcome: Outcome) {
        match outcome {
            Outcome::Acknowledged(version) => {
                self.acknowledged.insert(batch.id, version);
                self.model.apply(batch.values);
            }
            Outcome::Unknown => {
                self.unknown.insert(batch.id);
                self.model.doubt(batch.values);
            }
        }
    }

    /// Compares the table with what was acknowledged: nothing lost, nothing doubled.
    pub(crate) async fn check(&self, client: &Client, report: &mut Report) -> Result<()> {
        let mut versions: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        let mut token = String::new();
        loop {
            let page = client.list_table_history(&self.name, 500, &token).await?;
            for version in page.versions {
                if let Some(batch) = version.batch_id {
                    versions.entry(batch).or_default().push(version.version);
                }
            }
            token = page.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        for (batch, version) in &self.acknowledged {
            match versions.remove(batch).as_deref() {
                Some([found]) if found == version => {}
                found => report.faults.push(format!(
                    "batch {batch} was acknowledged in version {version} and lies in {found:?}"
                )),
            }
        }
        for (batch, found) in versions {
            if found.len() != 1 || !self.unknown.contains(&batch) {
                let fault = format!("batch {batch} lies in {found:?}, and nobody was told");
                report.faults.push(fault);
            }
        }
        let rows = self.rows(client).await?;
        report.rows_checked += rows.len() as u64;
        if let Some(fault) = self.model.fault(&rows) {
            report.faults.push(format!("table {}: {fault}", self.name));
        }
        Ok(())
    }

    async fn rows(&self, client: &Client) -> Result<BTreeMap<i64, i64>> {
        let ticket = Ticket::Read(ReadTicket {
            table: self.name.clone(),
            columns: Some(vec!["id".to_owned(), "n".to_owned()]),
            ..ReadTicket::default()
        });
        let stream = client.rows(&ticket).await?;
        let batches: Vec<_> = stream.batches.try_collect().await?;
        let mut rows = BTreeMap::new();
        for batch in batches {
            let ids = batch.column(0).as_primitive::<Int64Type>();
            let values = batch.column(1).as_primitive::<Int64Type>();
            anyhow::ensure!(ids.null_count() + values.null_count() == 0, "a NULL");
            for (id, n) in ids.values().iter().zip(values.values()) {
                let twice = rows.insert(*id, *n).is_some();
                anyhow::ensure!(!twice, "table {}: key {id} is there twice", self.name);
            }
        }
        Ok(rows)
    }
}
