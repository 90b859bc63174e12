//! Enhanced fan-out: what a subscription pushes.

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

/// One subscription to one shard.
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
        let asked = self.requests.asked(OPERATION);
        loop {
            let Ok(event) = timeout(LONGEST_SILENCE, self.events.recv()).await else {
                let advice = format!("nothing pushed for {LONGEST_SILENCE:?}");
                return Err(asked.told(SourceErrorKind::Unavailable, &advice));
            };
            match event.map_err(|error| asked.failed(error))? {
                Some(SubscribeToShardEventStream::SubscribeToShardEvent(event)) => {
                    return self.requests.sense(OPERATION, fetched(event)).map(Some);
                }
                // Of a kind that this version does not know.
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
    // At the end, Kinesis tells no number. An emulator tells one, and the children with every
    // event of a closed shard: then what is empty is the last.
    let ended = next.is_empty() || (records.is_empty() && !children.is_empty());
    Ok(Fetched {
        records,
        next: (!ended).then(|| ShardIterator::new(next)),
        behind: Duration::from_millis(event.millis_behind_latest.try_into().unwrap_or(0)),
        children: if ended { children } else { Vec::new() },
    })
}

/// Kinesis pushes every few seconds, also where there is nothing to tell: a connection that is
/// silent for so long is dead.
const LONGEST_SILENCE: Duration = Duration::from_mins(1);

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
    fn an_event_without_a_number_is_the_end() {
        let event = event().continuation_sequence_number("").child_shards(child());

        let fetched = fetched(event.build().unwrap()).unwrap();

        assert!(fetched.next.is_none());
        assert_eq!(fetched.children.len(), 1);
    }

    #[test]
    fn children_beside_records_and_a_number_are_not_the_end() {
        let record = Record::builder().sequence_number("7").data(vec![1].into()).build().unwrap();
        let event = event().records(record).child_shards(child());

        let fetched = fetched(event.build().unwrap()).unwrap();

        assert!(fetched.next.is_some() && fetched.children.is_empty());
        assert_eq!(fetched.records.len(), 1);
    }
}
