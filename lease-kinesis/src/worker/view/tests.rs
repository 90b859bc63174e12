//! Tests the view on a store.

mod ending;
mod many;
mod mixed;
mod paced;
mod ring;

use async_trait::async_trait;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::LockStore;
use lease_core::{Attempt, Locker, Written};
use lease_memory::MemoryStore;

use super::*;
use crate::plan::{MemberState, fleet};
use crate::processor::{Outcome, RecordProcessor, ShardContext};
use crate::source::Source;
use crate::table::row;
use crate::{Batch, Checkpointer, Position, SimStream, Worker};

struct Idle;

#[async_trait]
impl RecordProcessor for Idle {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }
}

/// A worker that only looks.
struct Looking {
    worker: WorkerParts,
    view: View,
    session: Option<Lease>,
}

impl Looking {
    async fn new(table: &(impl LeaseTable + Clone), name: &str) -> Self {
        let factory = |_: &ShardContext| Idle;
        let worker = Worker::builder("shop", table.clone(), SimStream::new(4), factory);
        let worker = worker.with_name(name.parse().unwrap()).with_session().build().unwrap();
        let mut looking = Self { worker: worker.into_parts(), view: View::new(), session: None };
        looking.start().await;
        looking
    }

    async fn start(&mut self) {
        self.start_without_count().await;
        self.view.count(&self.worker).await.unwrap();
        self.look(Listed::Changed).await;
    }

    async fn start_without_count(&mut self) {
        let own = self.worker.row_locker.obtain(&self.worker.own_key).await.unwrap();
        let session = own.into_lease().unwrap();
        self.worker.locker = self.worker.locker.under(&session).unwrap();
        self.view.start(&session);
        self.session = Some(session);
        self.write().await;
    }

    async fn report(&mut self) {
        self.write().await;
        self.view.count(&self.worker).await.unwrap();
    }

    async fn write(&mut self) {
        let change = self.view.write(fleet::change(&self.worker.me));
        let session = self.session.as_ref().unwrap();
        let written = session.update(&*self.worker.settings.table, &change).await.unwrap();
        assert_eq!(written, Written::Applied);
    }

    async fn look(&mut self, listed: Listed) -> Looked {
        let (reading, mut unreadable) = (BTreeSet::new(), LogThrottles::default());
        self.view.look(&self.worker, &reading, &mut unreadable, listed).await.unwrap()
    }

    /// Returns the number of rows that were read.
    async fn catch_up(&mut self) -> usize {
        let (reading, mut unreadable) = (BTreeSet::new(), LogThrottles::default());
        let before = self.view.rows_read;
        self.view.catch_up(&self.worker, &reading, &mut unreadable).await.unwrap();
        self.view.rows_read - before
    }

    async fn sees_leaving(&mut self, name: &str) -> bool {
        let members = self.look(Listed::Changed).await.members;
        let member = members.iter().find(|member| member.name.as_str() == name).unwrap();
        member.state == MemberState::Leaving
    }

    /// The shards in this worker's view, each with its holder.
    async fn shards(&mut self) -> Vec<String> {
        let snapshot = self.look(Listed::Changed).await.snapshot;
        let placement = snapshot.placement(|row| self.view.is_live(row));
        let text = |(key, holder): (LeaseKey, Option<_>)| {
            let shard = key.as_str().rsplit('-').next().unwrap().trim_start_matches('0').to_owned();
            match holder {
                Some(holder) => format!("{shard} of {holder}"),
                None => shard,
            }
        };
        placement.into_iter().map(text).collect()
    }
}

fn key(shard: usize) -> LeaseKey {
    LeaseKey::new(format!("shop/shards/shardId-{shard:012}")).unwrap()
}

async fn create(table: &MemoryStore, shards: &[usize]) {
    let listed = SimStream::new(4).shards().await.unwrap();
    for shard in shards {
        let row = row::new_row(&listed[shard % 4], &Position::TrimHorizon);
        assert!(table.create(&key(*shard), &row).await.unwrap());
    }
}

async fn delete_counters(table: &MemoryStore) {
    let changes = "shop/changes".parse().unwrap();
    let lease = Locker::new(table.clone()).obtain(&changes).await.unwrap().into_lease().unwrap();
    lease.delete(table.clone()).await.unwrap();
}

async fn obtain(looking: &mut Looking, shard: usize) -> Lease {
    let Attempt::Obtained(lease) = looking.worker.locker.obtain(&key(shard)).await.unwrap() else {
        panic!("shard {shard} is held");
    };
    looking.view.obtained(&looking.worker, lease.key());
    lease
}

#[tokio::test(start_paused = true)]
async fn notice_shows_the_other_workers_a_claim() {
    let table = MemoryStore::new();
    create(&table, &[1, 2]).await;
    let (mut a, mut b) = (Looking::new(&table, "a").await, Looking::new(&table, "b").await);
    assert_eq!(a.shards().await, ["1", "2"]);

    let _lease = obtain(&mut b, 2).await;
    assert_eq!(a.shards().await, ["1", "2"], "no notice yet");
    b.report().await;

    assert_eq!(a.shards().await, ["1", "2 of b"]);
}

#[tokio::test(start_paused = true)]
async fn row_without_a_notice_is_found_by_one_audit_and_reported_to_all() {
    let table = MemoryStore::new();
    create(&table, &[1]).await;
    let (mut a, mut b) = (Looking::new(&table, "a").await, Looking::new(&table, "b").await);
    create(&table, &[2]).await;
    assert_eq!((a.shards().await, b.shards().await), (vec!["1".into()], vec!["1".into()]));

    a.look(Listed::All).await;
    assert_eq!(a.shards().await, ["1", "2"]);
    assert!(a.view.must_count());
    a.report().await;

    assert_eq!(b.shards().await, ["1", "2"]);
    b.look(Listed::All).await;
    b.shards().await;
    assert!(!b.view.must_count(), "b knew the row");
}

#[tokio::test(start_paused = true)]
async fn shard_of_session_that_has_ended_is_free_for_all() {
    let table = MemoryStore::new();
    create(&table, &[1]).await;
    let mut all = [
        Looking::new(&table, "a").await,
        Looking::new(&table, "b").await,
        Looking::new(&table, "c").await,
    ];
    let lease = obtain(&mut all[2], 1).await;
    all[2].report().await;
    let [mut a, mut b, c] = all;
    assert_eq!(a.shards().await, ["1 of c"]);
    assert_eq!(b.shards().await, ["1 of c"]);
    c.session.unwrap().abandon();
    lease.abandon();

    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(
        (a.shards().await, b.shards().await),
        (vec!["1 of c".into()], vec!["1 of c".into()])
    );
    tokio::time::sleep(Duration::from_secs(3)).await;

    // The predecessor of c ends the session, and removes its counter. The other worker then reads its row.
    assert_eq!(b.shards().await, ["1"]);
    assert_eq!(a.shards().await, ["1"]);
}

/// The name stays, and the number of the counter may repeat. Only the token differs.
#[tokio::test(start_paused = true)]
async fn worker_that_starts_again_has_no_shard_of_its_former_session() {
    let table = MemoryStore::new();
    create(&table, &[1]).await;
    let (mut a, mut b) = (Looking::new(&table, "a").await, Looking::new(&table, "b").await);
    let _lease = obtain(&mut b, 1).await;
    b.report().await;
    assert_eq!(a.shards().await, ["1 of b"]);

    b.session.take().unwrap().release().await.unwrap();
    b.start().await;

    assert_eq!(b.shards().await, ["1"]);
    assert_eq!(a.shards().await, ["1"]);
}

#[tokio::test(start_paused = true)]
async fn expiry_of_lease_with_a_ttl_is_seen_without_a_notice() {
    let table = MemoryStore::new();
    create(&table, &[1]).await;
    let earlier = Locker::new(table.clone()).with_lessee("earlier".parse().unwrap());
    let lease = earlier.obtain(&key(1)).await.unwrap().into_lease().unwrap();
    let mut a = Looking::new(&table, "a").await;
    assert_eq!(a.shards().await, ["1 of earlier"]);

    lease.abandon();
    tokio::time::sleep(Duration::from_secs(31)).await;

    assert_eq!(a.shards().await, ["1"]);
}

/// The worker has an unanswered claim, or its answer was lost. lease-core releases the shard later.
#[tokio::test(start_paused = true)]
async fn unanswered_claim_is_reported_when_it_is_settled() {
    let table = MemoryStore::new();
    create(&table, &[1]).await;
    let (mut a, mut b) = (Looking::new(&table, "a").await, Looking::new(&table, "b").await);
    let lease = b.worker.locker.obtain(&key(1)).await.unwrap().into_lease().unwrap();
    b.view.unclear(key(1));
    a.view.refused(key(1));
    assert_eq!(a.shards().await, ["1 of b"]);
    assert_eq!(b.shards().await, ["1 of b"]);
    assert!(!b.view.must_count());

    lease.release().await.unwrap();
    assert_eq!(b.shards().await, ["1"]);
    assert!(b.view.must_count());
    b.report().await;

    assert_eq!(a.shards().await, ["1"]);
}

#[tokio::test(start_paused = true)]
async fn row_that_names_another_holder_is_disowned() {
    let table = MemoryStore::new();
    create(&table, &[1]).await;
    let mut a = Looking::new(&table, "a").await;
    let lease = obtain(&mut a, 1).await;
    // As after a failover of a store that has lost the claim.
    table.release(lease.grant(), None).await.unwrap();

    let (reading, mut unreadable) = (BTreeSet::from([key(1)]), LogThrottles::default());
    let looked = a.view.look(&a.worker, &reading, &mut unreadable, Listed::All).await.unwrap();

    assert_eq!(looked.disowned, BTreeSet::from([key(1)]));
}

#[tokio::test(start_paused = true)]
async fn removed_counter_keeps_the_session_until_its_row_ends() {
    let table = MemoryStore::new();
    create(&table, &[1]).await;
    let (mut a, mut b) = (Looking::new(&table, "a").await, Looking::new(&table, "b").await);
    let _lease = obtain(&mut b, 1).await;
    b.report().await;
    assert_eq!(a.shards().await, ["1 of b"]);

    delete_counters(&table).await;

    assert_eq!(a.shards().await, ["1 of b"]);
    b.session.take().unwrap().abandon();
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(a.shards().await, ["1"]);
}

/// Without the restoration, the counter would repeat the number that the reader has seen.
#[tokio::test(start_paused = true)]
async fn removed_counter_returns_above_its_former_value() {
    let table = MemoryStore::new();
    create(&table, &[1]).await;
    let (mut a, mut b) = (Looking::new(&table, "a").await, Looking::new(&table, "b").await);
    // More than the counts that the worker would repeat.
    for _report in 0..10 {
        b.view.own_row_changes();
        b.report().await;
    }
    assert_eq!(a.shards().await, ["1"]);

    delete_counters(&table).await;
    let _lease = obtain(&mut b, 1).await;
    b.report().await;

    assert!(!b.view.must_count());
    assert_eq!(a.shards().await, ["1 of b"]);
}

/// The request may have counted, and a reader may have seen the number.
#[tokio::test(start_paused = true)]
async fn number_of_unanswered_count_does_not_return() {
    let store = MemoryStore::new();
    let table = Faulty::new(store.clone());
    create(&store, &[1]).await;
    let mut a = Looking::new(&table, "a").await;
    let mut b = Looking::new(&table, "b").await;

    b.view.own_row_changes();
    b.write().await;
    table.next(Call::Write, Fault::LoseReply);
    b.view.count(&b.worker).await.unwrap_err();
    assert_eq!(a.shards().await, ["1"], "a has seen the number 2");
    delete_counters(&store).await;
    let _lease = obtain(&mut b, 1).await;
    b.report().await;

    assert_eq!(a.shards().await, ["1 of b"]);
}

/// The request was not answered. It arrives after the next write and its count.
#[tokio::test(start_paused = true)]
async fn late_write_of_the_own_row_hides_no_notice() {
    let table = MemoryStore::new();
    create(&table, &[1, 2]).await;
    let (mut a, mut b) = (Looking::new(&table, "a").await, Looking::new(&table, "b").await);
    let late = b.view.write(fleet::change(&b.worker.me));
    b.view.write_is_unanswered();
    assert_eq!(a.shards().await, ["1", "2"]);

    let _lease = obtain(&mut b, 2).await;
    b.report().await;
    let session = b.session.as_ref().unwrap();
    assert_eq!(session.update(&table, &late).await.unwrap(), Written::Applied);

    tokio::time::sleep(Duration::from_secs(1)).await;
    a.shards().await;
    assert_eq!(a.shards().await, ["1", "2 of b"]);
}

/// Otherwise, the worker would have to set its counter under a lease.
#[tokio::test(start_paused = true)]
async fn unanswered_write_costs_one_more_count() {
    let store = MemoryStore::new();
    let table = Faulty::new(store.clone());
    create(&store, &[1]).await;
    let (mut a, mut b) = (Looking::new(&table, "a").await, Looking::new(&table, "b").await);
    let _changes = Locker::new(store.clone()).obtain(&"shop/changes".parse().unwrap()).await;

    drop(b.view.write(fleet::change(&b.worker.me)));
    b.view.write_is_unanswered();
    let _lease = obtain(&mut b, 1).await;
    b.report().await;

    assert!(!b.view.must_count());
    assert_eq!(a.shards().await, ["1 of b"]);
}

/// The readers would take a smaller number in the row for a late write, and list all rows.
#[tokio::test(start_paused = true)]
async fn count_that_was_applied_twice_makes_no_reader_list() {
    let table = MemoryStore::new();
    create(&table, &[1]).await;
    let (mut a, mut b) = (Looking::new(&table, "a").await, Looking::new(&table, "b").await);
    let _lease = obtain(&mut b, 1).await;
    b.write().await;
    let id = b.view.own.as_ref().unwrap().0.to_string();
    table.count(&"shop/changes".parse().unwrap(), &id).await.unwrap();

    b.view.count(&b.worker).await.unwrap();
    assert!(b.view.must_count(), "the row has a number that is too small");
    assert_eq!(a.look(Listed::Changed).await.is_listed, Listed::Changed);
    b.report().await;

    assert_eq!(a.look(Listed::Changed).await.is_listed, Listed::Changed);
    assert!(!b.view.must_count());
}

/// The table throttles the counts of this worker.
#[tokio::test(start_paused = true)]
async fn worker_that_cannot_count_is_known_by_a_row_that_it_holds() {
    let table = MemoryStore::new();
    create(&table, &[1, 2]).await;
    let (mut a, mut b) = (Looking::new(&table, "a").await, Looking::new(&table, "b").await);
    b.session.take().unwrap().release().await.unwrap();
    b.start_without_count().await;
    let _lease = obtain(&mut b, 1).await;

    a.view.refused(key(1));
    a.shards().await;
    assert_eq!(a.shards().await, ["1 of b", "2"]);
    let _lease = obtain(&mut b, 2).await;
    b.write().await;

    assert_eq!(a.shards().await, ["1 of b", "2 of b"]);
    b.session.take().unwrap().abandon();
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(a.shards().await, ["1", "2"]);
}
