//! Images of rows and keys: their values by column, with the types that a schema gives them.

use std::borrow::Cow;
use std::sync::Arc;

use tidegate_change::text::Parsed;

use super::append_typed;
use super::decoder::Decoder;
use super::schema::{Binding, RowSchema};
use crate::column::Column;
use crate::findings::Infer;
use crate::rows::Cell;
use crate::scan::{Kind, Raw, Scanned, Scanner};

/// One image of a row: its values by column, with the types that a schema gives them.
pub(super) struct Image<'a> {
    pub(super) slots: Vec<Option<Raw<'a>>>,
    pub(super) binding: Option<Arc<Binding>>,
}

impl<'a> Image<'a> {
    pub(super) fn cell(&self, column: usize) -> Cell<'_> {
        let source = self
            .binding
            .as_ref()
            .map(|binding| binding.types.get(column));
        match (self.slots.get(column).copied().flatten(), source) {
            (Some(raw), Some(Some(Some(source)))) => Cell::Typed(raw, source),
            (Some(raw), _) => Cell::Json(raw),
            (None, Some(_)) => Cell::NotAuthored,
            (None, None) => Cell::Absent,
        }
    }

    pub(super) fn raw(&self, column: usize) -> Option<Raw<'a>> {
        self.slots
            .get(column)
            .copied()
            .flatten()
            .filter(|raw| !raw.is_null())
    }
}

impl Decoder<'_> {
    pub(super) fn image<'a>(
        &mut self,
        row: Raw<'a>,
        binding: Option<Arc<Binding>>,
    ) -> Scanned<Image<'a>> {
        let mut slots = vec![None; self.plan.columns.len()];
        // What a schema names has its type from there, and values alone would tell another.
        let infer = match &binding {
            None => Infer::All,
            Some(binding) => Infer::Beyond(&binding.unknown_names),
        };
        self.fields
            .object(&mut Scanner::new(row.0), &mut slots, infer)?;
        Ok(Image { slots, binding })
    }

    /// The key columns that a key object has, with the types of its own schema or of the row's.
    pub(super) fn key_image<'a>(
        &mut self,
        key: Raw<'a>,
        row_binding: Option<Arc<Binding>>,
    ) -> Scanned<Image<'a>> {
        let mut payload = None;
        let mut has_schema = false;
        if key.kind() == Kind::Object {
            Scanner::new(key.0).object_with(|name, scanner| {
                match name.plain() {
                    Some("schema") if scanner.peek() == Some(b'{') => {
                        has_schema = true;
                        return self.keys.scan(self.plan, scanner);
                    }
                    Some("payload") => payload = Some(scanner.value()?),
                    _ => {
                        scanner.value()?;
                    }
                }
                Ok(())
            })?;
        }
        let binding = if has_schema {
            match self.keys.current().map(|schema| &schema.row) {
                Some(RowSchema::Typed(binding)) => Some(Arc::clone(binding)),
                _ => None,
            }
        } else {
            row_binding
        };
        let row = payload.filter(|_| has_schema).unwrap_or(key);
        let mut slots = vec![None; self.plan.columns.len()];
        if row.kind() == Kind::Object {
            self.key_fields
                .object(&mut Scanner::new(row.0), &mut slots, Infer::Nothing)?;
        }
        Ok(Image { slots, binding })
    }

    /// Whether two images have different keys; an image without its key says nothing.
    pub(super) fn is_other_key(&self, old: &Image<'_>, new: &Image<'_>) -> bool {
        let mut differs = false;
        for key in &self.plan.keys {
            match (old.raw(*key), new.raw(*key)) {
                (Some(a), Some(b)) if a == b => {}
                (Some(_), Some(_)) => {
                    let value = |image: &Image<'_>| {
                        let mut column = self.plan.columns.get(*key)?.builder().ok()?;
                        append_cell(&mut column, image.cell(*key)).ok()?;
                        column.finish().ok()
                    };
                    differs |= value(old) != value(new);
                }
                // A key column that came later: where an image lacks it, its default stands.
                (None, _) if old.slots.get(*key).copied().flatten().is_none() => {}
                _ => return false,
            }
        }
        differs
    }
}

fn append_cell(column: &mut Column, cell: Cell<'_>) -> Parsed<()> {
    match cell {
        Cell::Typed(raw, source) => append_typed(column, raw, source),
        Cell::Json(raw) => column.append_json(raw),
        _ => {
            column.append_null();
            Ok(())
        }
    }
}

/// The JSON of a key, which some dumps hold as text.
pub(super) fn unwrapped(raw: Raw<'_>) -> Cow<'_, str> {
    match raw.string() {
        Some(text) if text.starts_with('{') && is_document(&text) => text,
        _ => Cow::Borrowed(raw.0),
    }
}

pub(super) fn is_document(text: &str) -> bool {
    text.trim().is_empty() || Scanner::document(text).is_ok()
}
