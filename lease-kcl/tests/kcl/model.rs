//! A model of a KCL table, which checks the invariants of each write.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lease_core::conformance::{Simulation, WorldTime};
use lease_kinesis::{Position, RecordNumber};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use lease_test_servers::simulation::expression::{Bindings, Condition, Item, Refusal, Update};

#[derive(Clone)]
pub(crate) struct Table {
    time: WorldTime,
    network: Handle,
    inside: Arc<Mutex<Inside>>,
}

#[derive(Default)]
struct Inside {
    setup: Setup,
    items: BTreeMap<String, Item>,
    /// The latest right to write each row. A release removes the right.
    rights: BTreeMap<String, Right>,
    taken: u64,
    tokens: BTreeMap<String, u64>,
    /// The time at which each row was last taken or renewed. For our workers, only heartbeats are renewals.
    alive: BTreeMap<String, Duration>,
    versions: BTreeMap<String, Vec<(Duration, Option<Item>)>>,
    /// The time at which the last right to each row was given up.
    given: BTreeMap<String, Duration>,
    takes: Vec<Take>,
    figures: Figures,
    violations: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Setup {
    /// For writes of this kind, the table treats these parts of the condition as true.
    pub(crate) assumes: Option<(Kind, &'static [&'static str])>,
    pub(crate) stale: Duration,
    /// Our workers may take a lease of another owner only if it was not renewed for this time.
    pub(crate) failover: Option<Duration>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) taken_by_ours: usize,
    pub(crate) taken_by_kcl: usize,
    /// Takes from another owner that had taken or renewed the lease shortly before.
    pub(crate) stolen: usize,
    pub(crate) checkpoints: usize,
    pub(crate) refused: usize,
    pub(crate) scans: usize,
    pub(crate) consistent_scans: usize,
}

/// A worker obtained a row.
#[derive(Debug, Clone)]
pub(crate) struct Take {
    pub(crate) at: Duration,
    pub(crate) key: String,
    pub(crate) owner: String,
    /// The time since the former owner gave up the row, if it did.
    pub(crate) unread: Option<Duration>,
}

/// The right to write a row: one of our grants, or one take by a KCL worker.
pub(crate) type Right = String;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Obtain,
    Heartbeat,
    Other,
}

enum By {
    Takes(Right),
    /// The flag is true if the write renews the lease.
    Under(Right, bool),
}

const KEY: &str = "leaseKey";

impl Table {
    pub(crate) fn new(simulation: &Simulation, setup: Setup) -> Self {
        let inside = Inside { setup, ..Inside::default() };
        Self {
            time: simulation.time(),
            network: simulation.network().clone(),
            inside: Arc::new(Mutex::new(inside)),
        }
    }

    pub(crate) fn network(&self) -> &Handle {
        &self.network
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.inside().violations.clone()
    }

    pub(crate) fn figures(&self) -> Figures {
        self.inside().figures
    }

    pub(crate) fn owners(&self) -> BTreeMap<String, Option<String>> {
        let inside = self.inside();
        let open = inside.items.iter().filter(|(_, item)| !has_ended(item));
        open.map(|(key, item)| (key.clone(), owner(item))).collect()
    }

    /// The keys of all rows whose shards have ended, with their owners.
    pub(crate) fn ended(&self) -> BTreeMap<String, Option<String>> {
        let inside = self.inside();
        let ended = inside.items.iter().filter(|(_, item)| has_ended(item));
        ended.map(|(key, item)| (key.clone(), owner(item))).collect()
    }

    /// Returns how rows of open shards were obtained since `time`.
    pub(crate) fn takes_since(&self, time: Duration) -> Vec<Take> {
        self.inside().takes.iter().filter(|take| take.at >= time).cloned().collect()
    }

    /// KCL 3's leader assigns the lease: `LeaseRefresher.assignLease`.
    pub(crate) fn kcl_assigns(&self, now: Duration, key: &str, worker: &str) {
        let mut inside = self.inside();
        let mut item = inside.items[key].clone();
        let next = counter(&item) + 1;
        item.insert("leaseOwner".to_owned(), json!({ "S": worker }));
        item.insert("leaseCounter".to_owned(), json!({ "N": next.to_string() }));
        item.remove("checkpointOwner");
        inside.rights.remove(key);
        inside.given.insert(key.to_owned(), now);
        inside.keep(now, key, Some(item));
    }

    /// `deleteLease`, which has no condition
    pub(crate) async fn kcl_deletes(&self, key: &str) {
        let key = key.to_owned();
        self.carried(move |inside, now| {
            if inside.items.get(&key).is_some_and(|item| !has_ended(item)) {
                inside.violated(now, &format!("{key} is deleted before its end"));
            }
            inside.rights.remove(&key);
            inside.keep(now, &key, None);
        })
        .await;
    }

    /// No worker can read the row, since its counter is not a number.
    pub(crate) fn spoil(&self, key: &str) {
        let item = json!({ KEY: { "S": key }, "leaseCounter": { "S": "many" } });
        let item = item.as_object().cloned();
        self.inside().keep(Duration::ZERO, key, item);
    }

    pub(crate) fn serve(&self, operation: &str, body: &Value) -> (u16, Value) {
        let mut inside = self.inside();
        let served = inside.serve(self.time.now(), operation, body);
        served.unwrap_or_else(|refusal| {
            inside.violations.push(format!("the model does not support the request: {refusal}"));
            (500, json!({}))
        })
    }

    async fn carried<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Inside, Duration) -> T + Send + 'static,
    ) -> T {
        let table = self.clone();
        let asked = self.network.spawn(async move {
            tokio::time::sleep(Simulation::LATENCY).await;
            let now = table.time.now();
            let answer = ask(&mut table.inside(), now);
            tokio::time::sleep(Simulation::LATENCY).await;
            answer
        });
        match asked.await {
            Ok(answer) => answer,
            Err(_ended) => std::future::pending().await,
        }
    }

    pub(crate) async fn scan(&self) -> BTreeMap<String, Item> {
        self.carried(|inside, _| inside.items.clone()).await
    }

    pub(crate) async fn get(&self, key: &str) -> Option<Item> {
        let key = key.to_owned();
        self.carried(move |inside, _| inside.items.get(&key).cloned()).await
    }

    /// `createLeaseIfNotExists`
    pub(crate) async fn kcl_creates(&self, key: &str, item: Item) {
        let key = key.to_owned();
        self.carried(move |inside, now| {
            if !inside.items.contains_key(&key) {
                inside.keep(now, &key, Some(item));
            }
        })
        .await;
    }

    /// `takeLease`
    pub(crate) async fn kcl_takes(&self, key: &str, seen: u64, worker: &str) -> Option<Right> {
        let (key, worker) = (key.to_owned(), worker.to_owned());
        self.carried(move |inside, now| {
            let before = inside.items.get(&key).filter(|item| counter(item) == seen)?.clone();
            let mut after = before.clone();
            after.insert("leaseOwner".to_owned(), json!({ "S": worker }));
            after.insert("leaseCounter".to_owned(), json!({ "N": (seen + 1).to_string() }));
            after.remove("checkpointOwner");
            inside.taken += 1;
            inside.figures.taken_by_kcl += 1;
            let right = format!("{worker}'s {}", inside.taken);
            inside.judge(now, &key, By::Takes(right.clone()), &before, &after);
            inside.keep(now, &key, Some(after));
            Some(right)
        })
        .await
    }

    pub(crate) async fn kcl_writes(
        &self,
        key: &str,
        seen: u64,
        right: &Right,
        checkpoint: Option<String>,
    ) -> Option<u64> {
        let (key, right) = (key.to_owned(), right.clone());
        self.carried(move |inside, now| {
            let before = inside.items.get(&key).filter(|item| counter(item) == seen)?.clone();
            let mut after = before.clone();
            after.insert("leaseCounter".to_owned(), json!({ "N": (seen + 1).to_string() }));
            if let Some(checkpoint) = checkpoint {
                after.insert("checkpoint".to_owned(), json!({ "S": checkpoint }));
                after.insert("checkpointSubSequenceNumber".to_owned(), json!({ "N": "0" }));
                after.insert("ownerSwitchesSinceCheckpoint".to_owned(), json!({ "N": "0" }));
            }
            inside.judge(now, &key, By::Under(right, true), &before, &after);
            inside.keep(now, &key, Some(after));
            Some(seen + 1)
        })
        .await
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap()
    }
}

impl Inside {
    fn serve(
        &mut self,
        now: Duration,
        operation: &str,
        body: &Value,
    ) -> Result<(u16, Value), Refusal> {
        let bound = Bindings::new(
            object(body, "ExpressionAttributeNames"),
            object(body, "ExpressionAttributeValues"),
        );
        let expression = |name: &str| body.get(name).and_then(Value::as_str);
        let key = || text(&object(body, "Key"), KEY);
        match operation {
            "GetItem" => {
                let seen = now.saturating_sub(self.setup.stale);
                let item = self.as_of(&key(), seen);
                Ok((200, item.map_or_else(|| json!({}), |item| json!({ "Item": item }))))
            }
            "Scan" => {
                self.figures.scans += 1;
                let is_consistent = body.get("ConsistentRead").and_then(Value::as_bool);
                self.figures.consistent_scans += usize::from(is_consistent == Some(true));
                // One item per page, so that a listing has several pages.
                let start = text(&object(body, "ExclusiveStartKey"), KEY);
                let mut after = self.items.iter().filter(|(key, _)| **key > start);
                let items: Vec<_> = after.next().into_iter().map(|(_, item)| item).collect();
                let last = items.first().filter(|_| after.next().is_some());
                let last = last.map(|item| json!({ KEY: item[KEY] }));
                Ok((200, json!({ "Items": items, "LastEvaluatedKey": last })))
            }
            "PutItem" => {
                let item = object(body, "Item");
                let key = text(&item, KEY);
                if self.items.contains_key(&key) {
                    return Ok(self.refused());
                }
                self.keep(now, &key, Some(item));
                Ok((200, json!({})))
            }
            "DeleteItem" => {
                let condition = Condition::parse(expression("ConditionExpression").unwrap())?;
                let before = self.items.get(&key()).cloned().unwrap_or_default();
                if !condition.holds(&before, &bound)? {
                    return Ok(self.refused());
                }
                if !has_ended(&before) {
                    self.violated(now, &format!("{} is deleted before its end", key()));
                }
                self.rights.remove(&key());
                self.keep(now, &key(), None);
                Ok((200, json!({})))
            }
            "UpdateItem" => {
                let mut condition = Condition::parse(expression("ConditionExpression").unwrap())?;
                let update = Update::parse(expression("UpdateExpression").unwrap())?;
                bound.are_used(Some(&condition), Some(&update))?;
                let kind = kind_of(&update);
                if let Some((_, parts)) = self.setup.assumes.filter(|(of, _)| *of == kind) {
                    for part in parts {
                        condition.assume(&Condition::parse(part)?);
                    }
                }
                let before = self.items.get(&key()).cloned().unwrap_or_default();
                if !condition.holds(&before, &bound)? {
                    return Ok(self.refused());
                }
                let mut after = before.clone();
                update.apply(&mut after, &bound)?;
                after.insert(KEY.to_owned(), json!({ "S": key() }));
                let by = match kind {
                    Kind::Obtain => By::Takes(right(&after, "grantNonce", "grantToken")),
                    Kind::Heartbeat | Kind::Other => {
                        let right = right(&bound.values, ":nonce", ":fence");
                        By::Under(right, kind == Kind::Heartbeat)
                    }
                };
                self.judge(now, &key(), by, &before, &after);
                self.keep(now, &key(), Some(after.clone()));
                Ok((200, json!({ "Attributes": after })))
            }
            _ => Err(format!("{operation} is not supported here")),
        }
    }

    /// The writer has the latest right, the checkpoint does not decrease, and tokens increase.
    fn judge(&mut self, now: Duration, key: &str, by: By, before: &Item, after: &Item) {
        match by {
            By::Takes(right) => {
                let token = number(after, "grantToken");
                let ours = after.get("grantToken") != before.get("grantToken");
                if ours {
                    self.figures.taken_by_ours += 1;
                    let last = self.tokens.insert(key.to_owned(), token);
                    if last.is_some_and(|last| last >= token) {
                        self.violated(now, &format!("{key}: token {token} after {last:?}"));
                    }
                }
                // No worker reads an ended shard, so nobody loses it.
                let others = owner(before).filter(|of| Some(of) != owner(after).as_ref());
                let others = others.filter(|_| !has_ended(before));
                let unread = self.given.remove(key).map(|since| now.saturating_sub(since));
                if !has_ended(before) {
                    let (key, owner) = (key.to_owned(), owner(after).unwrap_or_default());
                    self.takes.push(Take { at: now, key, owner, unread });
                }
                let alive = self.alive.insert(key.to_owned(), now).unwrap_or_default();
                let stood_still = now.saturating_sub(alive);
                if let Some(failover) = self.setup.failover.filter(|_| ours)
                    && others.is_some()
                    && stood_still < failover
                {
                    let text = format!("{key} is taken from {others:?} after {stood_still:?}");
                    self.violated(now, &text);
                }
                self.figures.stolen += usize::from(others.is_some() && stood_still < STOLEN);
                self.rights.insert(key.to_owned(), right);
            }
            By::Under(right, is_life) => {
                if is_life {
                    self.alive.insert(key.to_owned(), now);
                }
                let current = self.rights.get(key);
                if current != Some(&right) {
                    let text = format!("{key}: {right} has written, but only {current:?} may");
                    self.violated(now, &text);
                }
                let is_given = owner(after) != owner(before);
                if is_given {
                    self.rights.remove(key);
                    self.given.insert(key.to_owned(), now);
                }
            }
        }
        let (old, new) = (position(before), position(after));
        if new < old {
            self.violated(now, &format!("{key}: the checkpoint decreases: {old:?} to {new:?}"));
        }
        self.figures.checkpoints += usize::from(new > old);
    }

    fn keep(&mut self, now: Duration, key: &str, item: Option<Item>) {
        let versions = self.versions.entry(key.to_owned()).or_default();
        versions.push((now, item.clone()));
        match item {
            Some(item) => self.items.insert(key.to_owned(), item),
            None => self.items.remove(key),
        };
    }

    fn as_of(&self, key: &str, time: Duration) -> Option<Item> {
        let versions = self.versions.get(key)?;
        let seen =
            versions.iter().rev().find(|(at, _)| *at <= time).or_else(|| versions.first())?;
        seen.1.clone()
    }

    fn violated(&mut self, now: Duration, what: &str) {
        self.violations.push(format!("{now:?}: {what}"));
    }

    fn refused(&mut self) -> (u16, Value) {
        self.figures.refused += 1;
        let name = "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException";
        (400, json!({ "__type": name, "message": "as planned" }))
    }
}

fn kind_of(update: &Update) -> Kind {
    if update.sets("#grantNonce") {
        return Kind::Obtain;
    }
    if update.sets("#grantBeat") { Kind::Heartbeat } else { Kind::Other }
}

fn right(fields: &Item, nonce: &str, token: &str) -> Right {
    format!("{} {}", text(fields, nonce), number(fields, token))
}

pub(crate) fn owner(item: &Item) -> Option<String> {
    Some(text(item, "leaseOwner")).filter(|owner| !owner.is_empty())
}

fn has_ended(item: &Item) -> bool {
    text(item, "checkpoint") == "SHARD_END"
}

pub(crate) fn counter(item: &Item) -> u64 {
    number(item, "leaseCounter")
}

pub(crate) fn text(item: &Item, name: &str) -> String {
    let text = item.get(name).and_then(|value| value.get("S")).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

fn number(item: &Item, name: &str) -> u64 {
    let digits = item.get(name).and_then(|value| value.get("N")).and_then(Value::as_str);
    digits.and_then(|digits| digits.parse().ok()).unwrap_or_default()
}

pub(crate) fn position(item: &Item) -> Position {
    match text(item, "checkpoint").as_str() {
        "SHARD_END" => Position::ShardEnd,
        "" | "TRIM_HORIZON" | "LATEST" => Position::TrimHorizon,
        digits => Position::Record(RecordNumber::new(digits.parse().unwrap())),
    }
}

fn object(body: &Value, field: &str) -> Item {
    body.get(field).and_then(Value::as_object).cloned().unwrap_or_default()
}

/// A take counts as stolen if the owner had taken or renewed the lease within this time.
const STOLEN: Duration = Duration::from_secs(1);
