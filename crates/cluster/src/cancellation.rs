//! A submitter's wish to stop a batch.

use std::sync::Arc;

use tidegate_change::{Code, Error, Result};
use tokio::sync::watch;

/// Asked for once, looked at until the batch is prepared. Clones are one and the same.
#[derive(Clone, Debug)]
pub struct Cancellation(Arc<watch::Sender<bool>>);

impl Default for Cancellation {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Cancellation {
    /// Asks for it.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was asked for.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        *self.0.borrow()
    }

    /// Runs what may be dropped, until it is done or the cancellation is asked for.
    ///
    /// # Errors
    /// `CANCELLED`, or what the future says.
    pub async fn guard<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut asked = self.0.subscribe();
        tokio::select! {
            biased;
            // The sender lives as long as this value: the wait cannot fail.
            _ = asked.wait_for(|asked| *asked) => Err(Self::error()),
            done = work => done,
        }
    }

    /// Refuses to go on once it was asked for.
    ///
    /// # Errors
    /// `CANCELLED`.
    pub fn check(&self) -> Result<()> {
        match self.is_asked() {
            true => Err(Self::error()),
            false => Ok(()),
        }
    }

    fn error() -> Error {
        Error::new(Code::Cancelled, "the batch was cancelled")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_ends_when_it_is_cancelled() {
        let cancellation = Cancellation::default();
        assert_eq!(cancellation.guard(async { Ok(7) }).await.unwrap(), 7);
        let clone = cancellation.clone();
        let waiting =
            tokio::spawn(async move { clone.guard(std::future::pending::<Result<()>>()).await });
        cancellation.cancel();
        assert_eq!(waiting.await.unwrap().unwrap_err().code(), Code::Cancelled);
        assert!(cancellation.check().is_err());
    }
}
