//! Whose commit a commit is, and what a stranger's did.

use super::TableCommit;
use crate::actions::{Action, ENGINE};

/// Whose commit it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitOrigin {
    /// Tidegate's, of the attempt that it names.
    Own {
        /// The attempt.
        attempt: String,
    },
    /// A stranger's that changes nothing, such as the start and end that Spark's VACUUM notes down.
    Harmless,
    /// A stranger's that changes the table.
    Foreign {
        /// What it holds: `add`, `remove`, `metaData`, `protocol`, …
        what: &'static str,
        /// Who wrote it, if it says so.
        engine: Option<String>,
    },
}

/// Tells whose commit it is by `engineInfo` and `txnId`, and what a stranger's did.
#[must_use]
pub fn classify(commit: &TableCommit) -> CommitOrigin {
    let info = commit.info();
    let engine = info.and_then(|info| info.engine_info.clone());
    let attempt = info.and_then(|info| info.txn_id.clone());
    if let (Some(engine), Some(attempt)) = (&engine, attempt)
        && engine.starts_with(ENGINE)
    {
        return CommitOrigin::Own { attempt };
    }
    let what = commit.actions.iter().find_map(|action| match action {
        Action::CommitInfo(_) => None,
        Action::Protocol(_) => Some("protocol"),
        Action::Metadata(_) => Some("metaData"),
        Action::Remove(_) => Some("remove"),
        Action::Add(_) => Some("add"),
        Action::Cdc(_) => Some("cdc"),
        Action::Txn(_) => Some("txn"),
        Action::Domain(_) => Some("domainMetadata"),
        Action::Unknown(_) => Some("an unknown action"),
    });
    match what {
        None => CommitOrigin::Harmless,
        Some(what) => CommitOrigin::Foreign { what, engine },
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_change::TableVersion;

    use super::*;
    use crate::actions::parse_commit;

    fn commit(text: &'static str) -> TableCommit {
        let actions = parse_commit("1.json", text.as_bytes()).unwrap();
        TableCommit {
            version: TableVersion(1),
            bytes: Bytes::from_static(text.as_bytes()),
            actions,
        }
    }

    #[test]
    fn a_vacuum_of_spark_is_harmless() {
        let vacuum = r#"{"commitInfo":{"operation":"VACUUM START","engineInfo":"Apache-Spark/4.2.0 Delta-Lake/4.4.0","txnId":"x"}}"#;
        assert_eq!(classify(&commit(vacuum)), CommitOrigin::Harmless);
    }

    #[test]
    fn changes_of_strangers_are_named() {
        let optimize = "{\"commitInfo\":{\"operation\":\"OPTIMIZE\"}}\n{\"remove\":{\"path\":\"p\",\"dataChange\":false}}";
        let expected = CommitOrigin::Foreign {
            what: "remove",
            engine: None,
        };
        assert_eq!(classify(&commit(optimize)), expected);
        let own = r#"{"commitInfo":{"engineInfo":"Tidegate/0.1.0","txnId":"00000001-5"}}"#;
        assert_eq!(
            classify(&commit(own)),
            CommitOrigin::Own {
                attempt: "00000001-5".into()
            }
        );
    }
}
