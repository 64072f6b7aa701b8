//! Record batches that are kept until the attempt ends: in memory, and beyond a share of it in a file.

use std::sync::Arc;

use arrow::array::RecordBatch;
use tidegate_change::Result;

use crate::spill::{self, SpillDirectory, SpilledBatch};

/// Record batches of one schema, in order.
#[derive(Debug)]
pub(crate) struct KeptBatches {
    directory: Arc<SpillDirectory>,
    bytes_max: usize,
    held: Vec<RecordBatch>,
    bytes: usize,
    spilled: Vec<SpilledBatch>,
    rows: u64,
}

impl KeptBatches {
    /// None yet; memory holds about these bytes.
    pub(crate) fn new(directory: &Arc<SpillDirectory>, bytes_max: usize) -> Self {
        Self {
            directory: Arc::clone(directory),
            bytes_max,
            held: Vec::new(),
            bytes: 0,
            spilled: Vec::new(),
            rows: 0,
        }
    }

    /// Rows of all batches.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds a batch.
    ///
    /// # Errors
    /// `STORAGE_FULL` or what else the disk says; `RESOURCE_EXHAUSTED` when memory is exceeded and the
    /// attempt may not spill.
    pub(crate) fn push(&mut self, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.rows += batch.num_rows() as u64;
        self.bytes += batch.get_array_memory_size();
        self.held.push(batch);
        if self.bytes <= self.bytes_max {
            return Ok(());
        }
        self.bytes = 0;
        let mut file = self.directory.file()?;
        let mut written = Vec::with_capacity(self.held.len());
        for batch in std::mem::take(&mut self.held) {
            let extent = file.append(&spill::encode(&batch)?)?;
            written.push((extent, (batch.num_rows(), batch.get_array_memory_size())));
        }
        let file = Arc::new(file);
        let written = written.into_iter();
        self.spilled
            .extend(written.map(|(extent, batch)| SpilledBatch::new(&file, extent, batch)));
        Ok(())
    }

    /// Takes one of the batches.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn pop(&mut self) -> Result<Option<RecordBatch>> {
        let next = match (self.held.pop(), self.spilled.is_empty()) {
            (Some(batch), _) => Some(batch),
            (None, false) => self.spilled.pop().map(|batch| batch.load()).transpose()?,
            (None, true) => None,
        };
        if let Some(batch) = &next {
            self.rows = self.rows.saturating_sub(batch.num_rows() as u64);
        }
        Ok(next)
    }

    /// All batches, one by one, in order.
    pub(crate) fn each(&self) -> impl Iterator<Item = Result<RecordBatch>> + '_ {
        let held = self.held.iter().map(|batch| Ok(batch.clone()));
        self.spilled.iter().map(SpilledBatch::load).chain(held)
    }

    /// One of the batches by its number; None behind the last.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn get(&self, number: usize) -> Result<Option<RecordBatch>> {
        match self.spilled.get(number) {
            Some(batch) => batch.load().map(Some),
            None => Ok(self.held.get(number - self.spilled.len()).cloned()),
        }
    }

    /// Takes all batches, one by one, in order.
    pub(crate) fn take_each(&mut self) -> impl Iterator<Item = Result<RecordBatch>> + use<> {
        self.rows = 0;
        self.bytes = 0;
        let spilled = std::mem::take(&mut self.spilled).into_iter();
        let held = std::mem::take(&mut self.held).into_iter();
        spilled.map(|batch| batch.load()).chain(held.map(Ok))
    }

    /// Takes all batches, in groups that fit into memory, in order.
    pub(crate) fn take_groups(&mut self) -> Vec<KeptGroup> {
        self.rows = 0;
        self.bytes = 0;
        let mut groups: Vec<Vec<SpilledBatch>> = Vec::new();
        let mut bytes = usize::MAX;
        for batch in std::mem::take(&mut self.spilled) {
            bytes = bytes.saturating_add(batch.bytes);
            match groups.last_mut() {
                Some(group) if bytes <= self.bytes_max => group.push(batch),
                Some(_) | None => {
                    bytes = batch.bytes;
                    groups.push(vec![batch]);
                }
            }
        }
        let held = std::mem::take(&mut self.held);
        let mut groups: Vec<KeptGroup> = groups.into_iter().map(KeptGroup::Spilled).collect();
        if !held.is_empty() {
            groups.push(KeptGroup::Held(held));
        }
        groups
    }
}

/// Batches that fit into memory together.
#[derive(Debug)]
pub(crate) enum KeptGroup {
    /// In memory.
    Held(Vec<RecordBatch>),
    /// In a file.
    Spilled(Vec<SpilledBatch>),
}

impl KeptGroup {
    /// The batches.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn load(self) -> Result<Vec<RecordBatch>> {
        match self {
            Self::Held(batches) => Ok(batches),
            Self::Spilled(batches) => batches.iter().map(SpilledBatch::load).collect(),
        }
    }
}
