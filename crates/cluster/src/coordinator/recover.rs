//! What coordinators that are gone left behind.

use tidegate_change::Result;
use tidegate_change::mutants::{Mutant, is_on};
use tidegate_delta::names;

use super::Coordinator;
use crate::metadata::{Abort, Entry, Finalize, TableId, TableState, TableStatus};

impl Coordinator {
    /// Ends what dead coordinators began: publishes what they prepared, closes what they had open, finishes
    /// drops, forgets tables that never got a version, and collects files of closed attempts.
    ///
    /// A table that cannot be recovered now does not keep others from it; work on it tries again.
    ///
    /// # Errors
    /// When the log cannot be read or written.
    pub async fn recover(&self) -> Result<()> {
        let state = self.state().await?;
        for (id, table) in &state.tables {
            let recovered = match is_settled(table) {
                true => self.sweep_log(table),
                false => self.recover_table(id, table).await,
            };
            if let Err(error) = recovered {
                tracing::warn!(table = table.name, %error, "a table could not be recovered");
            }
        }
        Ok(())
    }

    /// A checkpoint belongs to no attempt: what one left half written is found only here.
    fn sweep_log(&self, table: &TableState) -> Result<()> {
        let log = format!("{}/{}", table.location, names::LOG_DIRECTORY);
        self.parts.stores.remove_temporaries(&log)?;
        Ok(())
    }

    /// Ends what dead coordinators began on a table; what a live one works on stays.
    pub(super) async fn recover_table(&self, id: &TableId, table: &TableState) -> Result<()> {
        let state = self.state().await?;
        for (attempt, open) in &table.attempts {
            if !state.is_current(&open.epoch) {
                let entry = Abort {
                    table: id.clone(),
                    attempt: *attempt,
                    evidence: None,
                };
                self.propose(Entry::Abort(entry)).await?;
            }
        }
        if let Some(pending) = table
            .pending
            .as_ref()
            .filter(|_| is_on(Mutant::RecoveryFinalizes))
        {
            let entry = Finalize {
                table: id.clone(),
                version: pending.version,
                attempt: pending.opened.index,
            };
            self.propose(Entry::Finalize(entry)).await?;
        }
        self.resolve(id).await?;
        self.parts.stores.remove_temporaries(&table.location)?;
        let now = self.table(id).await?;
        let is_owned = now.owner.is_some_and(|owner| state.is_current(&owner));
        if let TableStatus::Dropping { keep_files } = now.status {
            if is_owned {
                return Ok(());
            }
            self.begin_drop(id, &now.name, keep_files).await?;
            return self.finish_drop(id, &now, keep_files).await;
        }
        if now.head.is_none() && now.attempts.is_empty() {
            return match is_owned {
                true => Ok(()),
                false => self.forget_unborn(id, &now).await,
            };
        }
        self.clean_up(id).await?;
        Ok(())
    }

    /// Takes back a table whose version 0 was never decided: to everybody it never existed.
    pub(super) async fn forget_unborn(&self, id: &TableId, table: &TableState) -> Result<()> {
        self.clean_up(id).await?;
        self.begin_drop(id, &table.name, true).await?;
        self.end_drop(id, &table.name).await
    }
}

/// Whether nobody works on a table, and nothing is left of work that ended.
pub(super) fn is_settled(table: &TableState) -> bool {
    table.pending.is_none()
        && table.attempts.is_empty()
        && table.uncollected.is_empty()
        && table.head.is_some()
        && !matches!(table.status, TableStatus::Dropping { .. })
}
