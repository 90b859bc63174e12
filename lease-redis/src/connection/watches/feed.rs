//! A subscriber's connection as a stream of events: `SUBSCRIBE`, or `SSUBSCRIBE` on a Cluster.

use std::future::pending;

use futures_util::StreamExt;
use futures_util::future::try_join_all;
use futures_util::stream::{self, BoxStream};
use redis::aio::{MultiplexedConnection, PubSubSink};
use redis::{PushInfo, PushKind, RedisResult, Value};

use crate::connection::connector::Subscriber;

pub(super) struct Feed {
    pub(super) control: SubscriberControl,
    events: BoxStream<'static, FeedEvent>,
}

#[derive(Clone)]
pub(super) enum SubscriberControl {
    PubSub(PubSubSink),
    Shard(MultiplexedConnection),
}

pub(super) enum FeedEvent {
    Message(String, Vec<u8>),
    /// This client unsubscribed, or the Cluster moved the slot.
    Unsubscribed(String),
    /// Messages may have been missed.
    Interrupted,
}

pub(super) async fn next(feed: &mut Option<Feed>) -> Option<FeedEvent> {
    match feed {
        Some(feed) => feed.events.next().await,
        None => pending().await,
    }
}

impl Feed {
    pub(super) fn new(subscriber: Subscriber) -> Self {
        match subscriber {
            Subscriber::PubSub(connection, watch) => {
                let (sink, messages) = connection.split();
                let events = messages.map(|message| {
                    let channel = message.get_channel::<String>();
                    let payload = message.get_payload_bytes().to_vec();
                    channel.map_or(FeedEvent::Interrupted, |channel| {
                        FeedEvent::Message(channel, payload)
                    })
                });
                let replaced = async move {
                    match watch {
                        Some(watch) => watch.replaced().await,
                        None => pending().await,
                    }
                };
                let events = events.take_until(replaced).boxed();
                Self { control: SubscriberControl::PubSub(sink), events }
            }
            Subscriber::Shard(connection, pushes) => {
                let pushes = stream::unfold(pushes, |mut pushes| async move {
                    loop {
                        let push = pushes.recv().await?;
                        match push.kind {
                            PushKind::Disconnection => return None,
                            PushKind::SMessage => {
                                let freed = |channel| FeedEvent::Message(channel, Vec::new());
                                return Some((event_of(&push, freed), pushes));
                            }
                            PushKind::SUnsubscribe => {
                                return Some((event_of(&push, FeedEvent::Unsubscribed), pushes));
                            }
                            _ => (),
                        }
                    }
                });
                Self { control: SubscriberControl::Shard(connection), events: pushes.boxed() }
            }
        }
    }
}

fn event_of(push: &PushInfo, event: impl FnOnce(String) -> FeedEvent) -> FeedEvent {
    match push.data.first() {
        Some(Value::BulkString(name)) => event(String::from_utf8_lossy(name).into_owned()),
        _ => FeedEvent::Interrupted,
    }
}

impl SubscriberControl {
    pub(super) async fn subscribe(&mut self, channel: &str) -> RedisResult<()> {
        match self {
            Self::PubSub(sink) => sink.subscribe(channel).await,
            Self::Shard(connection) => {
                let mut subscribe = redis::cmd("SSUBSCRIBE");
                subscribe.arg(channel).query_async::<Value>(connection).await.map(drop)
            }
        }
    }

    pub(super) async fn unsubscribe_and_ping(&mut self, idle: &[String]) -> RedisResult<()> {
        match self {
            Self::PubSub(sink) => {
                if !idle.is_empty() {
                    sink.unsubscribe(idle).await?;
                }
                sink.ping::<Value>().await.map(drop)
            }
            Self::Shard(connection) => {
                // The slots of the channels differ, so each channel needs its own request.
                let each = idle.iter().map(|channel| {
                    let mut connection = connection.clone();
                    let leave = redis::cmd("SUNSUBSCRIBE").arg(channel).to_owned();
                    async move { leave.query_async::<Value>(&mut connection).await }
                });
                try_join_all(each.collect::<Vec<_>>()).await?;
                redis::cmd("PING").query_async::<Value>(connection).await.map(drop)
            }
        }
    }
}
