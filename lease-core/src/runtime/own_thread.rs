//! A thread for one locker: it sends the heartbeats and drives the store's connections.

use std::convert::Infallible;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::select;
use tokio::sync::{mpsc, oneshot};

use crate::error::{StoreError, StoreErrorKind};

#[derive(Debug, Clone)]
pub(crate) struct OwnThread {
    pub(crate) runtime: Handle,
    pub(crate) guard: ThreadGuard,
}

/// Keeps the thread running. Dropping the last guard signals the thread to end, and does not wait.
#[derive(Debug, Clone)]
pub(crate) struct ThreadGuard {
    _open: mpsc::Sender<Infallible>,
}

impl OwnThread {
    pub(crate) async fn start<S, E>(
        connect: impl AsyncFnOnce() -> Result<S, E> + Send + 'static,
    ) -> Result<(Self, S), E>
    where
        S: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (started, start) = oneshot::channel();
        thread::Builder::new()
            .name("lease".to_owned())
            .spawn(move || run(connect, started))
            .map_err(misconfigured)?;
        start.await.unwrap_or_else(|_dropped| {
            Err(misconfigured("the thread for leases panicked while it connected the store").into())
        })
    }
}

fn run<S, E>(
    connect: impl AsyncFnOnce() -> Result<S, E>,
    mut started: oneshot::Sender<Result<(OwnThread, S), E>>,
) where
    E: From<StoreError>,
{
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(misconfigured(error).into()))),
    };
    let (open, mut closed) = mpsc::channel(1);
    let thread =
        OwnThread { runtime: runtime.handle().clone(), guard: ThreadGuard { _open: open } };
    runtime.block_on(async {
        let store = select! {
            biased;
            () = started.closed() => return,
            store = connect() => store,
        };
        // The answer contains the guard. If `connect` failed, or the caller is gone, the thread ends.
        drop(started.send(store.map(|store| (thread, store))));
        // No value is ever sent: `recv` completes once the last guard has been dropped.
        let _ = closed.recv().await;
    });
    // The shutdown does not wait for blocking work, such as a name look-up that hangs.
    runtime.shutdown_background();
}

fn misconfigured(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, error)
}
