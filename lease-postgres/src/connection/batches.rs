//! Sends requests of one kind that wait for a connection at the same time as one statement.

use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::select;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_postgres::Row;

use crate::connection::database::{Database, Lane, Lent};
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

/// Requests that wait for a connection. Each request has a task on the runtime of its caller, which waits for a
/// connection. The first task that gets one sends all that wait.
pub(crate) struct Batches<R: Batched> {
    database: Arc<Database>,
    queue: Mutex<Queue<R>>,
}

struct Queue<R: Batched> {
    waiting: VecDeque<Waiting<R>>,
    last: u64,
}

struct Waiting<R: Batched> {
    number: u64,
    request: R,
    reply: oneshot::Sender<Outcome<R>>,
    deadline: Instant,
    /// Its drop tells the task of the request that another task sends the request.
    taken: oneshot::Sender<()>,
}

/// `None` if the statement has no row for the request.
type Outcome<R> = Result<Option<<R as Batched>::Answer>, ServerFault>;

impl<R: Batched> Batches<R> {
    pub(crate) fn new(database: Arc<Database>) -> Arc<Self> {
        let queue = Mutex::new(Queue { waiting: VecDeque::new(), last: 0 });
        Arc::new(Self { database, queue })
    }

    /// Like [`Database::run`], sends the request even if the future is dropped. The caller sends a second statement
    /// if the answer has no row for the request.
    pub(crate) async fn send(self: &Arc<Self>, request: R) -> Outcome<R> {
        let mut late = pin!(sleep(self.database.timeout));
        let (reply, answer) = oneshot::channel();
        let (taken, is_taken) = oneshot::channel();
        let deadline = late.deadline();
        let number = {
            let mut queue = self.queue.lock();
            queue.last += 1;
            let number = queue.last;
            queue.waiting.push_back(Waiting { number, request, reply, deadline, taken });
            number
        };
        let own = Queued { batches: Arc::clone(self), number };
        tokio::spawn(own.send_when_lent(is_taken, deadline));
        let (name, limit) = (&self.database.name, self.database.timeout);
        select! {
            // An answer that is ready at the time limit still counts.
            biased;
            answer = answer => answer.unwrap_or_else(|_| {
                Err(ServerFault::unavailable(format!("{name}: the runtime has ended")))
            }),
            // The task that sends the request may be on a runtime that has ended.
            () = &mut late => Err(ServerFault::late(name, limit)),
        }
    }

    async fn send_all(&self, lent: Lent<'_>, waiting: Vec<Waiting<R>>) {
        let database = &self.database;
        let (mut requests, mut replies, mut latest) = (Vec::new(), Vec::new(), None);
        for Waiting { request, reply, deadline, taken, .. } in waiting {
            drop(taken);
            requests.push(request);
            replies.push(reply);
            latest = latest.max(Some(deadline));
        }
        let Some(latest) = latest else { return };
        let call = match &*requests {
            [single] if !database.batches_only => single.single(database),
            several => R::batch(several, database),
        };
        // Each caller has its own limit.
        let answer = database.ask(lent, &call, database.timeout, pin!(sleep_until(latest))).await;
        let outcomes: Vec<Outcome<R>> = match answer {
            Ok(rows) => read(&requests, &rows),
            // One row makes the whole statement fail. The next statement of each request has only its own row.
            Err(fault) if requests.len() > 1 && fault.concerns_one_row() => {
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

/// A request in the queue. A drop takes it out, so that it is not sent after its runtime has ended.
struct Queued<R: Batched> {
    batches: Arc<Batches<R>>,
    number: u64,
}

impl<R: Batched> Queued<R> {
    async fn send_when_lent(self, is_taken: oneshot::Receiver<()>, deadline: Instant) {
        let database = &self.batches.database;
        let lent = select! {
            // Another task sends the request, so this task needs no connection.
            biased;
            _ = is_taken => return,
            // A connection that is ready at the time limit is still used.
            lent = database.lend(R::LANE) => lent,
            () = sleep_until(deadline) => Err(database.without_connection(database.timeout)),
        };
        match lent {
            Ok(lent) => {
                if let Some(waiting) = self.take() {
                    self.batches.send_all(lent, waiting).await;
                }
            }
            Err(fault) => {
                if let Some(own) = self.remove() {
                    // The caller may have gone.
                    drop(own.reply.send(Err(fault)));
                }
            }
        }
    }

    /// Takes this request and others. Returns `None` if another task sends this request.
    fn take(&self) -> Option<Vec<Waiting<R>>> {
        let own = self.remove()?;
        let mut queue = self.batches.queue.lock();
        let others = queue.waiting.len().min(LARGEST - 1);
        Some(std::iter::once(own).chain(queue.waiting.drain(..others)).collect())
    }

    fn remove(&self) -> Option<Waiting<R>> {
        let mut queue = self.batches.queue.lock();
        let place = queue.waiting.binary_search_by_key(&self.number, |waiting| waiting.number);
        queue.waiting.remove(place.ok()?)
    }
}

impl<R: Batched> Drop for Queued<R> {
    fn drop(&mut self) {
        drop(self.remove());
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
        f.debug_struct("Batches").finish_non_exhaustive()
    }
}

/// Larger batches are not faster.
const LARGEST: usize = 64;
