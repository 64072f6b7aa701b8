//! What is wrong with a record, and setting it apart.

use std::sync::Arc;

use tidegate_change::source::{InvalidEvent, Place};
use tidegate_change::spec::OnInvalid;
use tidegate_change::{Code, types};

use super::needed::needed_type;
use super::{Cell, Rows};
use crate::seen::Seen;

/// The first fault of an event.
pub(super) struct Fault {
    pub(super) field: String,
    pub(super) code: Code,
    pub(super) detail: String,
    pub(super) policy: Option<OnInvalid>,
}

impl Rows<'_> {
    /// Notes a record that is no event, because it cannot be read.
    pub(crate) fn refuse(&mut self, place: Place, detail: &str) {
        self.refuse_field(place, None, detail);
    }

    /// Notes a record that is no event, because one of its fields cannot be read.
    pub(crate) fn refuse_field(&mut self, place: Place, field: Option<&str>, detail: &str) {
        let event = self.invalid_event(place, Code::InvalidRecord, detail.to_owned());
        self.invalid.push(InvalidEvent {
            field: field.map(str::to_owned),
            ..event
        });
    }

    /// Notes an event at fault.
    pub(super) fn set_apart(&mut self, place: Place, fault: Fault) {
        let event = self.invalid_event(place, fault.code, fault.detail);
        self.invalid.push(InvalidEvent {
            field: Some(fault.field),
            policy: fault.policy,
            ..event
        });
    }

    fn invalid_event(&self, place: Place, code: Code, detail: String) -> InvalidEvent {
        InvalidEvent {
            code,
            file: Arc::clone(&self.source.file),
            place,
            field: None,
            detail,
            raw: self.source.records.json(place.row).unwrap_or_default(),
            policy: None,
        }
    }

    pub(super) fn misfit(&mut self, index: usize, cell: Cell<'_>) -> Fault {
        if let (Some(seen), Some(column)) =
            (self.misfits.get_mut(index), self.plan.columns.get(index))
        {
            let needed = match cell {
                Cell::Json(raw) => needed_type(&column.data_type, raw.0.trim_matches('"')),
                Cell::Text(text) => needed_type(&column.data_type, text),
                _ => None,
            };
            if let Some(needed) = needed {
                seen.join(Seen::Typed(needed));
            }
        }
        let (field, type_name) = self.describe(index);
        let detail = format!("the value is no {type_name}");
        Fault {
            field,
            code: Code::InvalidValue,
            detail,
            policy: None,
        }
    }

    pub(super) fn unrepresentable(&mut self, index: usize) -> Option<Fault> {
        let strict = self
            .plan
            .columns
            .get(index)
            .is_some_and(|column| column.strict);
        let policy = self.plan.unrepresentable_policy();
        if policy.is_none() && !strict {
            self.unrepresentable += 1;
            return None;
        }
        let (field, type_name) = self.describe(index);
        let detail = format!("a {type_name} cannot hold the value");
        let policy = if strict { None } else { policy };
        Some(Fault {
            field,
            code: Code::InvalidValue,
            detail,
            policy,
        })
    }

    fn describe(&self, index: usize) -> (String, String) {
        self.plan
            .columns
            .get(index)
            .map_or_else(Default::default, |column| {
                (
                    column.name.clone(),
                    types::type_name(&column.data_type).unwrap_or_default(),
                )
            })
    }
}
