//! Rows that others deleted: each leaves a tombstone at its own sequence.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema, SchemaRef};
use tidegate_change::{Error, Result, hidden};
use tidegate_delta::data::ReadOptions;
use tidegate_merge::foreign::bury;

use super::arrivals::{positions, read_old};
use super::{Pass, rewritten};
use crate::output::{Output, Placed};

/// Rows that are read of a file at once, and tombstones that are written as one file.
const ROWS_AT_ONCE: usize = 64 << 10;

impl Pass<'_> {
    /// Leaves tombstones for the rows that died and that no row of their key took the place of.
    pub(super) async fn bury(&mut self) -> Result<()> {
        let columns = self.buried_columns();
        let mut dead = Vec::new();
        for (path, death) in self.deaths.iter() {
            let rest = match self.matched.get(path) {
                Some(matched) => death.dead.difference(matched),
                None => death.dead.clone(),
            };
            if !rest.is_empty() {
                dead.push((Arc::clone(&death.file), rest));
            }
        }
        if !dead.is_empty() && !self.takes_deletes() {
            return Err(rewritten(
                "rows were deleted, which a table without deletes cannot remember",
            ));
        }
        let mut held: Vec<RecordBatch> = Vec::new();
        for (file, rest) in dead {
            self.counts.deleted += rest.len();
            for rows in positions(&rest).chunks(ROWS_AT_ONCE) {
                let options = ReadOptions::at(Arc::clone(&columns), rows.to_vec());
                held.push(read_old(self.table, &file, &options).await?);
                let waiting: usize = held.iter().map(RecordBatch::num_rows).sum();
                if waiting >= ROWS_AT_ONCE {
                    self.write_tombstones(&columns, std::mem::take(&mut held))
                        .await?;
                }
            }
        }
        self.write_tombstones(&columns, held).await
    }

    /// Key columns and hidden ones.
    fn buried_columns(&self) -> SchemaRef {
        let layout = &self.table.layout;
        let hidden = [
            hidden::SEQUENCE,
            hidden::FLOOR,
            hidden::LEAVES,
            hidden::SCHEMA,
            hidden::DELETES,
        ];
        let is_wanted =
            |name: &str| hidden.contains(&name) || layout.key_columns().any(|key| key.name == name);
        let fields = self.table.file_schema.fields().iter();
        let fields: Vec<Arc<Field>> = fields.filter(|f| is_wanted(f.name())).cloned().collect();
        Arc::new(Schema::new(fields))
    }

    async fn write_tombstones(
        &mut self,
        columns: &SchemaRef,
        held: Vec<RecordBatch>,
    ) -> Result<()> {
        if held.is_empty() {
            return Ok(());
        }
        let table = self.table;
        let rows = concat_batches(columns, &held)
            .map_err(|e| Error::internal("dead rows cannot be joined").with_source(e))?;
        let buried = bury(&table.layout, &rows, table.now_ms)?;
        let (mut remembered, mut output) = (Vec::new(), Output::default());
        for (hash, stays) in self
            .hashes(&rows)?
            .into_iter()
            .zip(buried.is_remembered.values())
        {
            match stays {
                true => remembered.push(hash),
                false => output.placed.push((hash, Placed::Gone)),
            }
        }
        output
            .write_tombstones(table, &buried.tombstones, &remembered)
            .await?;
        self.keep(output).await
    }
}
