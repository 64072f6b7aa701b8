//! Addresses of buckets and of what lies in them.

use std::fmt;

use object_store::path::Path as StorePath;
use tidegate_change::{Code, Error, Result};

/// Who keeps the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Provider {
    S3,
    Gcs,
    Azure,
}

/// A bucket and a path in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub(super) provider: Provider,
    scheme: &'static str,
    /// Bucket or container; for `abfss` with the account behind an `@`.
    pub(super) bucket: String,
    path: StorePath,
    /// Whether the address ended with a slash: what lies below it is meant.
    is_prefix: bool,
}

/// Schemes that are taken.
const SCHEMES: [(&str, Provider); 6] = [
    ("s3", Provider::S3),
    ("s3a", Provider::S3),
    ("gs", Provider::Gcs),
    ("az", Provider::Azure),
    ("abfs", Provider::Azure),
    ("abfss", Provider::Azure),
];

impl Address {
    /// Whether a text is an address of an object store, right or wrong.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        SCHEMES.iter().any(|(known, _)| Some(*known) == scheme)
    }

    /// Reads an address.
    ///
    /// # Errors
    /// `UNSUPPORTED` for another scheme; `INVALID_LOCATION` without a bucket, and for escapes, queries and
    /// `..`, which mean something else to other readers.
    pub fn parse(text: &str) -> Result<Self> {
        let refused = |why: &str| {
            // A query may hold a token, and a name before the host a password: neither is repeated.
            let shown = match text.split_once("://") {
                Some((scheme, rest)) if rest.contains(['?', '#', ':']) => format!("{scheme}://…"),
                _ => text.to_owned(),
            };
            Error::new(Code::InvalidLocation, format!("address {shown}: {why}"))
        };
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| refused("is no address"))?;
        let (scheme, provider) = *SCHEMES
            .iter()
            .find(|(known, _)| *known == scheme)
            .ok_or_else(|| {
                let message = format!("address {scheme}://…: this store is not supported");
                Error::new(Code::Unsupported, message)
                    .with_hint("use s3://, gs://, az:// or abfss://")
            })?;
        if rest.contains(['?', '#']) {
            return Err(refused("holds more than a bucket and a path"));
        }
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        let takes_account = scheme.starts_with("abfs");
        if bucket.is_empty()
            || bucket.chars().any(|c| {
                !(c.is_ascii_alphanumeric() || "-_.".contains(c) || (takes_account && c == '@'))
            })
        {
            return Err(refused("names no bucket"));
        }
        let is_prefix = path.is_empty() || path.ends_with('/');
        let trimmed = path.strip_suffix('/').unwrap_or(path);
        for part in trimmed.split('/') {
            if part.is_empty() && !trimmed.is_empty() {
                return Err(refused("holds an empty name"));
            }
            if part == ".." || part == "." {
                return Err(refused("leaves its bucket"));
            }
            if part
                .chars()
                .any(|c| c.is_control() || "%\\*?\"<>|#{}^[]`~".contains(c))
            {
                return Err(refused(
                    "holds an escape, or a character that not every store takes",
                ));
            }
        }
        let path = StorePath::parse(trimmed).map_err(|_| refused("is no path"))?;
        Ok(Self {
            provider,
            scheme,
            bucket: bucket.to_owned(),
            path,
            is_prefix,
        })
    }

    /// The path in the bucket.
    #[must_use]
    pub fn path(&self) -> &StorePath {
        &self.path
    }

    /// Whether the address ended with a slash.
    #[must_use]
    pub fn is_prefix(&self) -> bool {
        self.is_prefix
    }

    /// The bucket's own address.
    #[must_use]
    pub fn root(&self) -> String {
        format!("{}://{}", self.scheme, self.bucket)
    }

    /// Whether another address is this one, with a slash behind it or without.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.path == other.path && self.root() == other.root()
    }

    /// Whether another address is this one or lies below it.
    #[must_use]
    pub fn holds(&self, other: &Self) -> bool {
        self.is_same(other) || self.below(other).is_some()
    }

    /// The part of another address below this one; none where it lies elsewhere.
    #[must_use]
    pub fn below<'a>(&self, other: &'a Self) -> Option<&'a str> {
        if (self.provider, &self.bucket) != (other.provider, &other.bucket) {
            return None;
        }
        let rest = other.path.as_ref().strip_prefix(self.path.as_ref())?;
        match self.path.as_ref().is_empty() {
            true => Some(rest),
            false => rest.strip_prefix('/'),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.root())?;
        match self.path.as_ref() {
            "" => Ok(()),
            path => write!(f, "/{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_a_bucket_and_a_path() {
        for (text, path) in [
            ("s3://bucket", ""),
            ("s3://bucket/", ""),
            ("s3a://bucket/a/b", "a/b"),
            ("gs://bucket/a/", "a"),
            ("az://container/x", "x"),
            ("abfss://container@account.dfs.core.windows.net/x", "x"),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.path().as_ref(), path, "{text}");
        }
        for text in [
            "s3://",
            "s3:///a",
            "s3://bucket/../other",
            "s3://bucket/a/./b",
            "s3://bucket/%2e%2e/x",
            "s3://bucket/a?versionId=1",
            "s3://key:secret@bucket/a",
            "s3://bucket//a",
        ] {
            let code = Address::parse(text).unwrap_err().code();
            assert_eq!(code, Code::InvalidLocation, "{text}");
        }
        let other = Address::parse("ftp://x/y").unwrap_err();
        assert_eq!(other.code(), Code::Unsupported);
    }

    #[test]
    fn an_error_does_not_repeat_a_token() {
        for text in ["s3://bucket/a?token=hunter2", "s3://name:hunter2@bucket/a"] {
            let error = Address::parse(text).unwrap_err();
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }

    #[test]
    fn what_lies_below_is_told_by_whole_names() {
        let lake = Address::parse("s3://bucket/lake").unwrap();
        let below = |text: &str| {
            let other = Address::parse(text).unwrap();
            lake.below(&other).map(str::to_owned)
        };
        assert_eq!(below("s3://bucket/lake/a/b").as_deref(), Some("a/b"));
        assert_eq!(below("s3://bucket/lake2/a"), None);
        assert_eq!(below("s3://other/lake/a"), None);
        assert_eq!(below("s3://bucket/lake"), None);
    }
}
