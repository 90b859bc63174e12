//! The settings of an exporter.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{InvalidInput, LeaseOptions};

use crate::collect::BucketSource;
use crate::dead_letters::DeadLetters;
use crate::event::Event;
use crate::exporter::Exporter;
use crate::partition::{PartitionKey, Partitioner};
use crate::sink::Retries;

impl Exporter {
    /// Collects closed buckets into the buffer at the start of each job. If the collection fails,
    /// the job still sends pending events, and reports the error in
    /// [`source_error`](crate::Exported::source_error).
    #[must_use]
    pub fn with_source(mut self, source: BucketSource) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Moves to `dead_letters` the events that are too large, refused or given up. Without dead
    /// letters, the buffer [sets them aside](crate::EventBuffer::set_aside) until an operator
    /// [deletes](crate::Operator::delete_aside) them. In both cases, no event is lost, and no event
    /// blocks the others.
    #[must_use]
    pub fn with_dead_letters(mut self, dead_letters: Arc<dyn DeadLetters>) -> Self {
        self.dead_letters = Some(dead_letters);
        self
    }

    /// Sets how failed records and requests are retried.
    #[must_use]
    pub fn with_retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// Sets the timeout of a request to the sink, 1 ms to 1 hour. A longer request counts as
    /// unavailable, so a sink that hangs does not keep the lease. The default is 30 s, several
    /// times as long as the largest request takes over a slow line.
    ///
    /// # Errors
    ///
    /// Fails if `limit` is out of range.
    pub fn with_put_limit(mut self, limit: Duration) -> Result<Self, InvalidInput> {
        if !(Duration::from_millis(1)..=Duration::from_secs(60 * 60)).contains(&limit) {
            return Err(InvalidInput::new(format!(
                "limit {limit:?} is out of range: 1 ms to an hour"
            )));
        }
        self.put_limit = limit;
        Ok(self)
    }

    /// Gives up an event that failed in `exports` exports, 1 or more, in which the sink took other
    /// events. The next export sends the event in a record of its own. If the event fails again,
    /// the event goes to the [dead letters](Self::with_dead_letters). The default is 60: an hour
    /// with one export per minute, longer than a shard is throttled. Each process counts its own
    /// exports.
    #[must_use]
    pub fn with_max_failures(mut self, exports: u32) -> Self {
        self.max_failures = exports.max(1);
        self
    }

    /// Sets how long the current job may run after [`run_jobs`](Self::run_jobs) is stopped. The
    /// default is 30 s, as for a scheduler. A dropped job releases its lease, and the queue
    /// delivers the job again.
    #[must_use]
    pub fn with_stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = grace;
        self
    }

    /// Sets how many events must be pending before a job sends. The default is 1. Receivers that
    /// process whole records may need more. A flush always sends. A job also sends if the intake is
    /// stopped, if the buffer is full, or if the oldest event has [waited
    /// long](Self::with_max_wait).
    #[must_use]
    pub fn with_min_per_job(mut self, events: u64) -> Self {
        self.min_per_job = events;
        self
    }

    /// Sets how long fewer events than the [minimum](Self::with_min_per_job) wait, 1 s to 1 day. A
    /// job sends them once the oldest of them is this old. So an event waits at most for `wait`,
    /// and then for the next job. The default is 5 minutes, as the buffering interval of Firehose
    /// (`BufferingHints` in the API reference).
    ///
    /// The buffer measures the age: see [`EventBuffer::oldest_age`](crate::EventBuffer::oldest_age).
    /// In Redis, the age is by the server's clock. If this clock steps back, the events wait longer
    /// by the length of the step.
    ///
    /// # Errors
    ///
    /// Fails if `wait` is out of range.
    pub fn with_max_wait(mut self, wait: Duration) -> Result<Self, InvalidInput> {
        let day = Duration::from_secs(24 * 60 * 60);
        if !(Duration::from_secs(1)..=day).contains(&wait) {
            return Err(InvalidInput::new(format!("wait {wait:?} is out of range: 1 s to a day")));
        }
        self.max_wait = wait;
        Ok(self)
    }

    /// Sets the partition key of each event. The default is the id of a record's first event, so
    /// records spread over all shards. With `key`, all events of a key go to the same shard, and a
    /// record has events of one key only. So many keys with few events each make many small records.
    ///
    /// For an event without a key of its own, `key` returns `None`. Such events share records, as by
    /// default. `key` must depend on the event only: then a repeated event goes to the same shard.
    ///
    /// In a request, the records of a key have the order of their events. If a record fails, later
    /// records of its key may arrive before it. A sink with [`Limits::FIREHOSE`] has no partition
    /// keys, and gets the same records as without `key`.
    ///
    /// # Examples
    ///
    /// ```
    /// use lease_export::{Exporter, PartitionKey};
    /// use serde_json::Value;
    ///
    /// /// Sends all orders of a customer to one shard.
    /// fn by_customer(exporter: Exporter) -> Exporter {
    ///     exporter.with_partition_key(|event| {
    ///         let order: Value = serde_json::from_str(event.line()).ok()?;
    ///         PartitionKey::new(order.get("customer")?.as_str()?).ok()
    ///     })
    /// }
    /// # drop(by_customer as fn(_) -> _);
    /// ```
    ///
    /// [`Limits::FIREHOSE`]: crate::Limits::FIREHOSE
    #[must_use]
    pub fn with_partition_key(
        mut self,
        key: impl Fn(&Event) -> Option<PartitionKey> + Send + Sync + 'static,
    ) -> Self {
        self.partitioner = Partitioner::new(key);
        self
    }

    /// Sets how many events one read returns, 1 or more. The default is 5,000. A read also ends at
    /// the size of a batch, which bounds memory.
    #[must_use]
    pub fn with_events_at_once(mut self, events: usize) -> Self {
        self.events_at_once = events.max(1);
        self
    }

    /// Sets how long the lease is reserved for a job in the queue, 100 ms to 1 day. The default is
    /// 6 minutes. A job that waits longer obtains the lease anew. If a process crashes between
    /// obtaining the lease and enqueueing its job, no process can export for `wait`.
    ///
    /// # Errors
    ///
    /// Fails if `wait` is out of range.
    pub fn with_hand_over_wait(mut self, wait: Duration) -> Result<Self, InvalidInput> {
        if !(LeaseOptions::MIN_TTL..=LeaseOptions::MAX_TTL).contains(&wait) {
            return Err(InvalidInput::new(format!(
                "wait {wait:?} is out of range: 100 ms to a day"
            )));
        }
        self.hand_over_wait = wait;
        Ok(self)
    }
}
