//! Counts running requests, so that `Locker::close` can wait for them.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::runtime::own_thread::ThreadGuard;

/// Counts requests by epochs. Each call of [`ended`](Self::ended) begins another epoch, so the call
/// does not wait for later requests.
#[derive(Debug, Default, Clone)]
pub(crate) struct RequestsInFlight(Arc<Mutex<Epochs>>);

/// Each request holds a receiver, and the channel counts its receivers. No value is ever sent.
#[derive(Debug, Default)]
struct Epochs {
    current: watch::Sender<()>,
    earlier: Vec<watch::Sender<()>>,
}

#[derive(Debug)]
pub(crate) struct RequestGuard {
    _request: watch::Receiver<()>,
    _thread: Option<ThreadGuard>,
}

impl RequestsInFlight {
    pub(crate) fn guard(&self, thread: Option<ThreadGuard>) -> RequestGuard {
        RequestGuard { _request: self.epochs().current.subscribe(), _thread: thread }
    }

    pub(crate) async fn ended(&self) {
        let earlier = {
            let mut epochs = self.epochs();
            let last = std::mem::take(&mut epochs.current);
            epochs.earlier.push(last);
            epochs.earlier.retain(|epoch| epoch.receiver_count() > 0);
            epochs.earlier.clone()
        };
        for epoch in earlier {
            epoch.closed().await;
        }
    }

    fn epochs(&self) -> MutexGuard<'_, Epochs> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn ended_waits_for_running_requests_but_not_for_later_ones() {
        let requests = RequestsInFlight::default();
        assert_eq!(requests.ended().now_or_never(), Some(()));
        let (first, second) = (requests.guard(None), requests.guard(None));

        let mut ended = Box::pin(requests.ended());
        assert_eq!((&mut ended).now_or_never(), None);
        let later = requests.guard(None);
        let mut all_ended = Box::pin(requests.ended());
        assert_eq!((&mut all_ended).now_or_never(), None);
        drop(first);
        assert_eq!((&mut ended).now_or_never(), None);
        drop(second);

        assert_eq!(ended.now_or_never(), Some(()));
        assert_eq!((&mut all_ended).now_or_never(), None);
        drop(later);
        assert_eq!(all_ended.now_or_never(), Some(()));
        assert_eq!(requests.0.lock().earlier.len(), 2);
        assert_eq!(requests.ended().now_or_never(), Some(()));
        assert!(requests.0.lock().earlier.is_empty());
    }
}
