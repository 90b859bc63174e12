//! The task that receives the messages for all watches of a server, and subscribes to their channels.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lease_core::store::{BootClock, Change, Clock, Moment};
use redis::RedisResult;
use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::debug;

use crate::connection::connector::Connector;
use crate::connection::watches::feed::{Feed, FeedEvent, next};
use crate::connection::watches::grants::Grants;
use crate::error::ServerFault;

#[derive(Debug)]
pub(super) enum ListenerCommand {
    Watch {
        channel: String,
        id: u64,
        watch: NewWatch,
    },
    Unwatch {
        channel: String,
        id: u64,
    },
    /// The server that executes the commands has no subscription of this client.
    Reconnect,
}

#[derive(Debug)]
pub(super) struct NewWatch {
    pub(super) registered: oneshot::Sender<Result<(), ServerFault>>,
    /// `None` for the channel of grants, which has separate receivers.
    pub(super) notify: Option<mpsc::UnboundedSender<Change>>,
}

pub(super) struct Listener {
    server: Arc<str>,
    connector: Arc<Connector>,
    limit: Duration,
    channels: HashMap<String, Channel>,
    feed: Option<Feed>,
    connected_at: Moment,
    subscribing: FuturesUnordered<BoxFuture<'static, (String, RedisResult<()>)>>,
    grants: Arc<Grants>,
}

#[derive(Default)]
struct Channel {
    confirmed: bool,
    waiting: Vec<(u64, mpsc::UnboundedSender<Change>)>,
    registering: Vec<oneshot::Sender<Result<(), ServerFault>>>,
    /// The number of sweeps since the last watch. A woken waiter that finds the key held soon watches again,
    /// so the channel stays subscribed for a moment. The moment is short, because releases count subscribers.
    idle: u32,
}

impl Channel {
    fn notify_waiters(&self, change: Change) {
        for (_, notify) in &self.waiting {
            let _ = notify.send(change);
        }
    }
}

impl Listener {
    pub(super) fn new(
        server: Arc<str>,
        connector: Arc<Connector>,
        limit: Duration,
        grants: Arc<Grants>,
    ) -> Self {
        let (channels, subscribing) = (HashMap::new(), FuturesUnordered::new());
        let (feed, connected_at) = (None, BootClock::new().now());
        Self { server, connector, limit, channels, feed, connected_at, subscribing, grants }
    }

    pub(super) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<ListenerCommand>) {
        let (mut sweep, mut check) = (interval(SWEEP), interval(CHECK));
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            select! {
                biased;
                event = next(&mut self.feed) => match event {
                    Some(FeedEvent::Message(channel, text)) if channel != self.grants.channel() => {
                        self.notify_waiters(&channel, change_in(&text));
                    }
                    Some(FeedEvent::Message(_, grant)) => self.grants.deliver(&grant),
                    Some(FeedEvent::Unsubscribed(channel)) => self.drop_channel(&channel),
                    Some(FeedEvent::Interrupted) => self.wake_all(),
                    None => self.disconnect("closed, or the master was replaced"),
                },
                Some((channel, result)) = self.subscribing.next() => self.confirm(&channel, result),
                command = commands.recv() => match command {
                    Some(ListenerCommand::Watch { channel, id, watch }) => {
                        self.watch(channel, id, watch).await;
                    }
                    Some(ListenerCommand::Unwatch { channel, id }) => self.unwatch(&channel, id),
                    Some(ListenerCommand::Reconnect) => self.reconnect(),
                    // The store and all its watches were dropped.
                    None => return,
                },
                _ = sweep.tick() => self.sweep().await,
                _ = check.tick() => self.send_in_time(&[]).await,
            }
        }
    }

    async fn watch(&mut self, name: String, id: u64, watch: NewWatch) {
        // The caller may have timed out while the server hung.
        if watch.registered.is_closed() {
            return;
        }
        if self.feed.is_none() {
            match self.connect().await {
                Ok(feed) => {
                    (self.feed, self.connected_at) = (Some(feed), BootClock::new().now());
                }
                Err(fault) => {
                    drop(watch.registered.send(Err(fault)));
                    return;
                }
            }
        }
        let Some(feed) = &self.feed else { return };
        let subscribed = self.channels.contains_key(&name);
        let channel = self.channels.entry(name.clone()).or_default();
        channel.idle = 0;
        channel.waiting.extend(watch.notify.map(|notify| (id, notify)));
        if channel.confirmed {
            drop(watch.registered.send(Ok(())));
            return;
        }
        channel.registering.push(watch.registered);
        if !subscribed {
            let mut control = feed.control.clone();
            let limit = self.limit;
            self.subscribing.push(
                async move {
                    let subscribed = timeout(limit, control.subscribe(&name)).await;
                    (name, subscribed.unwrap_or_else(|_| Err(timed_out())))
                }
                .boxed(),
            );
        }
    }

    async fn connect(&mut self) -> Result<Feed, ServerFault> {
        // A connection takes several round trips, so this limit is longer than the limit of one request.
        let limit = self.limit.max(MIN_CONNECT_LIMIT);
        match timeout(limit, self.connector.subscriber(&self.server)).await {
            Ok(Ok(subscriber)) => Ok(Feed::new(subscriber)),
            Ok(Err(fault)) => Err(fault),
            Err(_elapsed) => Err(ServerFault::late(&self.server, limit)),
        }
    }

    fn confirm(&mut self, name: &str, result: RedisResult<()>) {
        match result {
            Ok(()) => {
                if let Some(channel) = self.channels.get_mut(name) {
                    channel.confirmed = true;
                    for registered in channel.registering.drain(..) {
                        drop(registered.send(Ok(())));
                    }
                }
            }
            Err(error) => {
                let fault = ServerFault::from_node_of_cluster(&self.server, &error);
                if name == self.grants.channel() {
                    self.grants.missed();
                }
                for registered in
                    self.channels.remove(name).into_iter().flat_map(|it| it.registering)
                {
                    drop(registered.send(Err(fault.clone())));
                }
            }
        }
    }

    fn notify_waiters(&mut self, name: &str, change: Change) {
        if let Some(channel) = self.channels.get(name) {
            channel.notify_waiters(change);
        }
    }

    fn drop_channel(&mut self, name: &str) {
        if self.channels.get(name).is_some_and(|channel| channel.confirmed) {
            self.channels.remove(name);
            if name == self.grants.channel() {
                self.grants.missed();
            }
        }
    }

    fn wake_all(&mut self) {
        self.grants.missed();
        for channel in self.channels.values() {
            channel.notify_waiters(Change::Freed { watches: None });
        }
    }

    /// Wakes all waiters, since messages may have been missed.
    fn disconnect(&mut self, reason: &str) {
        debug!(server = %self.server, reason, "connection for watches closed");
        self.feed = None;
        self.subscribing.clear();
        self.channels.clear();
        self.grants.missed();
    }

    /// Several waiters may report the same connection, and the next connection may lead to the same server.
    fn reconnect(&mut self) {
        if self.feed.is_some() && BootClock::new().now().since(self.connected_at) >= MIN_AGE {
            self.disconnect("on another server than the commands");
        }
    }

    fn unwatch(&mut self, name: &str, id: u64) {
        if let Some(channel) = self.channels.get_mut(name) {
            channel.waiting.retain(|(one, _)| *one != id);
        }
    }

    async fn sweep(&mut self) {
        let mut idle = Vec::new();
        self.channels.retain(|name, channel| {
            let receives_grants = name == self.grants.channel() && self.grants.has_listeners();
            if channel.confirmed && channel.waiting.is_empty() && !receives_grants {
                channel.idle += 1;
                if channel.idle > IDLE_SWEEPS {
                    idle.push(name.clone());
                    return false;
                }
            }
            true
        });
        if !idle.is_empty() {
            self.send_in_time(&idle).await;
        }
    }

    async fn send_in_time(&mut self, idle: &[String]) {
        let Some(feed) = &self.feed else { return };
        let mut control = feed.control.clone();
        let limit = self.limit.max(CHECK);
        match timeout(limit, control.unsubscribe_and_ping(idle)).await {
            Ok(Ok(())) => (),
            Ok(Err(error)) => self.disconnect(&error.to_string()),
            Err(_elapsed) => self.disconnect("no answer"),
        }
    }
}

/// Returns the change in a message. The number of subscribers is empty if the user may not count them.
fn change_in(message: &[u8]) -> Change {
    if message == b"taken" {
        return Change::Taken;
    }
    let watches = std::str::from_utf8(message).ok().and_then(|count| count.parse().ok());
    Change::Freed { watches }
}

fn timed_out() -> redis::RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

const MIN_CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// A younger connection is not closed because of a missing subscription.
const MIN_AGE: Duration = Duration::from_secs(1);

const CHECK: Duration = Duration::from_secs(5);

const SWEEP: Duration = Duration::from_millis(500);

/// A channel without a watch is unsubscribed after 0.5 to 1 s.
const IDLE_SWEEPS: u32 = 1;
