//! Watches: they wake waiters when a key is freed. One connection per server serves all watches.
//!
//! [`watched`] knows the channels that callers watch now. [`grants`] delivers the grants of queued claims.

pub(crate) mod grants;
pub(crate) mod watched;

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, try_join_all};
use futures_util::stream::{BoxStream, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use lease_core::store::Change;
use parking_lot::Mutex;
use redis::aio::{MultiplexedConnection, PubSubSink};
use redis::{PushInfo, PushKind, RedisResult, Value};
use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::debug;

use crate::connection::connector::{Connector, Subscriber};
use crate::connection::watches::grants::Grants;
use crate::connection::watches::watched::WatchedEntry;
use crate::error::ServerFault;

/// The watches of one server.
#[derive(Debug)]
pub(crate) struct Watches {
    server: Arc<str>,
    connector: Arc<Connector>,
    limit: Duration,
    /// The command channel of the listener task, which starts with the first watch.
    listener: Mutex<Option<mpsc::UnboundedSender<ListenerCommand>>>,
    last_id: AtomicU64,
    grants: Arc<Grants>,
}

/// Receives the messages on its channel, until messages may have been missed.
#[derive(Debug)]
pub(crate) struct Watch {
    changes: mpsc::UnboundedReceiver<Change>,
    _guard: WatchGuard,
    watched: Option<WatchedEntry>,
}

#[derive(Debug)]
enum ListenerCommand {
    Watch { channel: String, id: u64, watch: NewWatch },
    Unwatch { channel: String, id: u64 },
}

#[derive(Debug)]
struct NewWatch {
    registered: oneshot::Sender<Result<(), ServerFault>>,
    /// `None` for the channel of grants, which has receivers of its own.
    notify: Option<mpsc::UnboundedSender<Change>>,
}

/// Removes its watch from the listener when it is dropped.
#[derive(Debug)]
struct WatchGuard {
    listener: mpsc::UnboundedSender<ListenerCommand>,
    channel: String,
    id: u64,
}

impl Watches {
    pub(crate) fn new(
        server: Arc<str>,
        connector: Arc<Connector>,
        limit: Duration,
        grants: Arc<Grants>,
    ) -> Self {
        let (listener, last_id) = (Mutex::default(), AtomicU64::new(0));
        Self { server, connector, limit, listener, last_id, grants }
    }

    pub(crate) fn grants(&self) -> &Arc<Grants> {
        &self.grants
    }

    /// Subscribes to the channel of grants. Grants that are published after this returns are delivered.
    pub(crate) async fn subscribe_to_grants(&self) -> Result<(), ServerFault> {
        let (registered, is_registered) = oneshot::channel();
        let watch = NewWatch { registered, notify: None };
        let channel = self.grants.channel().to_owned();
        drop(self.listener().send(ListenerCommand::Watch { channel, id: 0, watch }));
        self.registered(is_registered).await
    }

    /// Waits until the server has confirmed a subscription.
    async fn registered(
        &self,
        is_registered: oneshot::Receiver<Result<(), ServerFault>>,
    ) -> Result<(), ServerFault> {
        match timeout(self.limit, is_registered).await {
            Ok(Ok(registered)) => registered,
            Ok(Err(_)) | Err(_) => Err(ServerFault::late(&self.server, self.limit)),
        }
    }

    /// Watches `channel`. A message that is published after this returns wakes the watch.
    pub(crate) async fn watch(&self, channel: String) -> Result<Watch, ServerFault> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed);
        let (registered, is_registered) = oneshot::channel();
        let (notify, changes) = mpsc::unbounded_channel();
        let watch = NewWatch { registered, notify: Some(notify) };
        let listener = self.listener();
        let guard = WatchGuard { listener: listener.clone(), channel: channel.clone(), id };
        // If the listener has ended, it has dropped `registered`: the error is returned below.
        drop(listener.send(ListenerCommand::Watch { channel, id, watch }));
        self.registered(is_registered).await?;
        Ok(Watch { changes, _guard: guard, watched: None })
    }

    fn listener(&self) -> mpsc::UnboundedSender<ListenerCommand> {
        let mut listener = self.listener.lock();
        match &*listener {
            Some(sender) if !sender.is_closed() => sender.clone(),
            _ => {
                let (sender, commands) = mpsc::unbounded_channel();
                let new = Listener {
                    server: Arc::clone(&self.server),
                    connector: Arc::clone(&self.connector),
                    limit: self.limit,
                    channels: HashMap::new(),
                    feed: None,
                    subscribing: FuturesUnordered::new(),
                    grants: Arc::clone(&self.grants),
                };
                tokio::spawn(new.run(commands));
                *listener = Some(sender.clone());
                sender
            }
        }
    }
}

impl Watch {
    pub(crate) fn with_entry(self, entry: WatchedEntry) -> Self {
        Self { watched: Some(entry), ..self }
    }

    /// Whether a claim has marked the key since the watch began.
    pub(crate) fn is_marked(&self) -> bool {
        self.watched.as_ref().is_some_and(WatchedEntry::is_marked)
    }

    /// The next message. `None` if the listener dropped the watch: messages may have been missed.
    pub(crate) async fn next(&mut self) -> Option<Change> {
        self.changes.recv().await
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let (channel, id) = (std::mem::take(&mut self.channel), self.id);
        drop(self.listener.send(ListenerCommand::Unwatch { channel, id }));
    }
}

/// The task that receives messages for all watches of a server.
struct Listener {
    server: Arc<str>,
    connector: Arc<Connector>,
    limit: Duration,
    channels: HashMap<String, Channel>,
    feed: Option<Feed>,
    /// Subscriptions without an answer yet.
    subscribing: FuturesUnordered<BoxFuture<'static, (String, RedisResult<()>)>>,
    grants: Arc<Grants>,
}

#[derive(Default)]
struct Channel {
    confirmed: bool,
    waiting: Vec<(u64, mpsc::UnboundedSender<Change>)>,
    registering: Vec<oneshot::Sender<Result<(), ServerFault>>>,
    /// The number of sweeps since the last watch. A channel stays subscribed for a moment, since a woken
    /// waiter that finds the key held watches again. Not for long: a release counts the subscribers.
    idle: u32,
}

impl Channel {
    fn tell(&self, change: Change) {
        for (_, notify) in &self.waiting {
            // Fails if the watch was dropped in the meantime.
            let _ = notify.send(change);
        }
    }
}

/// An open subscriber and its messages.
struct Feed {
    control: SubscriberControl,
    events: BoxStream<'static, FeedEvent>,
}

#[derive(Clone)]
enum SubscriberControl {
    PubSub(PubSubSink),
    Shard(MultiplexedConnection),
}

enum FeedEvent {
    /// A message on a channel.
    Message(String, Vec<u8>),
    /// A channel is no longer subscribed: this client unsubscribed, or the Cluster moved its slot.
    Unsubscribed(String),
    /// The connection was interrupted: messages may have been missed.
    Interrupted,
}

impl Listener {
    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<ListenerCommand>) {
        let (mut sweep, mut check) = (interval(SWEEP), interval(CHECK));
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            select! {
                // Messages come first, since waiters depend on them.
                biased;
                event = next(&mut self.feed) => match event {
                    Some(FeedEvent::Message(channel, text)) if channel != self.grants.channel() => {
                        self.tell(&channel, change_in(&text));
                    }
                    Some(FeedEvent::Message(_, grant)) => self.grants.deliver(&grant),
                    Some(FeedEvent::Unsubscribed(channel)) => self.drop_channel(&channel),
                    Some(FeedEvent::Interrupted) => self.wake_all(),
                    None => self.disconnect("closed by the server"),
                },
                Some((channel, result)) = self.subscribing.next() => self.confirm(&channel, result),
                command = commands.recv() => match command {
                    Some(ListenerCommand::Watch { channel, id, watch }) => {
                        self.watch(channel, id, watch).await;
                    }
                    Some(ListenerCommand::Unwatch { channel, id }) => self.unwatch(&channel, id),
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
                Ok(feed) => self.feed = Some(feed),
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
        // Connecting takes several round trips, so its limit is longer than that of one request.
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

    fn tell(&mut self, name: &str, change: Change) {
        if let Some(channel) = self.channels.get(name) {
            channel.tell(change);
        }
    }

    /// Wakes the waiters of a channel that is no longer subscribed. The next watch subscribes again.
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
            channel.tell(Change::Freed { watches: None });
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

    fn unwatch(&mut self, name: &str, id: u64) {
        if let Some(channel) = self.channels.get_mut(name) {
            channel.waiting.retain(|(one, _)| *one != id);
        }
    }

    /// Unsubscribes from channels without waiters.
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

    /// Unsubscribes from the channels `idle`, and checks that the server still answers.
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

/// The next message. Never completes while there is no connection.
async fn next(feed: &mut Option<Feed>) -> Option<FeedEvent> {
    match feed {
        Some(feed) => feed.events.next().await,
        None => pending().await,
    }
}

impl Feed {
    fn new(subscriber: Subscriber) -> Self {
        match subscriber {
            Subscriber::PubSub(connection) => {
                let (sink, messages) = connection.split();
                let events = messages.map(|message| {
                    let channel = message.get_channel::<String>();
                    let payload = message.get_payload_bytes().to_vec();
                    channel.map_or(FeedEvent::Interrupted, |channel| {
                        FeedEvent::Message(channel, payload)
                    })
                });
                Self { control: SubscriberControl::PubSub(sink), events: events.boxed() }
            }
            Subscriber::Shard(connection, pushes) => {
                let pushes = futures_util::stream::unfold(pushes, |mut pushes| async move {
                    loop {
                        let push = pushes.recv().await?;
                        match push.kind {
                            PushKind::Disconnection => return None,
                            PushKind::SMessage => {
                                let freed = |channel| FeedEvent::Message(channel, Vec::new());
                                return Some((event_of(&push, freed), pushes));
                            }
                            // This client unsubscribed, or the slot moved.
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

/// The event of a push message, with the name of its channel.
fn event_of(push: &PushInfo, event: impl FnOnce(String) -> FeedEvent) -> FeedEvent {
    match push.data.first() {
        Some(Value::BulkString(name)) => event(String::from_utf8_lossy(name).into_owned()),
        _ => FeedEvent::Interrupted,
    }
}

impl SubscriberControl {
    async fn subscribe(&mut self, channel: &str) -> RedisResult<()> {
        match self {
            Self::PubSub(sink) => sink.subscribe(channel).await,
            Self::Shard(connection) => {
                let mut subscribe = redis::cmd("SSUBSCRIBE");
                subscribe.arg(channel).query_async::<Value>(connection).await.map(drop)
            }
        }
    }

    async fn unsubscribe_and_ping(&mut self, idle: &[String]) -> RedisResult<()> {
        match self {
            Self::PubSub(sink) => {
                if !idle.is_empty() {
                    sink.unsubscribe(idle).await?;
                }
                sink.ping::<Value>().await.map(drop)
            }
            Self::Shard(connection) => {
                // One request for each channel, since their slots differ. All are sent at once.
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

/// The change that a message tells. The number of subscribers is empty from a server that may not count them.
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

/// How often the connection is checked.
const CHECK: Duration = Duration::from_secs(5);

/// How often idle channels are unsubscribed.
const SWEEP: Duration = Duration::from_millis(500);

/// A channel is unsubscribed after 0.5 to 1 s without a watch.
const IDLE_SWEEPS: u32 = 1;
