//! Wrappers that print each step of an export, and kill the process at a chosen step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::FencingToken;
use lease_export::queue::{Delivery, JobId, JobQueue};
use lease_export::{
    Appended, BufferState, Capacity, Event, EventBuffer, Fenced, Intake, Limits, Pending, Position,
    Put, ReadLimit, Record, ServiceError, ServiceErrorKind, Sink,
};
use redis::aio::MultiplexedConnection;
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::OnceCell;

#[derive(Debug)]
pub(crate) struct Steps {
    last: String,
    times: u64,
    printed: AtomicU64,
}

impl Steps {
    /// Kills the process at the `times`th occurrence of the step `last`, or never if `times` is 0.
    pub(crate) fn dying_at(last: String, times: u64) -> Self {
        Self { last, times, printed: AtomicU64::new(0) }
    }

    fn take(&self, what: &str) {
        println!("{what}");
        if what == self.last && self.printed.fetch_add(1, Ordering::SeqCst) + 1 == self.times {
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }
}

#[derive(Debug)]
pub(crate) struct TracedStep<T> {
    inner: T,
    steps: Arc<Steps>,
}

impl<T: Sync> TracedStep<T> {
    pub(crate) fn new(inner: T, steps: &Arc<Steps>) -> Self {
        Self { inner, steps: Arc::clone(steps) }
    }

    async fn step<A>(&self, what: &str, call: impl Future<Output = A> + Send) -> A {
        self.steps.take(&format!("before {what}"));
        let answer = call.await;
        self.steps.take(&format!("after {what}"));
        answer
    }
}

#[async_trait]
impl<T: EventBuffer> EventBuffer for TracedStep<T> {
    async fn append(&self, events: &[Event]) -> Result<Appended, ServiceError> {
        self.inner.append(events).await
    }

    async fn read(
        &self,
        token: FencingToken,
        after: Option<Position>,
        most: ReadLimit,
    ) -> Result<Fenced<Vec<Pending>>, ServiceError> {
        self.step("read", self.inner.read(token, after, most)).await
    }

    async fn remove(
        &self,
        token: FencingToken,
        positions: &[Position],
    ) -> Result<Fenced<u64>, ServiceError> {
        self.step("remove", self.inner.remove(token, positions)).await
    }

    async fn set_aside(
        &self,
        token: FencingToken,
        positions: &[Position],
    ) -> Result<Fenced<u64>, ServiceError> {
        self.inner.set_aside(token, positions).await
    }

    async fn clear_aside(&self) -> Result<u64, ServiceError> {
        self.inner.clear_aside().await
    }

    async fn pending(&self) -> Result<u64, ServiceError> {
        self.inner.pending().await
    }

    async fn oldest_age(&self) -> Result<Option<Duration>, ServiceError> {
        self.inner.oldest_age().await
    }

    async fn state(&self) -> Result<BufferState, ServiceError> {
        self.inner.state().await
    }

    async fn set_intake(&self, intake: Intake) -> Result<Intake, ServiceError> {
        self.inner.set_intake(intake).await
    }

    async fn resume_intake(&self) -> Result<bool, ServiceError> {
        self.inner.resume_intake().await
    }

    async fn clear(&self) -> Result<Option<u64>, ServiceError> {
        self.inner.clear().await
    }

    fn capacity(&self) -> Capacity {
        self.inner.capacity()
    }
}

#[async_trait]
impl<T: JobQueue> JobQueue for TracedStep<T> {
    async fn enqueue(&self, body: &str) -> Result<JobId, ServiceError> {
        self.inner.enqueue(body).await
    }

    async fn replace(&self, body: &str) -> Result<JobId, ServiceError> {
        self.step("enqueue", self.inner.replace(body)).await
    }

    async fn take(&self, patience: Duration) -> Result<Option<Delivery>, ServiceError> {
        let taken = self.inner.take(patience).await;
        // Most polls find no job, and do not count as steps.
        if matches!(taken, Ok(Some(_))) {
            self.steps.take("after take");
        }
        taken
    }

    async fn keep(&self, delivery: &Delivery) -> Result<bool, ServiceError> {
        self.step("keep", self.inner.keep(delivery)).await
    }

    async fn finish(&self, delivery: &Delivery) -> Result<bool, ServiceError> {
        self.step("finish", self.inner.finish(delivery)).await
    }

    async fn give_back(&self, delivery: &Delivery, delay: Duration) -> Result<bool, ServiceError> {
        self.inner.give_back(delivery, delay).await
    }

    async fn count(&self) -> Result<u64, ServiceError> {
        self.inner.count().await
    }

    fn visibility(&self) -> Duration {
        self.inner.visibility()
    }
}

#[async_trait]
impl<T: Sink> Sink for TracedStep<T> {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    async fn put(&self, token: FencingToken, records: &[Record]) -> Result<Vec<Put>, ServiceError> {
        self.step("put", self.inner.put(token, records)).await
    }
}

/// The test reads the list in the order of arrival.
#[derive(Debug)]
pub(crate) struct ListSink {
    url: String,
    name: String,
    connection: OnceCell<MultiplexedConnection>,
}

impl ListSink {
    pub(crate) fn new(url: &str, name: String) -> Self {
        Self { url: url.to_owned(), name, connection: OnceCell::new() }
    }

    async fn connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        let client = redis::Client::open(self.url.as_str())?;
        client.get_multiplexed_async_connection().await
    }
}

#[async_trait]
impl Sink for ListSink {
    fn limits(&self) -> Limits {
        // Small records, so that an export has many steps.
        let limits = Limits::FIREHOSE.with_events_per_record(5);
        let limits = limits.and_then(|limits| limits.with_records_per_batch(3));
        limits.expect("limits in range")
    }

    async fn put(&self, token: FencingToken, records: &[Record]) -> Result<Vec<Put>, ServiceError> {
        let fault = |error: redis::RedisError| {
            ServiceError::new("sink", ServiceErrorKind::Unavailable, error)
        };
        let mut connection =
            self.connection.get_or_try_init(|| self.connect()).await.map_err(fault)?.clone();
        let mut push = redis::cmd("RPUSH");
        push.arg("sink");
        for record in records {
            let ids: Vec<_> = record.ids().map(ToString::to_string).collect();
            push.arg(format!("{token} {} {}", self.name, ids.join(" ")));
        }
        push.query_async::<()>(&mut connection).await.map_err(fault)?;
        Ok(vec![Put::Taken; records.len()])
    }
}
