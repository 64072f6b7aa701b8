//! Named positions of stream readers: how far each has come, beside the lake.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidegate_change::{Code, Error, Result, TableVersion};

/// A stream reader's place in a table's feed.
#[derive(Debug)]
pub(crate) struct Position {
    path: PathBuf,
    table_id: String,
}

/// What is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    /// Id of the table; a table that was dropped and made again has another.
    table_id: String,
    /// Last version that was delivered.
    version: TableVersion,
}

impl Position {
    /// The position with a name.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a name that is no file name.
    pub(crate) fn named(local: &Path, table: &str, table_id: &str, name: &str) -> Result<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
            let message = format!("position {name:?}: letters, digits, _, - and . make a name");
            return Err(Error::new(Code::InvalidArgument, message));
        }
        let path = local
            .join("positions")
            .join(table)
            .join(format!("{name}.json"));
        Ok(Self {
            path,
            table_id: table_id.to_owned(),
        })
    }

    /// The last version that was delivered; None before the first, or if the table is another now.
    ///
    /// # Errors
    /// `CORRUPT` when the file is damaged, `IO` when it cannot be read.
    pub(crate) fn load(&self) -> Result<Option<TableVersion>> {
        let text = match std::fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(self.path.display(), error)),
        };
        let stored: Stored = serde_json::from_slice(&text).map_err(|e| {
            Error::corrupt(format!("{}: no position", self.path.display())).with_source(e)
        })?;
        Ok((stored.table_id == self.table_id).then_some(stored.version))
    }

    /// Remembers that everything up to a version was delivered.
    ///
    /// # Errors
    /// `IO` when it cannot be written.
    pub(crate) fn save(&self, version: TableVersion) -> Result<()> {
        let failed = |e| Error::io(self.path.display(), e);
        let stored = Stored {
            table_id: self.table_id.clone(),
            version,
        };
        let text = serde_json::to_vec(&stored)
            .map_err(|e| Error::internal("a position cannot be written").with_source(e))?;
        if let Some(directory) = self.path.parent() {
            std::fs::create_dir_all(directory).map_err(failed)?;
        }
        // ORDER: the new file is durable before it takes the name, so that a crash leaves one of the two.
        let temporary = self
            .path
            .with_extension(format!("{}.tmp", std::process::id()));
        let mut file = std::fs::File::create(&temporary).map_err(failed)?;
        file.write_all(&text)
            .and_then(|()| file.sync_all())
            .map_err(failed)?;
        std::fs::rename(&temporary, &self.path).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_kept_for_its_table_only() {
        let directory = tempfile::tempdir().unwrap();
        let position = Position::named(directory.path(), "t", "id-1", "reader").unwrap();
        assert_eq!(position.load().unwrap(), None);
        position.save(TableVersion(3)).unwrap();
        position.save(TableVersion(4)).unwrap();
        assert_eq!(position.load().unwrap(), Some(TableVersion(4)));
        let other = Position::named(directory.path(), "t", "id-2", "reader").unwrap();
        assert_eq!(other.load().unwrap(), None);
        assert!(Position::named(directory.path(), "t", "id-1", "../x").is_err());
    }
}
