//! Object stores: where they are reached. Credentials are named here and stand elsewhere.

use std::fmt;
use std::path::PathBuf;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tidegate_change::{Code, Error, Result};

use super::Span;

/// How object stores are reached; what is not given comes from the usual variables of each provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stores {
    /// How long a request is repeated that a store answers with "slow down", an error of its own, or not at
    /// all. The pauses grow, and differ by chance.
    pub patience: Span,
    /// Amazon S3 and stores that speak like it.
    pub s3: S3,
    /// Google Cloud Storage.
    pub gcs: Gcs,
    /// Azure Blob Storage.
    pub azure: Azure,
}

impl Default for Stores {
    fn default() -> Self {
        Self {
            patience: Span::from_ms(60_000),
            s3: S3::default(),
            gcs: Gcs::default(),
            azure: Azure::default(),
        }
    }
}

/// How S3 is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct S3 {
    /// Another address than Amazon's.
    pub endpoint: Option<String>,
    /// The region.
    pub region: Option<String>,
    /// Go without encryption, which an `http://` endpoint needs.
    pub allow_http: bool,
    /// Name the bucket in the host instead of the path.
    pub virtual_hosted: bool,
    /// Id of the key.
    pub access_key_id: Option<SecretPlace>,
    /// The key.
    pub secret_access_key: Option<SecretPlace>,
    /// Token of a session.
    pub session_token: Option<SecretPlace>,
}

/// How Google Cloud Storage is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gcs {
    /// Another address than Google's.
    pub endpoint: Option<String>,
    /// Go without encryption.
    pub allow_http: bool,
    /// File with the key of a service account, JSON.
    pub service_account: Option<PathBuf>,
}

/// How Azure is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Azure {
    /// The storage account.
    pub account: Option<String>,
    /// Another address than Azure's.
    pub endpoint: Option<String>,
    /// Go without encryption.
    pub allow_http: bool,
    /// Key of the account.
    pub access_key: Option<SecretPlace>,
}

/// Where a secret stands: `env:NAME` or `file:PATH`. The secret itself is never part of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SecretPlace(String);

impl SecretPlace {
    /// The place that a text names.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for anything else, which may be a secret and is not repeated.
    pub fn parse(text: &str) -> Result<Self> {
        let is_place = ["env:", "file:"].iter().any(|prefix| {
            text.strip_prefix(prefix)
                .is_some_and(|rest| !rest.is_empty())
        });
        match is_place {
            true => Ok(Self(text.to_owned())),
            false => Err(Error::new(
                Code::InvalidArgument,
                "a secret is named by env:NAME or file:PATH, and never written down",
            )),
        }
    }

    /// The secret that stands there.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` when there is none, or an I/O error; neither shows it.
    pub fn read(&self) -> Result<String> {
        let missing = || Error::new(Code::InvalidArgument, format!("{self}: holds no secret"));
        let secret = match self.0.split_once(':') {
            Some(("env", name)) => std::env::var(name).map_err(|_| missing())?,
            Some((_, path)) => {
                std::fs::read_to_string(path).map_err(|e| Error::io(self.to_string(), e))?
            }
            None => return Err(missing()),
        };
        let secret = secret.trim().to_owned();
        if secret.is_empty() {
            return Err(missing());
        }
        Ok(secret)
    }
}

impl fmt::Display for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SecretPlace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_named_and_never_repeated() {
        let error = SecretPlace::parse("hunter2").unwrap_err();
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "hunter2\n").unwrap();
        let place = SecretPlace::parse(&format!("file:{}", file.path().display())).unwrap();
        assert_eq!(place.read().unwrap(), "hunter2");
        assert!(!format!("{place:?}").contains("hunter2"));
        let absent = SecretPlace::parse("env:TIDEGATE_NO_SUCH_SECRET").unwrap();
        assert_eq!(absent.read().unwrap_err().code(), Code::InvalidArgument);
    }
}
