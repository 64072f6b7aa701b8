//! Reading and writing specs.

use super::TableSpec;
use crate::{Code, Error, Result, yaml};

/// Largest spec text, bytes.
const SPEC_BYTES_MAX: usize = 1 << 20;

impl TableSpec {
    /// Reads a spec from YAML or JSON and validates it.
    ///
    /// # Errors
    /// `INVALID_SPEC` with line and field, or the code of the rule that the spec breaks.
    pub fn from_yaml(text: &str) -> Result<Self> {
        if text.len() > SPEC_BYTES_MAX {
            return Err(Error::new(
                Code::InvalidSpec,
                "the spec is larger than 1 MiB",
            ));
        }
        let spec: Self = yaml::read("the spec", Code::InvalidSpec, text)?;
        spec.validate()?;
        Ok(spec)
    }

    /// The spec as JSON, as it is stored in the table.
    ///
    /// # Errors
    /// `INTERNAL` when it cannot be written.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|e| Error::internal("the spec cannot be written as JSON").with_source(e))
    }

    /// Reads the stored form; it was validated when it was stored.
    ///
    /// # Errors
    /// `CORRUPT` when it is no spec.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text)
            .map_err(|e| Error::corrupt("the stored spec cannot be read").with_source(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "name: t\nkeys: [id]\nsequence_by: seq\nschema:\n  - {name: id, type: long}\n  - {name: seq, type: long}\n";

    #[test]
    fn a_misspelt_field_is_refused_with_the_nearest_name() {
        let error = TableSpec::from_yaml(&format!("{MINIMAL}delete_mod: soft\n")).unwrap_err();
        assert_eq!(error.code(), Code::InvalidSpec);
        assert_eq!(error.hint(), Some("did you mean \"delete_mode\"?"));
    }

    #[test]
    fn policies_named_null_are_read() {
        let text = format!(
            "{MINIMAL}absent_fields: null\non_unrepresentable: null\nchange_data_feed: true\n"
        );
        let spec = TableSpec::from_yaml(&text).unwrap();
        assert!(spec.is_row_mode());
        let again = TableSpec::from_json(&spec.to_json().unwrap()).unwrap();
        assert_eq!(spec, again);
    }
}
