//! What decoding needs of a spec, resolved once: columns, types, policies, the source's filter.

use std::collections::{BTreeMap, HashMap};

use arrow::datatypes::DataType;
use tidegate_change::spec::{AbsentFields, OnInvalid, OnUnrepresentable, ResolvedSpec};
use tidegate_change::{Code, Error, Result, SourceBatch};

use crate::chunk::{Chunk, Content};
use crate::column::{Column, TextRules};
use crate::debezium::Placeholder;
use crate::flat::Needs;
use crate::input::FileFormat;
use crate::metadata::MetadataField;
use crate::{Findings, debezium, flat, parquet_file};

/// How the events of a table are decoded.
#[derive(Debug)]
pub struct DecodePlan {
    pub(crate) columns: Vec<PlanColumn>,
    /// Source name to position in `columns`; metadata columns are not in it.
    pub(crate) names: HashMap<Box<str>, usize>,
    /// Renames of the source, for fields that have no column yet.
    pub(crate) renames: BTreeMap<String, String>,
    /// Positions in `columns` of the key columns, in key order.
    pub(crate) keys: Vec<usize>,
    pub(crate) envelope: Envelope,
    pub(crate) absent: AbsentFields,
    pub(crate) unrepresentable: OnUnrepresentable,
    pub(crate) source_table: Option<String>,
    pub(crate) placeholder: Placeholder,
    pub(crate) null_value: Option<String>,
    /// Columns that a header must name.
    pub(crate) needs: Needs,
}

/// How the format wraps rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Envelope {
    Flat,
    Debezium,
}

/// A source column of the table.
#[derive(Debug)]
pub(crate) struct PlanColumn {
    pub(crate) name: String,
    pub(crate) data_type: DataType,
    pub(crate) rules: TextRules,
    /// JSON text of the value of rows that lack the column.
    pub(crate) default: Option<String>,
    /// A key or part of the sequence, where NULL cannot stand for a lost value (R-K9).
    pub(crate) strict: bool,
    /// The envelope field that fills it.
    pub(crate) metadata: Option<MetadataField>,
}

/// What a chunk holds.
#[derive(Debug)]
pub struct Decoded {
    /// The events, in the order of the source.
    pub batches: Vec<SourceBatch>,
    /// What the plan did not know.
    pub findings: Findings,
}

impl DecodePlan {
    /// The plan for a spec.
    ///
    /// # Errors
    /// `UNSUPPORTED` for a source format that this build does not read; `INVALID_SPEC` for columns
    /// that contradict themselves.
    pub fn new(spec: &ResolvedSpec) -> Result<Self> {
        let table = &spec.spec;
        let source = &table.source;
        let envelope = envelope_of(&source.format)?;
        let source_names: HashMap<&str, &str> = source
            .columns
            .iter()
            .map(|(from, to)| (to.as_str(), from.as_str()))
            .collect();
        let sequence = table.sequence_by.iter().flat_map(|by| by.names());
        let strict: Vec<&String> = table.keys.iter().chain(sequence).collect();
        let mut columns = Vec::with_capacity(spec.columns.len());
        let mut names = HashMap::new();
        for (position, resolved) in spec.columns.iter().enumerate() {
            let column = &resolved.column;
            let metadata = source
                .metadata_columns
                .iter()
                .find(|(_, name)| **name == column.name);
            let metadata = metadata
                .map(|(field, _)| MetadataField::from_name(field))
                .transpose()?;
            if metadata.is_none() {
                let name = source_names.get(column.name.as_str()).copied();
                names.insert(name.unwrap_or(&column.name).into(), position);
            }
            let rules = TextRules {
                encoding: column.encoding,
                scale: column.scale,
                stray_z: envelope == Envelope::Debezium,
            };
            let planned = PlanColumn {
                name: column.name.clone(),
                data_type: column.data_type()?,
                rules,
                default: column.default.as_ref().map(ToString::to_string),
                strict: strict.contains(&&column.name),
                metadata,
            };
            planned.check_default()?;
            columns.push(planned);
        }
        let keys = table
            .keys
            .iter()
            .filter_map(|key| columns.iter().position(|c| c.name == *key));
        Ok(Self {
            keys: keys.collect(),
            columns,
            names,
            renames: source.columns.clone(),
            envelope,
            absent: table.absent_fields,
            unrepresentable: table.on_unrepresentable,
            source_table: source.table.clone(),
            placeholder: Placeholder::new(source.unavailable_value.as_deref()),
            null_value: source.null_value.clone(),
            needs: Needs::of(spec, |name| {
                source_names.get(name).copied().unwrap_or(name).to_owned()
            }),
        })
    }

    /// Decodes a chunk.
    ///
    /// # Errors
    /// What stops the whole source: a file that contradicts its format, mixed tables without
    /// `source.table`. Records that are at fault alone are in [`SourceBatch::invalid`].
    pub fn decode(&self, chunk: &Chunk) -> Result<Decoded> {
        let named = |e: Error| e.context(&chunk.name);
        match (&chunk.content, self.envelope) {
            (Content::Lines(bytes), Envelope::Flat) => {
                flat::decode_lines(self, chunk, bytes).map_err(named)
            }
            (Content::Records(bytes), _) => flat::decode_records(self, chunk, bytes).map_err(named),
            // Names file and line itself.
            (Content::Lines(bytes), Envelope::Debezium) => {
                debezium::decode_lines(self, chunk, bytes)
            }
            (Content::Csv { header, bytes }, Envelope::Flat) => {
                flat::decode_csv(self, chunk, header, bytes).map_err(named)
            }
            (Content::Parquet { file, rows }, Envelope::Flat) => {
                parquet_file::decode(self, chunk, file, *rows).map_err(named)
            }
            (Content::Csv { .. } | Content::Parquet { .. }, Envelope::Debezium) => {
                Err(Error::internal("a chunk of another format than its plan's")
                    .context(&chunk.name))
            }
        }
    }

    /// Whether the source's format is read from such files.
    ///
    /// # Errors
    /// `UNSUPPORTED` where it is not.
    pub(crate) fn check_kind(&self, kind: FileFormat) -> Result<()> {
        match (self.envelope, kind) {
            (Envelope::Flat, _)
            | (Envelope::Debezium, FileFormat::JsonLines | FileFormat::Records) => Ok(()),
            (Envelope::Debezium, FileFormat::Csv | FileFormat::Parquet) => {
                let message = "source format debezium is read from JSON lines";
                Err(Error::new(Code::Unsupported, message))
            }
        }
    }

    /// The table's name of a source field.
    pub(crate) fn renamed<'a>(&'a self, field: &'a str) -> &'a str {
        self.renames.get(field).map_or(field, String::as_str)
    }

    /// The policy for a value that Delta cannot hold: None = it reads NULL.
    pub(crate) fn unrepresentable_policy(&self) -> Option<OnInvalid> {
        match self.unrepresentable {
            OnUnrepresentable::Null => None,
            OnUnrepresentable::Fail => Some(OnInvalid::Fail),
            OnUnrepresentable::Quarantine => Some(OnInvalid::Quarantine),
        }
    }
}

impl PlanColumn {
    /// An empty builder for the column.
    pub(crate) fn builder(&self) -> Result<Column> {
        Column::new(&self.data_type, self.rules)
    }

    fn check_default(&self) -> Result<()> {
        let Some(default) = &self.default else {
            return Ok(());
        };
        self.builder()?
            .append_json(crate::scan::Raw(default))
            .map_err(|_| {
                let message = format!("column {}: default is no value of its type", self.name);
                Error::new(Code::InvalidSpec, message)
            })
    }
}

fn envelope_of(format: &str) -> Result<Envelope> {
    match format {
        "flat" => Ok(Envelope::Flat),
        "debezium" => Ok(Envelope::Debezium),
        "debezium-flat" | "dms" | "maxwell" | "canal" | "goldengate" | "delta"
        | "sqlserver-cdc" => {
            let message = format!("source format {format} is not read by this build");
            Err(Error::new(Code::Unsupported, message).with_hint("use flat or debezium"))
        }
        _ => {
            let message = format!("source format {format:?} is unknown");
            Err(Error::new(Code::InvalidSpec, message).with_hint("use flat or debezium"))
        }
    }
}
