//! Threads for work that must neither hold up calls nor end with the caller.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tidegate_change::{Error, Result};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Threads of their own, that outlive a caller who goes away.
#[derive(Debug)]
pub(crate) struct WorkThreads {
    // Taken only when this value goes.
    runtime: Option<Runtime>,
    running: Arc<watch::Sender<usize>>,
}

impl WorkThreads {
    /// As many threads as the machine has cores.
    pub(crate) fn start() -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .thread_name("tidegate-work")
            .enable_all()
            .build()
            .map_err(|e| Error::io("the threads of the process", e))?;
        Ok(Self {
            runtime: Some(runtime),
            running: Arc::default(),
        })
    }

    /// The threads, for work that ends with its caller: [`Self::idle`] does not wait for it.
    pub(crate) fn handle(&self) -> Handle {
        match &self.runtime {
            Some(runtime) => runtime.handle().clone(),
            None => Handle::current(),
        }
    }

    /// Starts something that goes on whoever waits for it; a panic in it is an error.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> JoinHandle<Result<T>> {
        let counted = Counted::new(&self.running);
        let work = async move {
            let done = AssertUnwindSafe(work).catch_unwind().await;
            drop(counted);
            done.unwrap_or_else(|_| Err(Error::internal("the work of a call panicked")))
        };
        match &self.runtime {
            Some(runtime) => runtime.spawn(work),
            None => tokio::spawn(work),
        }
    }

    /// Runs something to its end, also when the caller goes away before.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let joined = self.spawn(work).await;
        joined.map_err(|e| Error::internal("the work of a call was dropped").with_source(e))?
    }

    /// Waits until nothing runs.
    pub(crate) async fn idle(&self) {
        let mut running = self.running.subscribe();
        // The sender lives as long as this value: the wait cannot fail.
        let _ = running.wait_for(|count| *count == 0).await;
    }
}

impl Drop for WorkThreads {
    fn drop(&mut self) {
        // A runtime that waits for its threads may not be dropped where others wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// One piece of work in the count.
struct Counted(Arc<watch::Sender<usize>>);

impl Counted {
    fn new(running: &Arc<watch::Sender<usize>>) -> Self {
        running.send_modify(|count| *count += 1);
        Self(Arc::clone(running))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use tidegate_change::Code;

    use super::*;

    #[tokio::test]
    async fn work_goes_on_without_its_caller_and_is_waited_for() {
        let threads = WorkThreads::start().unwrap();
        let (begin, wait) = tokio::sync::oneshot::channel::<()>();
        let (done, end) = tokio::sync::oneshot::channel();
        drop(threads.spawn(async move {
            let _ = wait.await;
            let _ = done.send(7);
            Ok(())
        }));
        assert_eq!(*threads.running.borrow(), 1);
        begin.send(()).unwrap();
        assert_eq!(end.await.unwrap(), 7);
        threads.idle().await;
        assert_eq!(*threads.running.borrow(), 0);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_of_the_call() {
        let threads = WorkThreads::start().unwrap();
        let result = threads
            .run(async { Err::<(), _>(Error::new(Code::Io, "x")) })
            .await;
        assert_eq!(result.unwrap_err().code(), Code::Io);
        let result = threads.run(async { panicking() }).await;
        assert_eq!(result.unwrap_err().code(), Code::Internal);
        threads.idle().await;
    }

    fn panicking() -> Result<()> {
        panic!("on purpose")
    }
}
