//! A model of a KCL 2 worker: `DynamoDBLeaseRenewer`, `DynamoDBLeaseTaker`, `ShardConsumer`,
//! `LeaseCleanupManager`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_kinesis::{Position, ReadFrom, ShardId, Source};
use lease_test_servers::simulation::RemoteStream;
use lease_test_servers::simulation::expression::Item;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::fleet::Reads;
use crate::model::{Right, Table, counter, owner, position};

#[derive(Clone)]
pub(crate) struct Kcl2 {
    pub(crate) name: String,
    pub(crate) table: Table,
    pub(crate) source: RemoteStream,
    pub(crate) reads: Reads,
    pub(crate) failover: Duration,
    /// `maxLeasesForWorker`
    pub(crate) most: usize,
    pub(crate) cleanup: Option<Duration>,
    pub(crate) in_hand: Arc<Mutex<BTreeMap<String, Arc<InHand>>>>,
}

/// The worker may have lost the lease without noticing.
pub(crate) struct InHand {
    right: Right,
    counter: tokio::sync::Mutex<u64>,
    lost: CancellationToken,
}

impl Kcl2 {
    pub(crate) async fn run(self) {
        let renewer = self.clone();
        tokio::spawn(async move {
            loop {
                sleep((renewer.failover / 3).saturating_sub(EPSILON)).await;
                renewer.renew().await;
            }
        });
        let cleaner = self.clone();
        tokio::spawn(async move {
            while let Some(interval) = cleaner.cleanup {
                sleep(interval).await;
                cleaner.clean_up().await;
            }
        });
        let mut seen = BTreeMap::new();
        loop {
            self.take(&mut seen).await;
            sleep((self.failover + EPSILON) * 2).await;
        }
    }

    async fn renew(&self) {
        let in_hand = self.in_hand.lock().unwrap().clone();
        for (key, lease) in in_hand {
            self.write(&key, &lease, None).await;
        }
    }

    /// Returns whether the worker still has the lease.
    async fn write(&self, key: &str, lease: &InHand, checkpoint: Option<String>) -> bool {
        let mut counter = lease.counter.lock().await;
        if lease.lost.is_cancelled() {
            return false;
        }
        let written = self.table.kcl_writes(key, *counter, &lease.right, checkpoint).await;
        if let Some(next) = written {
            *counter = next;
        } else {
            lease.lost.cancel();
            self.in_hand.lock().unwrap().remove(key);
        }
        !lease.lost.is_cancelled()
    }

    /// `LeaseCleanupManager`: deletes the rows of ended shards whose children have been read in part.
    async fn clean_up(&self) {
        let rows = self.table.scan().await;
        let in_hand = self.in_hand.lock().unwrap().clone();
        for (key, lease) in in_hand {
            let children = rows.values().filter(|row| parents(row).contains(&key));
            let begun = |row| matches!(position(row), Position::Record(_) | Position::ShardEnd);
            let positions: Vec<_> = children.map(begun).collect();
            let has_ended = rows.get(&key).is_some_and(|row| position(row) == Position::ShardEnd);
            if has_ended && !positions.is_empty() && positions.iter().all(|begun| *begun) {
                self.table.kcl_deletes(&key).await;
                lease.lost.cancel();
                self.in_hand.lock().unwrap().remove(&key);
            }
        }
    }

    /// `takeLeases`: a scan, then one write for each taken lease. Rows of ended shards count, too.
    async fn take(&self, seen: &mut BTreeMap<String, (u64, Instant)>) {
        let rows = self.table.scan().await;
        let now = now();
        let (mut expired, mut very_old) = (Vec::new(), Vec::new());
        let mut has: BTreeMap<String, Vec<&String>> = BTreeMap::from([(self.name.clone(), vec![])]);
        for (key, row) in &rows {
            let Some(owner) = owner(row) else {
                // KCL treats a lease without an owner as very old, whatever its counter.
                very_old.push(key);
                continue;
            };
            let known = seen.entry(key.clone()).or_insert_with(|| (counter(row), now));
            if known.0 != counter(row) {
                *known = (counter(row), now);
            }
            let age = now - known.1;
            if age > self.failover * 3 {
                very_old.push(key);
            } else if age > self.failover {
                expired.push(key);
            } else {
                has.entry(owner).or_default().push(key);
            }
        }
        let target = rows.len().div_ceil(has.len()).clamp(1, self.most);
        let mine = has[&self.name].len();
        let need = target.saturating_sub(mine);
        very_old.truncate(self.most.saturating_sub(mine));
        let taken = if !very_old.is_empty() {
            very_old
        } else if expired.is_empty() {
            self.stolen(need, target, &has)
        } else {
            expired.into_iter().take(need).collect()
        };
        for key in taken {
            let at = counter(&rows[key]);
            if let Some(right) = self.table.kcl_takes(key, at, &self.name).await {
                self.hold(key, right, at + 1);
            }
        }
    }

    /// `chooseLeasesToSteal`, with `maxLeasesToStealAtOneTime` 1. The victim has the most leases.
    fn stolen<'a>(
        &self,
        need: usize,
        target: usize,
        has: &BTreeMap<String, Vec<&'a String>>,
    ) -> Vec<&'a String> {
        let Some((victim, leases)) = has.iter().max_by_key(|(_, leases)| leases.len()) else {
            return Vec::new();
        };
        let spare = leases.len().saturating_sub(target);
        let steals = need.min(spare) > 0 || (need > 1 && leases.len() == target);
        let steals = steals && *victim != self.name;
        leases.iter().copied().take(usize::from(steals)).collect()
    }

    fn hold(&self, key: &str, right: Right, counter: u64) {
        let lost = CancellationToken::new();
        let lease = Arc::new(InHand { right, counter: counter.into(), lost: lost.clone() });
        let former = self.in_hand.lock().unwrap().insert(key.to_owned(), Arc::clone(&lease));
        if let Some(former) = former {
            former.lost.cancel();
        }
        let (worker, key) = (self.clone(), key.to_owned());
        tokio::spawn(async move {
            tokio::select! {
                () = lost.cancelled() => (),
                () = worker.read(&key, &lease) => (),
            }
        });
    }

    /// `ShardConsumer`: waits for the parents, and continues from the checkpoint.
    async fn read(&self, key: &str, lease: &InHand) {
        while self.waits_for_parents(key).await {
            sleep(self.failover / 4).await;
        }
        let shard: ShardId = key.parse().unwrap();
        let Some(row) = self.table.get(key).await else { return };
        let begun = position(&row);
        let from = match &begun {
            Position::Record(number) => ReadFrom::At(number.sequence.clone()),
            Position::ShardEnd => return,
            _ => ReadFrom::TrimHorizon,
        };
        let Ok(mut iterator) = self.source.iterator(&shard, &from).await else { return };
        loop {
            let Ok(fetched) = self.source.fetch(&iterator, 100).await else {
                sleep(self.failover / 8).await;
                continue;
            };
            let mut last = None;
            for record in fetched.records {
                let number =
                    Position::Record(lease_kinesis::RecordNumber::new(record.sequence.clone()));
                if number > begun {
                    self.reads.note(&shard, &record.sequence);
                    last = Some(record.sequence.as_str().to_owned());
                }
            }
            if last.is_some() && !self.write(key, lease, last).await {
                return;
            }
            let Some(next) = fetched.next else { return self.end(key, &shard, lease).await };
            iterator = next;
            sleep(self.failover / 8).await;
        }
    }

    async fn waits_for_parents(&self, key: &str) -> bool {
        let rows = self.table.scan().await;
        let Some(row) = rows.get(key) else { return false };
        let parents = parents(row);
        let mut parents = parents.iter().filter_map(|parent| rows.get(parent));
        parents.any(|parent| position(parent) != Position::ShardEnd)
    }

    async fn end(&self, key: &str, shard: &ShardId, lease: &InHand) {
        let Ok(shards) = self.source.shards().await else { return };
        for child in shards.iter().filter(|child| child.parents.contains(shard)) {
            let parents: Vec<_> = child.parents.iter().map(ShardId::as_str).collect();
            let item = json!({
                "leaseKey": { "S": child.id.as_str() },
                "leaseCounter": { "N": "0" },
                "ownerSwitchesSinceCheckpoint": { "N": "0" },
                "checkpoint": { "S": "TRIM_HORIZON" },
                "checkpointSubSequenceNumber": { "N": "0" },
                "parentShardId": { "SS": parents },
                "startingHashKey": { "S": child.hash_keys.first().to_string() },
                "endingHashKey": { "S": child.hash_keys.last().to_string() },
            });
            let item: Item = item.as_object().unwrap().clone();
            self.table.kcl_creates(child.id.as_str(), item).await;
        }
        // The worker renews the lease until it deletes the row.
        self.write(key, lease, Some("SHARD_END".to_owned())).await;
    }
}

fn parents(row: &Item) -> Vec<String> {
    let parents = row.get("parentShardId").and_then(|parents| parents.get("SS"));
    let parents = parents.and_then(|parents| parents.as_array()).into_iter().flatten();
    parents.filter_map(|parent| Some(parent.as_str()?.to_owned())).collect()
}

#[expect(clippy::disallowed_methods, reason = "the clock of another library's worker")]
fn now() -> Instant {
    Instant::now()
}

/// `epsilonMillis`
const EPSILON: Duration = Duration::from_millis(25);
