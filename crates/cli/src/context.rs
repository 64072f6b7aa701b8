//! Where a command runs and how it talks.

use std::io::{BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_change::clock::{FixedClock, SystemClock, SystemRandom};
use tidegate_change::{Clock, Code, Error, Result};
use tidegate_client::{Client, ClientOptions, TlsOptions};
use tidegate_query::output::{Output, OutputFormat};
use tidegate_server::{Embedded, OpenOptions, Reader};

use crate::arguments::GlobalOptions;

/// Directory of the local lake where none is named.
pub(crate) const LOCAL_DEFAULT: &str = "./tidegate-data";
/// Environment variable that fixes the clock, unix seconds.
pub(crate) const CLOCK_VARIABLE: &str = "TIDEGATE_CLOCK";

/// The options in effect.
#[derive(Debug)]
pub(crate) struct Context {
    /// The cluster that commands talk to, where one is named.
    client: Option<Client>,
    /// Directory of the local lake.
    pub(crate) local: PathBuf,
    /// Whether the directory was named by the user.
    pub(crate) local_is_named: bool,
    /// Address of the lake, where one is named.
    pub(crate) lake: Option<String>,
    /// Form of the output.
    pub(crate) format: OutputFormat,
    /// Whether to print nothing but data and errors.
    pub(crate) quiet: bool,
    /// Whether to wait for the directory.
    pub(crate) wait_lock: bool,
    /// Bytes of memory of a batch, where they are given.
    pub(crate) memory: Option<u64>,
    /// Time.
    pub(crate) clock: Arc<dyn Clock>,
}

impl Context {
    pub(crate) fn new(options: &GlobalOptions) -> Result<Self> {
        Ok(Self {
            client: client(options)?,
            local: options
                .local
                .clone()
                .unwrap_or_else(|| LOCAL_DEFAULT.into()),
            local_is_named: options.local.is_some(),
            lake: options.lake.clone().filter(|lake| !lake.is_empty()),
            format: options.output.into(),
            quiet: options.quiet,
            wait_lock: options.wait_lock,
            memory: options.memory.map(|bytes| bytes.0),
            clock: clock(std::env::var(CLOCK_VARIABLE).ok().as_deref())?,
        })
    }

    /// The cluster that commands talk to; None where they work on the local directory.
    pub(crate) fn cluster(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    /// The cluster, for commands that need one.
    pub(crate) fn require_cluster(&self, what: &str) -> Result<&Client> {
        self.client.as_ref().ok_or_else(|| {
            let message = format!("{what}: needs a cluster");
            Error::new(Code::InvalidArgument, message)
                .with_hint("name a node with --endpoint http://HOST:PORT or TIDEGATE_ENDPOINT")
        })
    }

    /// Refuses a cluster, for commands that work on the local directory.
    pub(crate) fn require_local(&self, what: &str) -> Result<()> {
        match self.client {
            Some(_) => {
                let message = format!("{what}: works on a local directory");
                Err(Error::new(Code::InvalidArgument, message)
                    .with_hint("leave --endpoint and TIDEGATE_ENDPOINT out"))
            }
            None => Ok(()),
        }
    }

    /// Opens the directory for reading; no lock is taken.
    pub(crate) fn reader(&self) -> Result<Reader> {
        let stores = self.open_options().stores;
        Reader::open_in(&self.local, self.lake.as_deref(), &stores)
    }

    /// Opens the directory for writing and takes its lock.
    pub(crate) async fn writer(&self) -> Result<Embedded> {
        Embedded::open(&self.local, self.open_options()).await
    }

    /// How a directory is opened for writing.
    pub(crate) fn open_options(&self) -> OpenOptions {
        let default = OpenOptions::default();
        OpenOptions {
            clock: Arc::clone(&self.clock),
            random: Arc::new(SystemRandom),
            wait_lock: self.wait_lock,
            memory_bytes: self.memory.unwrap_or(default.memory_bytes),
            lake: self.lake.clone(),
            ..default
        }
    }

    /// Where data goes.
    pub(crate) fn output(&self) -> Output {
        Box::new(BufWriter::with_capacity(64 << 10, std::io::stdout()))
    }

    /// Tells the user something that is no data.
    pub(crate) fn say(&self, text: &str) {
        if !self.quiet {
            // Talk that nobody can hear is no reason to fail.
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        }
    }

    /// Whether nothing is told but data and failures.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether progress is shown.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }
}

fn client(options: &GlobalOptions) -> Result<Option<Client>> {
    let Some(endpoint) = options.endpoint.as_deref().filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let options = ClientOptions {
        tls: TlsOptions {
            authority: options.authority.clone(),
            certificate: options.client_certificate.clone(),
            key: options.client_key.clone(),
        },
        ..ClientOptions::new(endpoint)
    };
    Ok(Some(Client::new(options)?))
}

fn clock(fixed: Option<&str>) -> Result<Arc<dyn Clock>> {
    let Some(text) = fixed.filter(|text| !text.is_empty()) else {
        return Ok(Arc::new(SystemClock));
    };
    let now_ms = text
        .trim()
        .parse::<i64>()
        .ok()
        .and_then(|seconds| seconds.checked_mul(1000));
    match now_ms {
        Some(now_ms) => Ok(Arc::new(FixedClock { now_ms })),
        None => {
            let message = format!("{CLOCK_VARIABLE}={text:?} is no whole number of unix seconds");
            Err(Error::new(Code::InvalidArgument, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_stands_where_the_environment_says() {
        assert_eq!(
            clock(Some("1777629600")).unwrap().now_ms(),
            1_777_629_600_000
        );
        assert_eq!(
            clock(Some("soon")).unwrap_err().code(),
            Code::InvalidArgument
        );
        assert!(clock(None).unwrap().now_ms() > 1_777_629_600_000 - 400_000_000_000);
    }
}
