//! Opens object stores by address.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use tidegate_change::{Code, Error, Result};
use tidegate_delta::store::CheckedStore;

use super::address::{Address, Provider};
use crate::config::{SecretPlace, Stores};

/// Object stores that are open, by bucket. Clones are one and the same; the default is reached by the usual
/// variables of each provider.
#[derive(Clone, Default)]
pub struct RemoteStores {
    options: Arc<Stores>,
    open: Arc<Mutex<BTreeMap<String, Arc<dyn ObjectStore>>>>,
}

impl fmt::Debug for RemoteStores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Clients hold credentials.
        f.debug_struct("RemoteStores")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl RemoteStores {
    /// Stores that are reached as the options say.
    #[must_use]
    pub fn new(options: Stores) -> Self {
        Self {
            options: Arc::new(options),
            open: Arc::default(),
        }
    }

    /// The bucket of an address; its answers have the length that was asked for.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` when options or credentials are missing or wrong.
    pub fn open(&self, address: &Address) -> Result<Arc<dyn ObjectStore>> {
        let root = address.root();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = open.get(&root) {
            return Ok(Arc::clone(store));
        }
        let built = match address.provider {
            Provider::S3 => self.s3(address)?,
            Provider::Gcs => self.gcs(address)?,
            Provider::Azure => self.azure(address)?,
        };
        let store: Arc<dyn ObjectStore> = Arc::new(CheckedStore::new(built));
        open.insert(root, Arc::clone(&store));
        Ok(store)
    }

    fn retry(&self) -> RetryConfig {
        RetryConfig {
            retry_timeout: self.options.patience.duration(),
            max_retries: usize::MAX,
            ..RetryConfig::default()
        }
    }

    fn s3(&self, address: &Address) -> Result<Arc<dyn ObjectStore>> {
        let options = &self.options.s3;
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(&address.bucket)
            .with_retry(self.retry());
        if let Some(endpoint) = &options.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = &options.region {
            builder = builder.with_region(region);
        }
        if options.allow_http {
            builder = builder.with_allow_http(true);
        }
        if options.virtual_hosted {
            builder = builder.with_virtual_hosted_style_request(true);
        }
        if let Some(id) = secret(options.access_key_id.as_ref())? {
            builder = builder.with_access_key_id(id);
        }
        if let Some(key) = secret(options.secret_access_key.as_ref())? {
            builder = builder.with_secret_access_key(key);
        }
        if let Some(token) = secret(options.session_token.as_ref())? {
            builder = builder.with_token(token);
        }
        Ok(Arc::new(builder.build().map_err(|e| unusable(address, e))?))
    }

    fn gcs(&self, address: &Address) -> Result<Arc<dyn ObjectStore>> {
        let options = &self.options.gcs;
        let mut builder = GoogleCloudStorageBuilder::from_env()
            .with_bucket_name(&address.bucket)
            .with_retry(self.retry());
        if let Some(endpoint) = &options.endpoint {
            builder = builder.with_base_url(endpoint);
        }
        if options.allow_http {
            builder = builder.with_client_options(ClientOptions::new().with_allow_http(true));
        }
        if let Some(path) = &options.service_account {
            builder = builder.with_service_account_path(path.display().to_string());
        }
        Ok(Arc::new(builder.build().map_err(|e| unusable(address, e))?))
    }

    fn azure(&self, address: &Address) -> Result<Arc<dyn ObjectStore>> {
        let options = &self.options.azure;
        // `abfss` names the account behind the container.
        let (container, host) = match address.bucket.split_once('@') {
            Some((container, host)) => (container, Some(host)),
            None => (address.bucket.as_str(), None),
        };
        let mut builder = MicrosoftAzureBuilder::from_env()
            .with_container_name(container)
            .with_retry(self.retry());
        let named = host.and_then(|host| host.split('.').next());
        if let Some(account) = named.or(options.account.as_deref()) {
            builder = builder.with_account(account);
        }
        if let Some(endpoint) = &options.endpoint {
            builder = builder.with_endpoint(endpoint.clone());
        }
        if options.allow_http {
            builder = builder.with_allow_http(true);
        }
        if let Some(key) = secret(options.access_key.as_ref())? {
            builder = builder.with_access_key(key);
        }
        Ok(Arc::new(builder.build().map_err(|e| unusable(address, e))?))
    }
}

fn secret(place: Option<&SecretPlace>) -> Result<Option<String>> {
    place.map(SecretPlace::read).transpose()
}

fn unusable(address: &Address, error: object_store::Error) -> Error {
    let message = format!("store {}: cannot be used as configured", address.root());
    Error::new(Code::InvalidArgument, message).with_source(error)
}
