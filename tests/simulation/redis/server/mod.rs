//! One server: its node, its connections and its faults.
//!
//! - This file: `Server`, and the order of its events.
//! - `node.rs`: the server's data and commands. `lua.rs`: runs the scripts on a node.
//! - `scripts.rs`: the scripts by name, and edited versions of them.
//! - `wire.rs`: one connection with latency. `resp.rs`: the protocol of a connection.

mod lua;
pub(super) mod node;
pub(super) mod resp;
pub(super) mod scripts;
pub(super) mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lease_core::conformance::Ledger;
use tokio::select;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::sleep;

use self::node::Node;
use self::resp::{Bytes, Reply};
use self::scripts::{Edition, Script, known_as};
use super::fleet::{Clocks, Plan};
use super::recorders::{Ran, Recorder, Transaction};
use super::shared_random::SharedRandom;

/// A Redis server, as its clients see it.
///
/// The server handles events sorted by time, then by connection. So a trial does not depend on the
/// order in which the tasks of a killed process are dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) place: usize,
    /// The length of a step of the server's clock, in microseconds. `None` if the clock does not
    /// step.
    leap: Option<i64>,
    ledger: Ledger,
    recorder: Arc<dyn Recorder>,
    edition: Edition,
    random: SharedRandom,
    inside: Mutex<Inside>,
    changed: Notify,
}

#[derive(Debug)]
struct Inside {
    node: Node,
    replica: Option<Node>,
    up: bool,
    /// The server then receives commands, but executes none.
    hung: bool,
    /// Processes whose packets are delayed in both directions.
    cut_off: BTreeSet<usize>,
    loaded: BTreeSet<&'static str>,
    connections: BTreeMap<u64, Client>,
    /// A connection may end before its last packets arrive.
    transactions: BTreeMap<u64, Queued>,
    inbox: BTreeMap<(Duration, u64, u64), Mail>,
    posted: u64,
    executed: u64,
}

/// The commands of a transaction that has begun. Also their replies, if a control executes commands
/// on arrival.
#[derive(Debug, Default)]
struct Queued {
    commands: Vec<Vec<Bytes>>,
    early: Vec<(Reply, u64)>,
}

#[derive(Debug)]
pub(crate) struct Mail {
    pub(crate) process: usize,
    pub(crate) words: Vec<Bytes>,
    pub(crate) then: Then,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Then {
    Answer,
    AnswerAfter(Duration),
    Break,
    FallSilent,
}

#[derive(Debug)]
pub(crate) enum Sent {
    Reply(Bytes, Then),
    Push(Bytes),
    Closed,
    CutOff,
    Reached,
}

#[derive(Debug)]
struct Client {
    process: usize,
    channels: BTreeSet<Bytes>,
    sent: UnboundedSender<Sent>,
}

impl Server {
    pub(crate) fn new(
        place: usize,
        node: Node,
        plan: &Plan,
        recorder: Arc<dyn Recorder>,
        ledger: Ledger,
        random: SharedRandom,
    ) -> Self {
        let inside = Inside {
            node,
            replica: None,
            up: true,
            hung: false,
            cut_off: BTreeSet::new(),
            loaded: BTreeSet::new(),
            connections: BTreeMap::new(),
            transactions: BTreeMap::new(),
            inbox: BTreeMap::new(),
            posted: 0,
            executed: 0,
        };
        let (inside, changed) = (Mutex::new(inside), Notify::new());
        let edition = plan.edition.clone();
        let leap = match plan.clocks {
            Clocks::Steady => None,
            Clocks::LeapAhead => Some(i64::try_from(plan.ttl.as_micros()).unwrap()),
        };
        Self { place, leap, ledger, recorder, edition, random, inside, changed }
    }

    pub(crate) async fn serve(self: Arc<Self>) {
        loop {
            let now = self.ledger.now();
            self.execute_due(now);
            let next = self.inside().next_arrival();
            select! {
                // Polls the notification first, since a change may add an earlier command.
                biased;
                () = self.changed.notified() => (),
                () = sleep(next.map_or(Duration::MAX, |at| at.saturating_sub(now))) => (),
            }
        }
    }

    pub(crate) fn accept(
        &self,
        connection: u64,
        process: usize,
        sent: UnboundedSender<Sent>,
    ) -> bool {
        let mut inside = self.inside();
        if inside.cut_off.contains(&process) {
            drop(sent.send(Sent::CutOff));
        }
        let client = Client { process, channels: BTreeSet::new(), sent };
        if inside.up {
            inside.connections.insert(connection, client);
        }
        inside.up
    }

    pub(crate) fn leave(&self, connection: u64) {
        self.inside().connections.remove(&connection);
    }

    pub(crate) fn post(&self, at: Duration, connection: u64, mail: Mail) {
        let mut inside = self.inside();
        inside.posted += 1;
        let number = inside.posted;
        inside.inbox.insert((at, connection, number), mail);
        self.changed.notify_one();
    }

    pub(crate) fn hang(&self) {
        self.inside().hung = true;
    }

    pub(crate) fn resume(&self) {
        self.inside().hung = false;
        self.serve_in_any_order();
    }

    pub(crate) fn cut_off(&self, process: usize) {
        let mut inside = self.inside();
        inside.cut_off.insert(process);
        inside.send_to_process(process, || Sent::CutOff);
    }

    pub(crate) fn reach(&self, process: usize) {
        let mut inside = self.inside();
        inside.cut_off.remove(&process);
        inside.send_to_process(process, || Sent::Reached);
        drop(inside);
        self.serve_in_any_order();
    }

    pub(crate) fn close_all(&self) {
        let mut inside = self.inside();
        inside.inbox.clear();
        inside.transactions.clear();
        for client in std::mem::take(&mut inside.connections).into_values() {
            // A connection that has just ended has dropped its receiver.
            drop(client.sent.send(Sent::Closed));
        }
    }

    pub(crate) fn stop(&self) {
        self.inside().up = false;
        self.close_all();
    }

    pub(crate) fn restart(&self, run: u128) {
        let mut inside = self.inside();
        inside.node.set_time(self.ledger.now());
        inside.node.restart(run);
        inside.loaded.clear();
        inside.up = true;
    }

    pub(crate) fn forget(&self) {
        self.inside().node.forget();
        self.recorder.forget(self.place);
    }

    /// The copy is the data of a replica that receives no more writes.
    pub(crate) fn leave_replica_behind(&self) {
        let mut inside = self.inside();
        inside.replica = Some(inside.node.clone());
    }

    pub(crate) fn promote_replica(&self) {
        let mut inside = self.inside();
        inside.node = inside.replica.take().unwrap();
        self.recorder.promote(self.place);
    }

    pub(crate) fn flush_scripts(&self) {
        self.inside().loaded.clear();
    }

    pub(crate) fn set_back(&self, by: i64) {
        self.inside().node.set_back(by);
    }

    /// Schedules the waiting commands in a random order of their connections.
    fn serve_in_any_order(&self) {
        let now = self.ledger.now();
        let mut turns: BTreeMap<u64, Duration> = BTreeMap::new();
        let mut inside = self.inside();
        let inbox = std::mem::take(&mut inside.inbox);
        for ((at, connection, number), mail) in inbox {
            let turn = turns
                .entry(connection)
                .or_insert_with(|| now + self.random.part_of(Duration::from_millis(4)));
            inside.inbox.insert((at.max(*turn), connection, number), mail);
        }
        self.changed.notify_one();
    }

    fn execute_due(&self, now: Duration) {
        let mut inside = self.inside();
        let inside = &mut *inside;
        while inside.next_arrival().is_some_and(|at| at <= now) {
            let cut_off = &inside.cut_off;
            let open =
                |(_, mail): &(&(Duration, u64, u64), &Mail)| !cut_off.contains(&mail.process);
            let Some((place, _)) = inside.inbox.iter().find(open) else { return };
            let place @ (_, connection, _) = *place;
            let Some(mail) = inside.inbox.remove(&place) else { return };
            let reply = self.execute(inside, &mail.words, connection);
            if let Some(client) = inside.connections.get(&connection) {
                drop(client.sent.send(Sent::Reply(reply, mail.then)));
            }
            inside.publish();
        }
    }

    fn execute(&self, inside: &mut Inside, words: &[Bytes], connection: u64) -> Bytes {
        inside.node.set_time(self.ledger.now());
        let mut out = Bytes::new();
        let (name, arguments) = words.split_first().unwrap();
        let client = inside.connections.get_mut(&connection);
        match (name.to_ascii_uppercase().as_slice(), arguments, client) {
            (b"MULTI", [], _) => {
                inside.transactions.insert(connection, Queued::default());
                Reply::Status("OK").write(&mut out);
            }
            (b"EXEC", [], _) => self.execute_transaction(inside, connection).write(&mut out),
            (b"SET" | b"XADD" | b"GET", ..) if inside.transactions.contains_key(&connection) => {
                self.queue(inside, words, connection);
                Reply::Status("QUEUED").write(&mut out);
            }
            (b"CLIENT" | b"SELECT" | b"AUTH" | b"UNWATCH", ..) => {
                Reply::Status("OK").write(&mut out);
            }
            (b"EVALSHA" | b"EVAL", [script, rest @ ..], _) => {
                let by_text = name.len() == "EVAL".len();
                self.evaluate(inside, script, by_text, rest).write(&mut out);
            }
            (b"SUBSCRIBE", channels, Some(client)) => client.subscribe(channels, &mut out),
            (b"UNSUBSCRIBE", channels, Some(client)) => client.unsubscribe(channels, &mut out),
            (b"SUBSCRIBE" | b"UNSUBSCRIBE", _, None) => (),
            (b"PING", [], Some(client)) if !client.channels.is_empty() => {
                Reply::texts(&["pong", ""]).write(&mut out);
            }
            _ => inside.node.execute(words).write(&mut out),
        }
        out
    }

    fn queue(&self, inside: &mut Inside, words: &[Bytes], connection: u64) {
        // The control without transactions executes the commands as they arrive.
        let early = self.edition.without_transactions().then(|| {
            self.leap_ahead(&mut inside.node);
            (inside.node.execute(words), inside.next_execution())
        });
        let queued = inside.transactions.get_mut(&connection).unwrap();
        queued.early.extend(early);
        queued.commands.push(words.to_vec());
    }

    /// The commands use the keys of leases, and the key of the token stream.
    fn execute_transaction(&self, inside: &mut Inside, connection: u64) -> Reply {
        let Some(Queued { commands, early }) = inside.transactions.remove(&connection) else {
            return Reply::Error("ERR EXEC without MULTI".to_owned());
        };
        let executed = if self.edition.without_transactions() {
            early
        } else {
            self.leap_ahead(&mut inside.node);
            let execute =
                |command: &Vec<Bytes>| (inside.node.execute(command), inside.next_execution());
            commands.iter().map(execute).collect()
        };
        let (replies, at): (Vec<_>, Vec<_>) = executed.into_iter().unzip();
        let executed = Transaction { commands: &commands, replies: &replies, at: &at };
        self.recorder.record_transaction(&executed);
        Reply::Array(replies)
    }

    fn evaluate(
        &self,
        inside: &mut Inside,
        text_or_hash: &[u8],
        by_text: bool,
        rest: &[Bytes],
    ) -> Reply {
        let script = known_as(text_or_hash).expect("a script of lease-redis");
        if by_text {
            inside.loaded.insert(&script.hash);
        } else if !inside.loaded.contains(script.hash.as_str()) {
            return Reply::Error("NOSCRIPT No matching script. Please use EVAL.".to_owned());
        }
        let count: usize = std::str::from_utf8(&rest[0]).unwrap().parse().unwrap();
        let (keys, arguments) = rest[1..].split_at(count);
        let at = inside.next_execution();
        inside.count_subscribers();
        self.run(&mut inside.node, at, script, keys, arguments)
    }

    fn run(
        &self,
        node: &mut Node,
        at: u64,
        script: &'static Script,
        keys: &[Bytes],
        arguments: &[Bytes],
    ) -> Reply {
        let published = node.published.len();
        let holdings = |node: &Node| keys.iter().map(|key| node.holding(key)).collect();
        self.leap_ahead(node);
        let before = holdings(node);
        let reply = lua::run(self.edition.text(script), keys, arguments, node);
        if let Reply::Error(error) = &reply {
            self.ledger.violated(format!("the script {} failed: {error}", script.name));
        }
        let after = holdings(node);
        let (place, script) = (self.place, script.name);
        self.recorder.record(&Ran {
            place,
            at,
            script,
            keys,
            arguments,
            reply: &reply,
            before,
            after,
            published: &node.published[published..],
        });
        reply
    }

    fn leap_ahead(&self, node: &mut Node) {
        if let Some(leap) = self.leap
            && self.random.is_one_in(8)
        {
            node.set_back(-leap);
            node.set_time(self.ledger.now());
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap()
    }
}

impl Inside {
    fn next_execution(&mut self) -> u64 {
        self.executed += 1;
        self.executed
    }

    fn count_subscribers(&mut self) {
        self.node.subscribers.clear();
        for channel in self.connections.values().flat_map(|client| &client.channels) {
            *self.node.subscribers.entry(channel.clone()).or_default() += 1;
        }
    }

    fn next_arrival(&self) -> Option<Duration> {
        if self.hung {
            return None;
        }
        let mut open = self.inbox.iter().filter(|(_, mail)| !self.cut_off.contains(&mail.process));
        open.next().map(|((at, ..), _)| *at)
    }

    fn send_to_process(&self, process: usize, what: impl Fn() -> Sent) {
        for client in self.connections.values().filter(|client| client.process == process) {
            drop(client.sent.send(what()));
        }
    }

    fn publish(&mut self) {
        for (channel, message) in std::mem::take(&mut self.node.published) {
            let push = Reply::Array(vec![
                Reply::text("message"),
                Reply::Bulk(channel.clone()),
                Reply::Bulk(message),
            ]);
            let mut bytes = Bytes::new();
            push.write(&mut bytes);
            for client in self.connections.values() {
                if client.channels.contains(&channel) {
                    drop(client.sent.send(Sent::Push(bytes.clone())));
                }
            }
        }
    }
}

impl Client {
    fn subscribe(&mut self, channels: &[Bytes], out: &mut Bytes) {
        for channel in channels {
            self.channels.insert(channel.clone());
            confirm("subscribe", channel, self.channels.len(), out);
        }
    }

    fn unsubscribe(&mut self, channels: &[Bytes], out: &mut Bytes) {
        for channel in channels {
            self.channels.remove(channel);
            confirm("unsubscribe", channel, self.channels.len(), out);
        }
    }
}

fn confirm(kind: &str, channel: &[u8], count: usize, out: &mut Bytes) {
    let count = i64::try_from(count).unwrap();
    let items = vec![Reply::text(kind), Reply::Bulk(channel.to_vec()), Reply::Number(count)];
    Reply::Array(items).write(out);
}
