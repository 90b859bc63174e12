//! Workers of the mode before, which have no session and send no notices.

use super::*;

fn earlier(table: &MemoryStore) -> Locker {
    Locker::new(table.clone()).with_lessee("earlier".parse().unwrap())
}

fn names(looked: &Looked) -> Vec<&str> {
    looked.members.iter().map(|member| member.name.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn worker_without_a_session_is_a_member_while_it_holds_its_row() {
    let table = MemoryStore::new();
    let own_row = "shop/workers/earlier".parse().unwrap();
    let row = earlier(&table).obtain(&own_row).await.unwrap().into_lease().unwrap();
    let mut a = Looking::new(&table, "a").await;
    assert_eq!(names(&a.look(Listed::Changed).await), ["earlier", "a"]);
    assert!(!a.view.is_under_a_session(row.lessee()));

    let name = row.lessee().clone();
    row.release().await.unwrap();

    assert_eq!(names(&a.look(Listed::Changed).await), ["a"]);
    assert!(a.view.is_under_a_session(&name));
}

#[tokio::test(start_paused = true)]
async fn holder_of_a_shard_without_a_session_is_found_without_a_list() {
    let table = MemoryStore::new();
    create(&table, &[1]).await;
    let mut a = Looking::new(&table, "a").await;
    let locker = earlier(&table);
    let own_row = "shop/workers/earlier".parse().unwrap();
    let _row = locker.obtain(&own_row).await.unwrap().into_lease().unwrap();
    let _lease = locker.obtain(&key(1)).await.unwrap().into_lease().unwrap();

    a.view.refused(key(1));
    a.look(Listed::Changed).await;

    assert_eq!(names(&a.look(Listed::Changed).await), ["earlier", "a"]);
}

#[tokio::test(start_paused = true)]
async fn claim_by_worker_without_a_session_is_seen_without_a_notice() {
    let table = MemoryStore::new();
    create(&table, &[1]).await;
    let locker = earlier(&table);
    let own_row = "shop/workers/earlier".parse().unwrap();
    let _row = locker.obtain(&own_row).await.unwrap().into_lease().unwrap();
    let mut a = Looking::new(&table, "a").await;
    assert_eq!(a.shards().await, ["1"]);

    let _lease = locker.obtain(&key(1)).await.unwrap().into_lease().unwrap();

    assert_eq!(a.shards().await, ["1 of earlier"]);
}
