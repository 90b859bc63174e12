//! The thread that writes. Simultaneous requests share a transaction, and so one wait for the disk.

use std::sync::Arc;
use std::time::Duration;

use crate::database::Database;
use crate::error::Fault;
use crate::threads::queue::{ClosesAtEnd, Queue, Request, Taken};
use crate::threads::watches::Watches;

/// Pokes `reader` after each transaction, which may free keys, unless nobody waits for a key.
pub(crate) fn work(
    database: &Database,
    queue: &Arc<Queue>,
    reader: &Arc<Queue>,
    watches: &Watches,
) {
    let _closes = ClosesAtEnd(queue);
    let mut cleaning = Cleaning::default();
    loop {
        let mut requests = match queue.take(None) {
            Taken::Requests(requests) => requests,
            Taken::Nothing => continue,
            Taken::Closed => return,
        };
        let outcome = transact(database, &mut requests);
        for request in requests {
            request.answer(outcome.as_ref().copied());
        }
        // A watch that begins later reads what this transaction has written.
        if !watches.is_empty() {
            reader.poke();
        }
        cleaning.clean_if_due(database);
    }
}

/// An error answers all requests, since their outcome is unknown.
fn transact(database: &Database, requests: &mut [Box<dyn Request>]) -> Result<(), Fault> {
    database.check_identity()?;
    database.begin()?;
    for request in requests {
        request.run(database);
        // If a request fails, the next requests still run, unless SQLite has rolled back the transaction.
        if !database.is_in_transaction() {
            let rolled_back = || Fault::unavailable("the transaction was rolled back");
            return Err(request.fault().cloned().unwrap_or_else(rolled_back));
        }
    }
    if let Err(fault) = database.commit() {
        database.roll_back();
        return Err(fault);
    }
    // If the file was removed since, another process may have granted the same keys in a new file.
    database.check_identity()
}

#[derive(Debug, Default)]
struct Cleaning {
    /// The next cleaning starts at this boot time.
    next: Duration,
}

impl Cleaning {
    /// Cleaning takes at most a fiftieth of the thread's time.
    fn clean_if_due(&mut self, database: &Database) {
        let machine = &database.settings.machine;
        let start = machine.boot_time();
        if start < self.next {
            return;
        }
        if let Err(fault) = database.remove_outdated(KEPT) {
            tracing::warn!(error = &fault as &dyn std::error::Error, "outdated rows not removed");
        }
        let taken = machine.boot_time().saturating_sub(start);
        self.next = start + (taken * 50).max(SHORTEST_PAUSE);
    }
}

/// Duplicates of a claim come from a process of this machine, without a network between. So no duplicate
/// arrives after this time.
const KEPT: Duration = Duration::from_secs(60);
const SHORTEST_PAUSE: Duration = Duration::from_secs(10);
