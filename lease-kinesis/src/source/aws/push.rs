//! Enhanced fan-out: the pushes of a subscription.

use std::time::Duration;

use aws_sdk_kinesis::primitives::event_stream::EventReceiver;
use aws_sdk_kinesis::types::error::SubscribeToShardEventStreamError;
use aws_sdk_kinesis::types::{SubscribeToShardEvent, SubscribeToShardEventStream};
use futures_util::stream::{self, BoxStream};
use tokio::time::timeout;

use super::convert;
use super::requests::Requests;
use crate::source::{Fetched, ShardIterator, SourceError, SourceErrorKind};

pub(super) const OPERATION: &str = "SubscribeToShard";

pub(super) type Events =
    EventReceiver<SubscribeToShardEventStream, SubscribeToShardEventStreamError>;

#[derive(Debug)]
pub(super) struct Subscription {
    requests: Requests,
    events: Events,
    over: bool,
}

impl Subscription {
    pub(super) fn new(requests: Requests, events: Events) -> Self {
        Self { requests, events, over: false }
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
        let pushed = self.receive().await.transpose()?;
        self.over = pushed.as_ref().map_or(true, |fetched| fetched.next.is_none());
        Some(pushed)
    }

    async fn receive(&mut self) -> Result<Option<Fetched>, SourceError> {
        let operation = self.requests.operation(OPERATION);
        loop {
            let Ok(event) = timeout(PUSH_TIMEOUT, self.events.recv()).await else {
                let advice = format!("nothing pushed for {PUSH_TIMEOUT:?}");
                return Err(operation.error(SourceErrorKind::Unavailable, &advice));
            };
            match event.map_err(|error| operation.failed(error))? {
                Some(SubscribeToShardEventStream::SubscribeToShardEvent(event)) => {
                    return self.requests.valid(OPERATION, fetched(event)).map(Some);
                }
                Some(_) => (),
                None => return Ok(None),
            }
        }
    }
}

fn fetched(
    event: SubscribeToShardEvent,
) -> Result<Fetched, Box<dyn std::error::Error + Send + Sync>> {
    let children = convert::all(event.child_shards.unwrap_or_default(), convert::child)?;
    let records = convert::all(event.records, convert::record)?;
    let next = event.continuation_sequence_number;
    // At the end of a shard, Kinesis sends no number. An emulator sends a number, and the children with each
    // event of a closed shard.
    let ended = next.is_empty() || (records.is_empty() && !children.is_empty());
    Ok(Fetched {
        records,
        next: (!ended).then(|| ShardIterator::new(next)),
        behind: Duration::from_millis(event.millis_behind_latest.try_into().unwrap_or(0)),
        children: if ended { children } else { Vec::new() },
    })
}

/// Kinesis pushes every few seconds, even without records.
const PUSH_TIMEOUT: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use aws_sdk_kinesis::types::{ChildShard, HashKeyRange, Record};

    use super::*;

    fn event() -> aws_sdk_kinesis::types::builders::SubscribeToShardEventBuilder {
        SubscribeToShardEvent::builder()
            .set_records(Some(Vec::new()))
            .continuation_sequence_number("7")
            .millis_behind_latest(0)
    }

    fn child() -> ChildShard {
        let hash_keys = HashKeyRange::builder().starting_hash_key("0").ending_hash_key("9");
        ChildShard::builder()
            .shard_id("shardId-000000000001")
            .parent_shards("shardId-000000000000")
            .hash_key_range(hash_keys.build().unwrap())
            .build()
            .unwrap()
    }

    #[test]
    fn event_without_number_is_end_of_shard() {
        let event = event().continuation_sequence_number("").child_shards(child());

        let fetched = fetched(event.build().unwrap()).unwrap();

        assert!(fetched.next.is_none());
        assert_eq!(fetched.children.len(), 1);
    }

    #[test]
    fn event_with_records_and_children_is_not_the_end() {
        let record = Record::builder().sequence_number("7").data(vec![1].into()).build().unwrap();
        let event = event().records(record).child_shards(child());

        let fetched = fetched(event.build().unwrap()).unwrap();

        assert!(fetched.next.is_some() && fetched.children.is_empty());
        assert_eq!(fetched.records.len(), 1);
    }
}
