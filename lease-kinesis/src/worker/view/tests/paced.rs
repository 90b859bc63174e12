//! Changes by many workers at once, which a worker reads at a limited pace.

use lease_core::Change;
use lease_core::store::LockStore;

use super::*;

/// A worker of which only the rows exist.
pub(super) struct Other {
    pub(super) session: Lease,
    locker: Locker,
    notices: Notices,
    count: i64,
    leases: Vec<Lease>,
}

impl Other {
    async fn new(table: &MemoryStore, number: usize) -> Self {
        let name: Lessee = format!("w{number:03}").parse().unwrap();
        let own_row = format!("shop/workers/{name}").parse().unwrap();
        let locker = Locker::new(table.clone()).with_lessee(name);
        let session = locker.obtain(&own_row).await.unwrap().into_lease().unwrap();
        let locker = locker.under(&session).unwrap();
        let mut other =
            Self { session, locker, notices: Notices::default(), count: 0, leases: Vec::new() };
        other.report(table).await;
        other
    }

    async fn obtain(&mut self, table: &MemoryStore, shard: usize) {
        let lease = self.locker.obtain(&key(shard)).await.unwrap().into_lease().unwrap();
        self.leases.push(lease);
        self.notice(table, shard).await;
    }

    pub(super) async fn notice(&mut self, table: &MemoryStore, shard: usize) {
        self.notices.add(&"shop".parse().unwrap(), &key(shard), now());
        self.report(table).await;
    }

    /// Reads `shard` to its end, and creates the row of its child.
    pub(super) async fn end(&mut self, table: &MemoryStore, shard: usize, child: usize) {
        create(table, &[child]).await;
        let children = BTreeSet::from([format!("shardId-{child:012}").parse().unwrap()]);
        let change = row::children_change(&children).set("checkpoint", "SHARD_END");
        let lease = self.leases.iter().find(|lease| *lease.key() == key(shard)).unwrap();
        assert_eq!(lease.update(table, &change).await.unwrap(), Written::Applied);
        self.notice(table, shard).await;
        self.notice(table, child).await;
    }

    pub(super) fn id(&self) -> SessionId {
        SessionId::new(self.session.lessee().clone(), self.session.token())
    }

    async fn report(&mut self, table: &MemoryStore) {
        self.count += 1;
        let change = self.notices.write(Change::new(), RowCount(self.count));
        assert_eq!(self.session.update(table, &change).await.unwrap(), Written::Applied);
        table.count(&"shop/changes".parse().unwrap(), &self.id().to_string()).await.unwrap();
    }
}

/// Returns a worker that knows `others` workers, and the shard that each of them holds.
pub(super) async fn fleet(table: &MemoryStore, others: usize) -> (Looking, Vec<Other>) {
    create(table, &(0..2 * others).collect::<Vec<_>>()).await;
    let mut all = Vec::new();
    for number in 0..others {
        let mut other = Other::new(table, number).await;
        other.obtain(table, number).await;
        all.push(other);
    }
    let mut looking = Looking::new(table, "a").await;
    looking.look(Listed::Changed).await;
    assert_eq!(looking.view.next_read(), None);
    (looking, all)
}

/// Each of the others obtains one more shard.
pub(super) async fn change_all(table: &MemoryStore, others: &mut [Other]) {
    let count = others.len();
    for (number, other) in others.iter_mut().enumerate() {
        other.obtain(table, count + number).await;
    }
}

/// Without a limit, all workers would read all of these rows in one second.
#[tokio::test(start_paused = true)]
async fn changes_by_many_workers_are_read_at_the_pace_of_the_fleet() {
    let table = MemoryStore::new();
    let (mut a, mut others) = fleet(&table, 59).await;
    change_all(&table, &mut others).await;
    let rows_read = |looking: &Looking| looking.worker.status.status().counters.rows_read;

    let before = rows_read(&a);
    a.look(Listed::Changed).await;
    assert!(rows_read(&a) - before <= 3 + 2, "{} rows in a tick", rows_read(&a) - before);
    let (begun, mut rows) = (now(), Vec::new());
    while let Some(next) = a.view.next_read() {
        tokio::time::sleep_until(next).await;
        rows.push((now(), a.catch_up().await));
    }

    let all: usize = rows.iter().map(|(_, count)| count).sum();
    assert!((2 * 59 - 2..=2 * 59).contains(&all), "{all} rows");
    let after = |at: &Instant| at.duration_since(begun);
    let within = |from: u64| {
        let second = Duration::from_secs(from)..Duration::from_secs(from + 1);
        rows.iter().filter(|(at, _)| second.contains(&after(at))).map(|(_, count)| count).sum()
    };
    let most: usize = (0..10).map(within).max().unwrap();
    assert!(most <= 1_500 / 60 + 3, "{most} rows in a second");
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    assert!(a.shards().await.iter().all(|shard| shard.contains(" of w")));
}

#[tokio::test(start_paused = true)]
async fn end_of_a_session_is_found_before_other_changes_are_read() {
    let table = MemoryStore::new();
    let (mut a, mut others) = fleet(&table, 59).await;
    change_all(&table, &mut others).await;
    others.remove(0).session.abandon();
    tokio::time::sleep(Duration::from_secs(31)).await;

    let free = a.shards().await.into_iter().filter(|shard| !shard.contains(" of "));

    assert!(a.view.late_since.is_some());
    assert!(free.collect::<Vec<_>>().contains(&String::new()), "shard 0 is not free");
}

#[tokio::test(start_paused = true)]
async fn worker_that_stops_is_read_before_other_changes() {
    let table = MemoryStore::new();
    let (mut a, mut others) = fleet(&table, 59).await;
    let mut z = Looking::new(&table, "z").await;
    a.look(Listed::Changed).await;
    change_all(&table, &mut others).await;
    z.worker.me.state = MemberState::Leaving;
    z.view.own_row_changes();
    z.report().await;
    assert!(!a.sees_leaving("z").await, "a is not late");

    z.view.leaves();
    z.report().await;

    assert!(a.sees_leaving("z").await);
    assert!(a.view.late_since.is_some());
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_worker_that_has_stopped_stays_in_the_counters() {
    let table = MemoryStore::new();
    let (mut a, mut z) = (Looking::new(&table, "a").await, Looking::new(&table, "z").await);
    a.look(Listed::Changed).await;
    z.view.leaves();
    z.report().await;
    let counters = async || {
        let row = table.read(&"shop/changes".parse().unwrap()).await.unwrap().unwrap();
        row.attributes.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(counters().await.len(), 3);

    z.session.take().unwrap().delete(table.clone()).await.unwrap();
    a.look(Listed::Changed).await;

    assert_eq!(counters().await, [a.view.own.as_ref().unwrap().0.to_string()]);
}

#[tokio::test(start_paused = true)]
async fn audit_reports_no_row_whose_notice_is_unread() {
    let table = MemoryStore::new();
    let (mut a, mut others) = fleet(&table, 59).await;
    change_all(&table, &mut others).await;
    // This row has no notice.
    table.release(others[58].leases[0].grant(), None).await.unwrap();

    a.look(Listed::All).await;
    a.look(Listed::Changed).await;
    assert!(!a.view.must_count() && a.view.late_since.is_some(), "the notices are not read yet");
    while let Some(next) = a.view.next_read() {
        tokio::time::sleep_until(next).await;
        a.catch_up().await;
    }
    let before = a.view.notices.write(Change::new(), RowCount(1));
    a.look(Listed::Changed).await;

    let after = a.view.notices.write(Change::new(), RowCount(1));
    let added = |change: &Change| {
        let mut attributes = lease_core::Attributes::new();
        change.apply(&mut attributes);
        attributes["noticed"].as_i64().unwrap()
    };
    assert_eq!(added(&after) - added(&before), 1);
}

/// The rows of the first workers change all the time, faster than the reader reads.
#[tokio::test(start_paused = true)]
async fn each_worker_has_its_turn() {
    let table = MemoryStore::new();
    let (mut a, mut others) = fleet(&table, 59).await;
    others[58].obtain(&table, 100).await;

    for _look in 0..10 {
        for other in &mut others[..4] {
            other.report(&table).await;
        }
        a.look(Listed::Changed).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    assert!(a.shards().await.contains(&"100 of w058".to_owned()));
}

/// A reader that misses a notice lists all rows, and a list of a large fleet is expensive.
#[tokio::test(start_paused = true)]
async fn notices_stay_until_all_workers_of_a_large_fleet_can_read_them() {
    let table = MemoryStore::new();
    let (mut a, _others) = fleet(&table, 199).await;
    let _lease = obtain(&mut a, 300).await;
    let ttl = Duration::from_secs(10);

    tokio::time::sleep(ttl * 4).await;
    assert!(!a.view.forget_old_notices(ttl * 3));
    tokio::time::sleep(ttl * 2).await;
    assert!(a.view.forget_old_notices(ttl * 3));
}

/// As in a cold start of a large fleet. A list for each part of the changes would cost more than the reads.
#[tokio::test(start_paused = true)]
async fn many_changes_of_many_workers_cost_few_lists() {
    let table = MemoryStore::new();
    let (mut a, mut others) = fleet(&table, 59).await;
    create(&table, &(118..118 + 59 * 40).collect::<Vec<_>>()).await;
    for (number, other) in others.iter_mut().enumerate() {
        for shard in 0..40 {
            other.obtain(&table, 118 + number * 40 + shard).await;
        }
    }

    let mut lists = 0;
    for _look in 0..60 {
        lists += usize::from(a.look(Listed::Changed).await.is_listed == Listed::All);
        a.catch_up().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    assert!((1..=2).contains(&lists), "{lists} lists");
    assert_eq!(a.shards().await.iter().filter(|shard| shard.contains(" of w")).count(), 59 * 41);
}
