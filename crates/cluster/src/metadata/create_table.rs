//! `CreateTable`: a table gets a name and a place.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::limits::{LOCATION_BYTES_MAX, NAME_BYTES_MAX};
use super::{Epoch, Outcome, Refusal, State, TableId, TableState};

/// Reserves a name and a place; version 0 is a commit of kind `Schema` on no head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTable {
    /// The new table's id.
    pub table: TableId,
    /// Its name.
    pub name: String,
    /// Its root.
    pub location: String,
    /// The coordinator that creates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
}

impl CreateTable {
    pub(super) fn apply(&self, state: &mut State, index: u64) -> Result<Outcome, Refusal> {
        let unborn = TableState::unborn(self.name.clone(), self.location.clone(), index);
        let table = TableState {
            owner: self.epoch,
            ..unborn
        };
        register(state, &self.table, table)
    }
}

/// Takes a table into the catalog.
pub(super) fn register(
    state: &mut State,
    id: &TableId,
    table: TableState,
) -> Result<Outcome, Refusal> {
    if table.name.len() > NAME_BYTES_MAX || table.location.len() > LOCATION_BYTES_MAX {
        return Err(Refusal::Limit {
            what: "bytes in a name or location".into(),
        });
    }
    state.require_free(id, &table.name, &table.location)?;
    state.names.insert(table.name.clone(), id.clone());
    state.tables.insert(id.clone(), Arc::new(table));
    Ok(Outcome::Done)
}
