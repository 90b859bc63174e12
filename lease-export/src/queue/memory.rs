//! Jobs in memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::store::{BootClock, Clock, Moment};
use parking_lot::{Mutex, MutexGuard};
use tokio::select;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::error::ServiceError;
use crate::queue::{Delivery, JobId, JobQueue};

/// Keeps jobs in memory, for the workers of one process. Clones share the jobs.
#[derive(Debug, Clone)]
pub struct MemoryQueue {
    visibility: Duration,
    clock: BootClock,
    jobs: Arc<Mutex<Jobs>>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Jobs {
    last: u64,
    bodies: BTreeMap<JobId, Job>,
    ready: VecDeque<JobId>,
    /// Jobs that were taken or returned, with the time at which they are visible again.
    hidden: BTreeSet<(Moment, JobId)>,
}

#[derive(Debug)]
struct Job {
    body: String,
    enqueued: Moment,
    deliveries: u64,
    hidden_until: Option<Moment>,
}

impl MemoryQueue {
    /// Makes an empty queue, which hides a taken job from other workers for `visibility`.
    pub fn new(visibility: Duration) -> Self {
        Self { visibility, clock: BootClock::new(), jobs: Arc::default(), changed: Arc::default() }
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock()
    }

    fn hide(&self, delivery: &Delivery, length: Duration) -> bool {
        let until = self.clock.now() + length;
        let jobs = &mut *self.jobs();
        if !jobs.uncover(delivery) {
            return false;
        }
        jobs.hide(delivery.id, until);
        self.changed.notify_one();
        true
    }
}

impl Jobs {
    fn hide(&mut self, id: JobId, until: Moment) {
        if let Some(job) = self.bodies.get_mut(&id) {
            job.hidden_until = Some(until);
            self.hidden.insert((until, id));
        }
    }

    fn uncover(&mut self, delivery: &Delivery) -> bool {
        let Some(job) = self.bodies.get_mut(&delivery.id) else { return false };
        if job.deliveries != delivery.number {
            return false;
        }
        let Some(until) = job.hidden_until.take() else { return false };
        self.hidden.remove(&(until, delivery.id))
    }

    /// Due jobs go to the end: at the front, a job that cannot run would block other jobs.
    fn requeue_due(&mut self, now: Moment) {
        let later = self.hidden.split_off(&(now + Duration::from_nanos(1), JobId::new(0)));
        let due = std::mem::replace(&mut self.hidden, later);
        for (_, id) in due {
            if let Some(job) = self.bodies.get_mut(&id) {
                job.hidden_until = None;
                self.ready.push_back(id);
            }
        }
    }

    fn enqueue(&mut self, body: &str, enqueued: Moment) -> JobId {
        self.last += 1;
        let id = JobId::new(self.last);
        let job = Job { body: body.to_owned(), enqueued, deliveries: 0, hidden_until: None };
        self.bodies.insert(id, job);
        self.ready.push_back(id);
        id
    }

    fn take(&mut self, now: Moment, visibility: Duration) -> Option<Delivery> {
        self.requeue_due(now);
        let id = self.ready.pop_front()?;
        self.hide(id, now + visibility);
        let job = self.bodies.get_mut(&id)?;
        job.deliveries += 1;
        Some(Delivery::new(id, job.body.clone(), job.deliveries, now.since(job.enqueued)))
    }

    fn next_due(&self) -> Option<Moment> {
        self.hidden.first().map(|(until, _)| *until)
    }
}

#[async_trait]
impl JobQueue for MemoryQueue {
    async fn enqueue(&self, body: &str) -> Result<JobId, ServiceError> {
        let id = self.jobs().enqueue(body, self.clock.now());
        self.changed.notify_one();
        Ok(id)
    }

    async fn replace(&self, body: &str) -> Result<JobId, ServiceError> {
        let now = self.clock.now();
        let jobs = &mut *self.jobs();
        jobs.requeue_due(now);
        for replaced in std::mem::take(&mut jobs.ready) {
            jobs.bodies.remove(&replaced);
        }
        let id = jobs.enqueue(body, now);
        self.changed.notify_one();
        Ok(id)
    }

    async fn take(&self, patience: Duration) -> Result<Option<Delivery>, ServiceError> {
        let until = self.clock.now() + patience;
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let now = self.clock.now();
            let (taken, due) = {
                let jobs = &mut *self.jobs();
                (jobs.take(now, self.visibility), jobs.next_due())
            };
            if let Some(delivery) = taken {
                // Two notifications may wake only one waiter. So this waiter wakes the next waiter.
                self.changed.notify_one();
                return Ok(Some(delivery));
            }
            if now >= until {
                return Ok(None);
            }
            let wake = due.map_or(until, |due| due.min(until));
            select! {
                // A job takes precedence over the timeout.
                biased;
                () = changed => (),
                () = sleep(wake.since(now)) => (),
            }
        }
    }

    async fn keep(&self, delivery: &Delivery) -> Result<bool, ServiceError> {
        Ok(self.hide(delivery, self.visibility))
    }

    async fn finish(&self, delivery: &Delivery) -> Result<bool, ServiceError> {
        let jobs = &mut *self.jobs();
        let is_last = jobs.uncover(delivery);
        if is_last {
            jobs.bodies.remove(&delivery.id);
        }
        Ok(is_last)
    }

    async fn give_back(&self, delivery: &Delivery, delay: Duration) -> Result<bool, ServiceError> {
        Ok(self.hide(delivery, delay))
    }

    async fn count(&self) -> Result<u64, ServiceError> {
        Ok(self.jobs().bodies.len() as u64)
    }

    fn visibility(&self) -> Duration {
        self.visibility
    }
}
