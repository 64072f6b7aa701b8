//! The right to coordinate, and what to do when the answer to a proposal is lost.

use tidegate_change::{Code, Error, Result};

use super::Coordinator;
use crate::metadata::{Abort, Entry, Epoch, Grant, Outcome, Role, State, TableId, TableState};

/// Times that a proposal or a batch goes on after an answer was lost, or its epoch.
pub(super) const LOSSES_MAX: u32 = 8;

/// The epoch of a coordinator, once it has one.
#[derive(Debug, Default)]
pub(super) struct Right(tokio::sync::Mutex<Option<Epoch>>);

impl Coordinator {
    /// The epoch, which is asked for when it is first needed, and again when it was lost.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub(super) async fn epoch(&self) -> Result<Epoch> {
        let mut held = self.right.0.lock().await;
        if let Some(epoch) = *held {
            return Ok(epoch);
        }
        let grant = Grant {
            node: self.parts.node,
            role: Role::Coordinator,
        };
        // A grant whose answer was lost is killed by the next one.
        let applied = self.propose(Entry::Grant(grant)).await?;
        let Outcome::Granted(epoch) = applied.outcome else {
            return Err(Error::new(
                Code::ResourceExhausted,
                "the log grants no more nodes",
            ));
        };
        *held = Some(epoch);
        Ok(epoch)
    }

    /// Readies a table for another try of the same work, where the error says no more than that an answer
    /// was lost, or the epoch; false for any other error. The caller holds the table's lock, so that no
    /// open attempt of this coordinator is anybody's work.
    pub(super) async fn may_go_on(&self, id: &TableId, error: &Error) -> Result<bool> {
        if !matches!(error.code(), Code::OutcomeUnknown | Code::Fenced) {
            return Ok(false);
        }
        let epoch = self.epoch().await?;
        let state = self.state().await?;
        if !state.is_current(&epoch) {
            // Whoever took it for dead closes what it had open.
            *self.right.0.lock().await = None;
            return Ok(true);
        }
        if let Some(table) = state.tables.get(id) {
            self.close_leftovers(id, table).await?;
        }
        Ok(true)
    }

    /// Closes what this coordinator has open on a table whose lock it holds: tries that could not be closed
    /// when they ended.
    pub(super) async fn close_leftovers(&self, id: &TableId, table: &TableState) -> Result<()> {
        let epoch = self.epoch().await?;
        for (attempt, open) in &table.attempts {
            if open.epoch == epoch {
                let entry = Abort {
                    table: id.clone(),
                    attempt: *attempt,
                    evidence: None,
                };
                self.propose(Entry::Abort(entry)).await?;
            }
        }
        Ok(())
    }

    /// Proposes an entry until it is known to have taken effect; its refusal is an error.
    pub(super) async fn insist(
        &self,
        name: &str,
        entry: Entry,
        took_effect: impl Fn(&State) -> bool,
    ) -> Result<()> {
        let mut losses_count = 0;
        loop {
            let error = match self.propose(entry.clone()).await {
                Ok(applied) => match applied.outcome {
                    Outcome::Refused(refusal) if losses_count == 0 => {
                        return Err(refusal.into_error(name));
                    }
                    // It may be refused because the lost one took effect.
                    Outcome::Refused(refusal) => refusal.into_error(name),
                    _ => return Ok(()),
                },
                Err(error) if error.code() == Code::OutcomeUnknown => error,
                Err(error) => return Err(error),
            };
            if took_effect(&*self.state().await?) {
                return Ok(());
            }
            losses_count += 1;
            if error.code() != Code::OutcomeUnknown || losses_count > LOSSES_MAX {
                return Err(error);
            }
        }
    }
}
