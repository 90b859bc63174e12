//! Changes of more rows than a worker reads one by one.

use lease_core::store::LockStore;

use super::*;

const ALL: usize = MOST_READS + 88;

async fn looking_at_all(table: &MemoryStore) -> Looking {
    create(table, &(0..ALL).collect::<Vec<_>>()).await;
    Looking::new(table, "a").await
}

#[tokio::test(start_paused = true)]
async fn list_of_all_rows_replaces_the_reads_of_doubtful_rows() {
    let table = MemoryStore::new();
    let mut a = looking_at_all(&table).await;
    let rows_read = |looking: &Looking| looking.worker.status.status().counters.rows_read;

    (0..ALL).for_each(|shard| a.view.refused(key(shard)));
    // The outcome of this claim is only in the row of the shard, and a list may be stale.
    a.view.unclear(key(7));
    let before = rows_read(&a);
    let looked = a.look(Listed::Changed).await;

    assert_eq!(looked.is_listed, Listed::All);
    // The rows of the shards, the row of the worker, the row `changes` twice, and one row once more.
    assert_eq!(rows_read(&a) - before, (ALL + 1 + 2 + 1) as u64);
    assert!(!a.view.must_list_again(Duration::from_secs(1)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(a.view.must_list_again(Duration::from_secs(1)), "the list may have been stale");
}

#[tokio::test(start_paused = true)]
async fn loss_of_many_claims_disowns_all_of_them() {
    let table = MemoryStore::new();
    let mut a = looking_at_all(&table).await;
    let mut leases = Vec::new();
    for shard in 0..ALL {
        leases.push(obtain(&mut a, shard).await);
    }
    a.report().await;
    a.look(Listed::All).await;
    for lease in &leases {
        table.release(lease.grant(), None).await.unwrap();
    }

    let reading = leases.iter().map(|lease| lease.key().clone()).collect();
    let mut unreadable = LogThrottles::default();
    let looked = a.view.look(&a.worker, &reading, &mut unreadable, Listed::All).await.unwrap();

    assert_eq!(looked.disowned.len(), ALL);
}
