//! Enhanced fan-out of a simulated stream.

use std::time::Duration;

use futures_util::stream::{self, BoxStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::SimStream;
use super::limit::Bytes;
use super::number::Number;
use super::shard::Subscribed;
use super::time::Time;
use crate::shard::ShardId;
use crate::source::{Fetched, ShardIterator, SourceError};

/// One subscription to one shard.
#[derive(Debug)]
pub(super) struct Subscription {
    stream: SimStream,
    shard: ShardId,
    subscribed: Subscribed,
    next: Number,
    given: Bytes,
    /// The time of the last push.
    pushed: Time,
    changed: watch::Receiver<()>,
    over: bool,
}

impl Subscription {
    pub(super) fn new(
        stream: SimStream,
        shard: ShardId,
        subscribed: Subscribed,
        begin: Number,
    ) -> Self {
        let changed = stream.shared.changed.subscribe();
        Self {
            stream,
            shard,
            subscribed,
            next: begin,
            given: Bytes::default(),
            pushed: subscribed.at,
            changed,
            over: false,
        }
    }

    pub(super) fn pushes(self) -> BoxStream<'static, Result<Fetched, SourceError>> {
        Box::pin(stream::unfold(self, async |mut subscription| {
            let pushed = subscription.push().await?;
            Some((pushed, subscription))
        }))
    }

    async fn push(&mut self) -> Option<Result<Fetched, SourceError>> {
        if self.over {
            return None;
        }
        let pushed = match self.wait().await {
            Ok(fetched) => fetched?,
            Err(error) => {
                self.over = true;
                return Some(Err(error));
            }
        };
        self.over = pushed.next.is_none();
        Some(Ok(pushed))
    }

    /// Returns the next push; `None` if the subscription has ended.
    async fn wait(&mut self) -> Result<Option<Fetched>, SourceError> {
        let ends = Time(self.subscribed.at.0 + LIFETIME);
        loop {
            // Marks earlier changes as seen, and then reads. So each later change wakes this task.
            self.changed.borrow_and_update();
            let now = self.stream.now();
            if now >= ends {
                return Ok(None);
            }
            let (shard, consumer) = (&self.shard, &self.stream.consumer);
            let seen = self.stream.lock().push(shard, consumer, self.subscribed, self.next, now)?;
            let Some((mut fetched, next, bytes)) = seen else { return Ok(None) };
            fetched.next = fetched.next.map(|_| ShardIterator::new(next.sequence().as_str()));
            let quiet = fetched.records.is_empty() && fetched.next.is_some();
            let rest = (self.pushed.0 + LONGEST_SILENCE).saturating_sub(now.0);
            if quiet && !rest.is_zero() {
                let wait = rest.min(ends.since(now));
                // After a change or a time-out, the loop reads the stream again.
                drop(timeout(wait, self.changed.changed()).await);
                continue;
            }
            self.next = next;
            self.stream.faults.inject().await?;
            let paid_off = self.given.give(now.0, bytes);
            self.pushed = self.stream.now();
            sleep(paid_off.saturating_sub(self.pushed.0)).await;
            return Ok(Some(fetched));
        }
    }
}

/// The maximum length of a subscription, from the documentation of
/// [`SubscribeToShard`](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html).
const LIFETIME: Duration = Duration::from_mins(5);

/// The longest time between two pushes. Without records, Kinesis also pushes about every five seconds.
const LONGEST_SILENCE: Duration = Duration::from_secs(5);
