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

#[derive(Debug)]
pub(super) struct Subscription {
    stream: SimStream,
    shard: ShardId,
    subscribed: Subscribed,
    next: Number,
    given: Bytes,
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

    async fn wait(&mut self) -> Result<Option<Fetched>, SourceError> {
        let ends = Time(self.subscribed.at.0 + LIFETIME);
        loop {
            // Changes are marked as seen before the read, so that each later change wakes this task.
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

/// This limit is in the documentation of
/// [`SubscribeToShard`](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html).
const LIFETIME: Duration = Duration::from_mins(5);

/// Kinesis pushes about every five seconds, even without records.
const LONGEST_SILENCE: Duration = Duration::from_secs(5);
