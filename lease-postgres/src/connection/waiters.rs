//! The waiters for notifications on one connection.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

/// Closed when the connection ends, because a notification may have been missed.
#[derive(Debug, Clone)]
pub(crate) struct Waiters(Arc<Mutex<Option<ByKey>>>);

#[derive(Debug, Default)]
struct ByKey {
    last_id: u64,
    waiting: HashMap<String, Vec<(u64, oneshot::Sender<()>)>>,
}

/// Dropping the watch removes the waiter.
#[derive(Debug)]
pub(crate) struct Watch {
    waiters: Waiters,
    key: String,
    id: u64,
    woken: oneshot::Receiver<()>,
}

impl Waiters {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Some(ByKey::default()))))
    }

    /// Returns `None` if the connection has ended.
    pub(crate) fn watch(&self, key: &str) -> Option<Watch> {
        let (wake, woken) = oneshot::channel();
        let mut by_key = self.lock();
        let by_key = by_key.as_mut()?;
        by_key.last_id += 1;
        let id = by_key.last_id;
        by_key.waiting.entry(key.to_owned()).or_default().push((id, wake));
        Some(Watch { waiters: self.clone(), key: key.to_owned(), id, woken })
    }

    pub(crate) fn wake(&self, key: &str) {
        let waiting = self.lock().as_mut().and_then(|by_key| by_key.waiting.remove(key));
        for (_, wake) in waiting.into_iter().flatten() {
            let _ = wake.send(());
        }
    }

    pub(crate) fn close(&self) {
        drop(self.lock().take());
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_none()
    }

    fn lock(&self) -> MutexGuard<'_, Option<ByKey>> {
        self.0.lock()
    }
}

impl Watch {
    pub(crate) async fn woken(&mut self) {
        // An error means that the connection has ended.
        drop((&mut self.woken).await);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut by_key = self.waiters.lock();
        let Some(by_key) = by_key.as_mut() else { return };
        if let Some(waiting) = by_key.waiting.get_mut(&self.key) {
            waiting.retain(|(id, _)| *id != self.id);
            if waiting.is_empty() {
                by_key.waiting.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ended_watches_leave_no_waiter() {
        let waiters = Waiters::new();

        drop(waiters.watch("job"));
        let mut watch = waiters.watch("job").unwrap();
        waiters.wake("job");
        watch.woken().await;

        assert!(waiters.lock().as_ref().unwrap().waiting.is_empty());
    }

    #[tokio::test]
    async fn end_of_connection_wakes_all_waiters() {
        let waiters = Waiters::new();
        let mut watch = waiters.watch("job").unwrap();

        waiters.close();

        watch.woken().await;
        assert!(waiters.watch("job").is_none(), "a closed connection has no waiters");
    }
}
