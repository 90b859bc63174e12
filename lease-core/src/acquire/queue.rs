//! Waiters of one locker on one key stand in line, so that the store sees one contender.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::key::LeaseKey;

/// One line per key that is waited for.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    lines: Mutex<HashMap<LeaseKey, Line>>,
}

#[derive(Debug)]
struct Line {
    // Fair: permits are given in the order in which they were asked for.
    head: Arc<Semaphore>,
    people: usize,
}

/// Being at the head of the line; dropping it lets the next one go.
pub(crate) struct Turn {
    // Dropped in this order: the permit is given back before the line may vanish.
    _permit: OwnedSemaphorePermit,
    place: Place,
}

/// Standing in line.
struct Place {
    queue: Arc<Queue>,
    key: LeaseKey,
}

impl Queue {
    /// Waits until everybody who came earlier for `key` has had a turn.
    pub(crate) async fn turn(self: &Arc<Self>, key: &LeaseKey) -> Turn {
        let (place, head) = self.join(key);
        let permit = match head.acquire_owned().await {
            Ok(permit) => permit,
            // Nobody closes these semaphores.
            Err(_closed) => std::future::pending().await,
        };
        Turn { _permit: permit, place }
    }

    fn join(self: &Arc<Self>, key: &LeaseKey) -> (Place, Arc<Semaphore>) {
        let mut lines = self.lines();
        let line = lines
            .entry(key.clone())
            .or_insert_with(|| Line { head: Arc::new(Semaphore::new(1)), people: 0 });
        line.people += 1;
        (Place { queue: Arc::clone(self), key: key.clone() }, Arc::clone(&line.head))
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<LeaseKey, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Entry::Occupied(mut line) = self.queue.lines().entry(self.key.clone()) {
            line.get_mut().people -= 1;
            if line.get().people == 0 {
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
    async fn a_line_vanishes_with_the_last_who_stood_in_it() {
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
