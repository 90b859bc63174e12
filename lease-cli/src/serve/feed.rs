//! Reads a view again and again, while a browser shows it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lease_core::StoreError;
use lease_core::store::{BootClock, Clock};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::rows::Rows;
use crate::exit::sentence;
use crate::output::messages::say;

/// What can be read as rows.
pub(super) trait View: Send + 'static {
    /// Reads all rows.
    fn read(&mut self) -> impl Future<Output = Result<Arc<Rows>, StoreError>> + Send;
}

/// The latest rows of a view, for all browsers that show it.
pub(super) struct Feed {
    readings: Arc<watch::Sender<Option<Reading>>>,
    subscribed: Arc<Notify>,
}

/// The rows, or why they could not be read.
pub(super) type Reading = Result<Arc<Rows>, String>;

impl Feed {
    /// Starts a task that reads `view` at most once per `interval`.
    pub(super) fn start(view: impl View, interval: Duration) -> Self {
        let readings = Arc::new(watch::Sender::new(None));
        let subscribed = Arc::new(Notify::new());
        tokio::spawn(run(Arc::clone(&readings), Arc::clone(&subscribed), view, interval));
        Self { readings, subscribed }
    }

    /// Receives the latest reading, and later ones. `None` is no reading: one follows.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Reading>> {
        let mut receiver = self.readings.subscribe();
        receiver.mark_changed();
        self.subscribed.notify_one();
        receiver
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("subscribers", &self.readings.receiver_count())
            .finish_non_exhaustive()
    }
}

async fn run(
    readings: Arc<watch::Sender<Option<Reading>>>,
    subscribed: Arc<Notify>,
    mut view: impl View,
    interval: Duration,
) {
    let (clock, mut fault) = (BootClock::new(), String::new());
    loop {
        if readings.receiver_count() == 0 {
            // The next browser must not see rows of an earlier time.
            readings.send_replace(None);
            // Returns at once if one has subscribed since the count.
            subscribed.notified().await;
            continue;
        }
        let began = clock.now();
        let reading = view.read().await;
        let took = clock.now().since(began);
        readings.send_replace(Some(match reading {
            Ok(rows) => {
                fault.clear();
                Ok(rows)
            }
            Err(error) => {
                report(&mut fault, &error);
                // Without the sources, which may have names that the page need not show.
                Err(error.to_string())
            }
        }));
        // A slow store spends at most half of its time here.
        sleep(interval.max(took)).await;
    }
}

/// Prints a fault when it begins, not at each read.
fn report(fault: &mut String, error: &StoreError) {
    let text = sentence(error);
    if *fault != text {
        say(&text);
        *fault = text;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use lease_core::StoreErrorKind;

    use super::*;

    /// Takes `time` for each read, and fails each second one.
    struct Slow {
        time: Duration,
        reads: Arc<AtomicU32>,
    }

    impl View for Slow {
        async fn read(&mut self) -> Result<Arc<Rows>, StoreError> {
            sleep(self.time).await;
            match self.reads.fetch_add(1, Ordering::Relaxed) % 2 {
                0 => Ok(Arc::new(Rows::now())),
                _ => Err(StoreError::new(StoreErrorKind::Unavailable, "no answer")),
            }
        }
    }

    fn feed(time: Duration) -> (Feed, Arc<AtomicU32>) {
        let reads = Arc::new(AtomicU32::new(0));
        let view = Slow { time, reads: Arc::clone(&reads) };
        (Feed::start(view, Duration::from_millis(500)), reads)
    }

    #[tokio::test(start_paused = true)]
    async fn view_is_read_only_while_a_browser_shows_it() {
        let (feed, reads) = feed(Duration::ZERO);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(reads.load(Ordering::Relaxed), 0);

        let mut receiver = feed.subscribe();
        receiver.wait_for(Option::is_some).await.unwrap();
        sleep(Duration::from_millis(9900)).await;
        drop(receiver);
        sleep(Duration::from_secs(60)).await;

        assert_eq!(reads.load(Ordering::Relaxed), 20);
        assert!(feed.subscribe().borrow().is_none(), "rows of an earlier time");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_store_has_pauses_as_long_as_its_reads() {
        let (feed, reads) = feed(Duration::from_secs(5));

        let _receiver = feed.subscribe();
        sleep(Duration::from_millis(99_900)).await;

        assert_eq!(reads.load(Ordering::Relaxed), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn browser_gets_a_fault_and_later_rows() {
        let (feed, _reads) = feed(Duration::ZERO);
        let mut receiver = feed.subscribe();

        receiver.wait_for(|reading| matches!(reading, Some(Err(_)))).await.unwrap();
        receiver.wait_for(|reading| matches!(reading, Some(Ok(_)))).await.unwrap();
    }
}
