//! Queues the waiters of one locker on one key, so that the store sees one contender.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::key::LeaseKey;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    lines: Mutex<HashMap<LeaseKey, Line>>,
}

#[derive(Debug)]
struct Line {
    // tokio's semaphore grants permits in the order of the requests.
    head: Arc<Semaphore>,
    waiters: usize,
}

/// When a turn is dropped, the next waiter gets its turn.
pub(crate) struct Turn {
    // The fields drop in this order: the permit must be returned before the `Line` may be removed.
    _permit: OwnedSemaphorePermit,
    place: Place,
}

struct Place {
    queue: Arc<Queue>,
    key: LeaseKey,
}

impl Queue {
    pub(crate) async fn turn(self: &Arc<Self>, key: &LeaseKey) -> Turn {
        let (place, head) = self.join(key);
        let permit = match head.acquire_owned().await {
            Ok(permit) => permit,
            // No code closes these semaphores.
            Err(_closed) => std::future::pending().await,
        };
        Turn { _permit: permit, place }
    }

    fn join(self: &Arc<Self>, key: &LeaseKey) -> (Place, Arc<Semaphore>) {
        let mut lines = self.lines();
        let line = lines
            .entry(key.clone())
            .or_insert_with(|| Line { head: Arc::new(Semaphore::new(1)), waiters: 0 });
        line.waiters += 1;
        (Place { queue: Arc::clone(self), key: key.clone() }, Arc::clone(&line.head))
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<LeaseKey, Line>> {
        self.lines.lock()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Entry::Occupied(mut line) = self.queue.lines().entry(self.key.clone()) {
            line.get_mut().waiters -= 1;
            if line.get().waiters == 0 {
                line.remove();
            }
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("key", &self.place.key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn line_is_removed_with_its_last_waiter() {
        let queue = Arc::new(Queue::default());
        let key: LeaseKey = "job".parse().unwrap();

        let first = queue.turn(&key).await;
        let second = tokio::spawn({
            let (queue, key) = (Arc::clone(&queue), key.clone());
            async move { queue.turn(&key).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(queue.lines().len(), 1);

        drop(first);
        drop(second.await.unwrap());

        assert!(queue.lines().is_empty());
    }
}
