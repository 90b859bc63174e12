//! The thread that reads. It also polls the file while a key is watched.

use std::sync::Arc;
use std::time::Duration;

use crate::database::Database;
use crate::threads::queue::{ClosesAtEnd, Queue, Taken};
use crate::threads::watches::Watches;

pub(crate) fn work(database: &Database, queue: &Arc<Queue>, watches: &Watches) {
    let _closes = ClosesAtEnd(queue);
    let mut polling = Polling { seen: None, changed: Duration::ZERO, pause: SHORTEST_PAUSE };
    loop {
        let limit = (!watches.is_empty()).then_some(polling.pause);
        match queue.take(limit) {
            Taken::Requests(requests) => {
                for mut request in requests {
                    let is_same_file = database.check_identity();
                    if is_same_file.is_ok() {
                        request.run(database);
                    }
                    request.answer(is_same_file.as_ref().copied());
                }
            }
            Taken::Nothing => (),
            Taken::Closed => {
                watches.wake_all();
                return;
            }
        }
        if !watches.is_empty() {
            polling.poll(database, watches);
        }
    }
}

/// While the number in shared memory is the same, the thread reads nothing.
struct Polling {
    seen: Option<i64>,
    /// The boot time of the last change.
    changed: Duration,
    pause: Duration,
}

impl Polling {
    fn poll(&mut self, database: &Database, watches: &Watches) {
        let machine = &database.settings.machine;
        let start = machine.boot_time();
        let current = database.check_identity().and_then(|()| database.data_version());
        let shortest = match current {
            // The pause delays the notice of a release by at most a hundredth of the time without changes.
            Ok(version) if self.seen == Some(version) => {
                (start.saturating_sub(self.changed) / 100).min(LONGEST_IDLE_PAUSE)
            }
            Ok(version) => {
                self.seen = Some(version);
                self.changed = start;
                watches.look(database);
                // Looking at many keys after each commit takes at most a fifth of the thread's time.
                (machine.boot_time().saturating_sub(start) * 4).min(LONGEST_PAUSE)
            }
            Err(_fault) => {
                // The next request of each waiter reports the fault.
                watches.wake_all();
                LONGEST_PAUSE
            }
        };
        self.pause = shortest.max(SHORTEST_PAUSE);
    }
}

/// See the measurement in `docs/design/020-sqlite.md`.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_IDLE_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
