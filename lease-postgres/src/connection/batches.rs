//! Sends requests of one kind that wait for a connection at the same time as one statement.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use lease_core::StoreErrorKind;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};
use tokio_postgres::Row;

use crate::connection::database::{Database, Lane};
use crate::error::ServerFault;
use crate::reply::column;
use crate::statements::Call;

/// A kind of request that one statement can make several of.
pub(crate) trait Batched: Sized + Send + 'static {
    type Answer: Send;
    const LANE: Lane;

    fn single(&self, database: &Database) -> Call;

    /// Each row of the answer has the place of its request, counted from 1.
    fn batch(requests: &[Self], database: &Database) -> Call;

    fn answer(&self, row: &Row) -> Result<Self::Answer, ServerFault>;
}

/// Requests that wait for a sender. A sender is a task that uses one connection at a time. While fewer than
/// `max_senders` are busy, each request is sent at once.
pub(crate) struct Batches<R: Batched> {
    database: Arc<Database>,
    max_senders: usize,
    queue: Mutex<Queue<R>>,
}

struct Queue<R: Batched> {
    waiting: VecDeque<Waiting<R>>,
    senders: usize,
}

struct Waiting<R: Batched> {
    request: R,
    reply: oneshot::Sender<Outcome<R>>,
    /// Completes at the time limit of the request.
    late: Pin<Box<Sleep>>,
}

/// `None` if the statement has no row for the request.
type Outcome<R> = Result<Option<<R as Batched>::Answer>, ServerFault>;

impl<R: Batched> Batches<R> {
    pub(crate) fn new(database: Arc<Database>, max_senders: usize) -> Arc<Self> {
        let queue = Mutex::new(Queue { waiting: VecDeque::new(), senders: 0 });
        Arc::new(Self { database, max_senders, queue })
    }

    /// Like [`Database::run`], sends the request even if the future is dropped.
    pub(crate) async fn send(self: &Arc<Self>, request: R) -> Outcome<R> {
        let (reply, answer) = oneshot::channel();
        let late = Box::pin(sleep(self.database.timeout));
        let starts = {
            let mut queue = self.queue.lock();
            queue.waiting.push_back(Waiting { request, reply, late });
            let starts = queue.senders < self.max_senders;
            queue.senders += usize::from(starts);
            starts
        };
        if starts {
            tokio::spawn(Sender { batches: Arc::clone(self), has_ended: false }.send_all());
        }
        answer.await.unwrap_or_else(|_| {
            let name = &self.database.name;
            Err(ServerFault::unavailable(format!("{name}: the runtime has ended")))
        })
    }
}

/// Sends what waits, until nothing waits.
struct Sender<R: Batched> {
    batches: Arc<Batches<R>>,
    has_ended: bool,
}

impl<R: Batched> Sender<R> {
    async fn send_all(mut self) {
        while let Some(waiting) = self.take() {
            self.send(waiting).await;
        }
    }

    /// Returns `None` if nothing waits. Then this sender has ended: the next request starts another one.
    fn take(&mut self) -> Option<Vec<Waiting<R>>> {
        let mut queue = self.batches.queue.lock();
        let count = queue.waiting.len().min(LARGEST);
        if count == 0 {
            queue.senders -= 1;
            self.has_ended = true;
            return None;
        }
        Some(queue.waiting.drain(..count).collect())
    }

    async fn send(&self, waiting: Vec<Waiting<R>>) {
        let database = &self.batches.database;
        let (mut requests, mut replies, mut lates) = (Vec::new(), Vec::new(), Vec::new());
        for Waiting { request, reply, late } in waiting {
            requests.push(request);
            replies.push(reply);
            lates.push(late);
        }
        let call = match &*requests {
            [single] if !database.batches_only => single.single(database),
            several => R::batch(several, database),
        };
        // The oldest request has the earliest limit.
        let Some(late) = lates.first_mut() else { return };
        let answer = database.request_until(R::LANE, &call, database.timeout, late.as_mut()).await;
        let outcomes: Vec<Outcome<R>> = match answer {
            Ok(rows) => read(&requests, &rows),
            // One row may have an invalid value. Then the next statement of each request finds it.
            Err(fault) if requests.len() > 1 && fault.kind == StoreErrorKind::Corrupt => {
                requests.iter().map(|_| Ok(None)).collect()
            }
            Err(fault) => requests.iter().map(|_| Err(fault.clone())).collect(),
        };
        for (reply, outcome) in replies.into_iter().zip(outcomes) {
            // The caller may have gone.
            drop(reply.send(outcome));
        }
    }
}

impl<R: Batched> Drop for Sender<R> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        // The runtime has ended. The other senders may be on the same runtime, so no request must wait for them.
        let mut queue = self.batches.queue.lock();
        queue.senders -= 1;
        queue.waiting.clear();
    }
}

fn read<R: Batched>(requests: &[R], rows: &[Row]) -> Vec<Outcome<R>> {
    let mut outcomes: Vec<_> = requests.iter().map(|_| Ok(None)).collect();
    for row in rows {
        let place = match requests {
            [_single] => Ok(0),
            _several => column::<i64>(row, "place").map(|place| place - 1),
        };
        let place = place.ok().and_then(|place| usize::try_from(place).ok());
        let Some(place) = place else { continue };
        if let (Some(request), Some(outcome)) = (requests.get(place), outcomes.get_mut(place)) {
            *outcome = request.answer(row).map(Some);
        }
    }
    outcomes
}

impl<R: Batched> fmt::Debug for Batches<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").field("max_senders", &self.max_senders).finish_non_exhaustive()
    }
}

/// Larger batches are not faster.
const LARGEST: usize = 64;
