//! Who waits for which key to be freed: one connection per server hears for all.

use std::collections::HashMap;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, try_join_all};
use futures_util::stream::{BoxStream, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use redis::aio::{MultiplexedConnection, PubSubSink};
use redis::{PushInfo, PushKind, RedisResult, Value};
use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::debug;

use crate::connection::{Connector, Subscriber};
use crate::error::Fault;

/// The watches of one server.
#[derive(Debug)]
pub(crate) struct Watches {
    server: Arc<str>,
    connector: Arc<Connector>,
    limit: Duration,
    /// To the task that hears; started with the first watch.
    listener: Mutex<Option<mpsc::UnboundedSender<Request>>>,
    last_id: AtomicU64,
}

/// Completes when its channel was heard, or nobody can tell any more whether it was.
#[derive(Debug)]
pub(crate) struct Watch {
    woken: oneshot::Receiver<()>,
    _leave: Leave,
}

#[derive(Debug)]
enum Request {
    Watch { channel: String, id: u64, watching: Watching },
    Leave { channel: String, id: u64 },
}

#[derive(Debug)]
struct Watching {
    registered: oneshot::Sender<Result<(), Fault>>,
    wake: oneshot::Sender<()>,
}

/// Takes its watch off the list when dropped.
#[derive(Debug)]
struct Leave {
    listener: mpsc::UnboundedSender<Request>,
    channel: String,
    id: u64,
}

impl Watches {
    pub(crate) fn new(server: Arc<str>, connector: Arc<Connector>, limit: Duration) -> Self {
        Self { server, connector, limit, listener: Mutex::default(), last_id: AtomicU64::new(0) }
    }

    /// Watches `channel`: what is published after this returns wakes the watch.
    pub(crate) async fn watch(&self, channel: String) -> Result<Watch, Fault> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed);
        let (registered, is_registered) = oneshot::channel();
        let (wake, woken) = oneshot::channel();
        let watching = Watching { registered, wake };
        let listener = self.listener();
        let leave = Leave { listener: listener.clone(), channel: channel.clone(), id };
        // A listener that has ended says so below, by dropping its end.
        drop(listener.send(Request::Watch { channel, id, watching }));
        let late = || Fault::late(&self.server, self.limit);
        match timeout(self.limit, is_registered).await {
            Ok(Ok(registered)) => registered?,
            Ok(Err(_)) | Err(_) => return Err(late()),
        }
        Ok(Watch { woken, _leave: leave })
    }

    fn listener(&self) -> mpsc::UnboundedSender<Request> {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        match &*listener {
            Some(sender) if !sender.is_closed() => sender.clone(),
            _ => {
                let (sender, requests) = mpsc::unbounded_channel();
                let listening = Listener {
                    server: Arc::clone(&self.server),
                    connector: Arc::clone(&self.connector),
                    limit: self.limit,
                    channels: HashMap::new(),
                    feed: None,
                    changes: FuturesUnordered::new(),
                };
                tokio::spawn(listening.run(requests));
                *listener = Some(sender.clone());
                sender
            }
        }
    }
}

impl Watch {
    pub(crate) async fn woken(mut self) {
        // Woken, or dropped by the listener: time to look again.
        drop((&mut self.woken).await);
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        let (channel, id) = (std::mem::take(&mut self.channel), self.id);
        drop(self.listener.send(Request::Leave { channel, id }));
    }
}

/// The task that hears for all watches of a server.
struct Listener {
    server: Arc<str>,
    connector: Arc<Connector>,
    limit: Duration,
    channels: HashMap<String, Channel>,
    feed: Option<Feed>,
    /// Subscriptions on their way.
    changes: FuturesUnordered<BoxFuture<'static, (String, RedisResult<()>)>>,
}

#[derive(Default)]
struct Channel {
    confirmed: bool,
    waiting: Vec<(u64, oneshot::Sender<()>)>,
    registering: Vec<oneshot::Sender<Result<(), Fault>>>,
    /// Sweeps since somebody waited last. A channel lingers for a while, since whoever was woken
    /// asks, is refused, and watches again.
    idle: u32,
}

/// An open subscriber.
struct Feed {
    control: Control,
    heard: BoxStream<'static, Heard>,
}

#[derive(Clone)]
enum Control {
    PubSub(PubSubSink),
    Shard(MultiplexedConnection),
}

enum Heard {
    Freed(String),
    /// A channel is not listened to any more: we left it, or the Cluster moved its slot.
    Left(String),
    /// A connection broke and was made again: anything may have been missed.
    Interrupted,
}

impl Listener {
    async fn run(mut self, mut requests: mpsc::UnboundedReceiver<Request>) {
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            select! {
                // What was heard comes first: somebody waits for it.
                biased;
                heard = next(&mut self.feed) => match heard {
                    Some(Heard::Freed(channel)) => self.wake(&channel),
                    Some(Heard::Left(channel)) => self.forget(&channel),
                    Some(Heard::Interrupted) => self.wake_all(),
                    None => self.disconnect("closed by the server"),
                },
                Some((channel, result)) = self.changes.next() => self.confirm(&channel, result),
                request = requests.recv() => match request {
                    Some(Request::Watch { channel, id, watching }) => {
                        self.watch(channel, id, watching).await;
                    }
                    Some(Request::Leave { channel, id }) => self.leave(&channel, id),
                    // The store is gone, and so is everybody who could wait.
                    None => return,
                },
                _ = sweep.tick() => self.sweep().await,
            }
        }
    }

    async fn watch(&mut self, name: String, id: u64, watching: Watching) {
        // While the server hung, many may have come and given up.
        if watching.registered.is_closed() {
            return;
        }
        if self.feed.is_none() {
            match self.connect().await {
                Ok(feed) => self.feed = Some(feed),
                Err(fault) => {
                    drop(watching.registered.send(Err(fault)));
                    return;
                }
            }
        }
        let Some(feed) = &self.feed else { return };
        let subscribed = self.channels.contains_key(&name);
        let channel = self.channels.entry(name.clone()).or_default();
        channel.idle = 0;
        channel.waiting.push((id, watching.wake));
        if channel.confirmed {
            drop(watching.registered.send(Ok(())));
            return;
        }
        channel.registering.push(watching.registered);
        if !subscribed {
            let mut control = feed.control.clone();
            let limit = self.limit;
            self.changes.push(
                async move {
                    let subscribed = timeout(limit, control.subscribe(&name)).await;
                    (name, subscribed.unwrap_or_else(|_| Err(timed_out())))
                }
                .boxed(),
            );
        }
    }

    async fn connect(&mut self) -> Result<Feed, Fault> {
        // Several round trips: more time than one request has.
        let limit = self.limit.max(LEAST_TO_CONNECT);
        match timeout(limit, self.connector.subscriber(&self.server)).await {
            Ok(Ok(subscriber)) => Ok(Feed::new(subscriber)),
            Ok(Err(fault)) => Err(fault),
            Err(_elapsed) => Err(Fault::late(&self.server, limit)),
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
                let fault = Fault::from_node_of_cluster(&self.server, &error);
                for registered in
                    self.channels.remove(name).into_iter().flat_map(|it| it.registering)
                {
                    drop(registered.send(Err(fault.clone())));
                }
            }
        }
    }

    fn wake(&mut self, name: &str) {
        if let Some(channel) = self.channels.get_mut(name) {
            for (_, wake) in channel.waiting.drain(..) {
                // Who no longer waits needs no waking.
                let _ = wake.send(());
            }
        }
    }

    /// Wakes who waits for a channel that is not heard any more; the next watch subscribes again.
    fn forget(&mut self, name: &str) {
        if self.channels.get(name).is_some_and(|channel| channel.confirmed) {
            self.channels.remove(name);
        }
    }

    fn wake_all(&mut self) {
        for channel in self.channels.values_mut() {
            for (_, wake) in channel.waiting.drain(..) {
                let _ = wake.send(());
            }
        }
    }

    /// Wakes everybody once, since nobody can tell what they have missed.
    fn disconnect(&mut self, why: &str) {
        debug!(server = %self.server, why, "the watches' connection has ended");
        self.feed = None;
        self.changes.clear();
        self.channels.clear();
    }

    fn leave(&mut self, name: &str, id: u64) {
        if let Some(channel) = self.channels.get_mut(name) {
            channel.waiting.retain(|(one, _)| *one != id);
        }
    }

    /// Unsubscribes from what nobody waits for, and finds out whether the server still answers.
    async fn sweep(&mut self) {
        let Some(feed) = &self.feed else { return };
        let mut control = feed.control.clone();
        let mut idle = Vec::new();
        self.channels.retain(|name, channel| {
            if channel.confirmed && channel.waiting.is_empty() {
                channel.idle += 1;
                if channel.idle > IDLE_SWEEPS {
                    idle.push(name.clone());
                    return false;
                }
            }
            true
        });
        let limit = self.limit.max(SWEEP);
        match timeout(limit, control.keep(&idle)).await {
            Ok(Ok(())) => (),
            Ok(Err(error)) => self.disconnect(&error.to_string()),
            Err(_elapsed) => self.disconnect("no answer"),
        }
    }
}

/// What is heard next; nothing, for ever, while there is no connection.
async fn next(feed: &mut Option<Feed>) -> Option<Heard> {
    match feed {
        Some(feed) => feed.heard.next().await,
        None => pending().await,
    }
}

impl Feed {
    fn new(subscriber: Subscriber) -> Self {
        match subscriber {
            Subscriber::PubSub(connection) => {
                let (sink, messages) = connection.split();
                let heard = messages.map(|message| {
                    let channel = message.get_channel::<String>();
                    channel.map_or(Heard::Interrupted, Heard::Freed)
                });
                Self { control: Control::PubSub(sink), heard: heard.boxed() }
            }
            Subscriber::Shard(connection, pushes) => {
                let pushes = futures_util::stream::unfold(pushes, |mut pushes| async move {
                    loop {
                        let push = pushes.recv().await?;
                        match push.kind {
                            PushKind::Disconnection => return None,
                            PushKind::SMessage => {
                                return Some((named(&push, Heard::Freed), pushes));
                            }
                            // Left by us, or moved with its slot.
                            PushKind::SUnsubscribe => {
                                return Some((named(&push, Heard::Left), pushes));
                            }
                            _ => (),
                        }
                    }
                });
                Self { control: Control::Shard(connection), heard: pushes.boxed() }
            }
        }
    }
}

/// With the name of the channel that was pushed.
fn named(push: &PushInfo, heard: fn(String) -> Heard) -> Heard {
    match push.data.first() {
        Some(Value::BulkString(name)) => heard(String::from_utf8_lossy(name).into_owned()),
        _ => Heard::Interrupted,
    }
}

impl Control {
    async fn subscribe(&mut self, channel: &str) -> RedisResult<()> {
        match self {
            Self::PubSub(sink) => sink.subscribe(channel).await,
            Self::Shard(connection) => {
                let mut subscribe = redis::cmd("SSUBSCRIBE");
                subscribe.arg(channel).query_async::<Value>(connection).await.map(drop)
            }
        }
    }

    async fn keep(&mut self, idle: &[String]) -> RedisResult<()> {
        match self {
            Self::PubSub(sink) => {
                if !idle.is_empty() {
                    sink.unsubscribe(idle).await?;
                }
                sink.ping::<Value>().await.map(drop)
            }
            Self::Shard(connection) => {
                // One request for each, since they are in different slots; all at once.
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

fn timed_out() -> redis::RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

const LEAST_TO_CONNECT: Duration = Duration::from_secs(2);

/// How often idle channels are looked for, and the connection is tried.
const SWEEP: Duration = Duration::from_secs(5);

/// A channel is left after 5 to 10 seconds without a watch.
const IDLE_SWEEPS: u32 = 1;
