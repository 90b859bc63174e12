//! Sessions that end one after the other.

use super::*;

/// Otherwise, the end of each further session would be found a tick later.
#[tokio::test(start_paused = true)]
async fn session_after_an_ended_one_is_looked_at_when_it_expires() {
    let table = MemoryStore::new();
    let mut a = Looking::new(&table, "a").await;
    let mut b = Looking::new(&table, "b").await;
    let mut c = Looking::new(&table, "c").await;
    a.look(Listed::Changed).await;
    b.session.take().unwrap().abandon();
    tokio::time::sleep(Duration::from_secs(4)).await;
    c.session.take().unwrap().abandon();

    // The session of b expires before that of c.
    let is_b =
        |looked: &Looked| looked.members.iter().any(|member| member.name == b.worker.me.name);
    while is_b(&a.look(Listed::Changed).await) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    let next = a.view.next_expiry();
    assert!(next.is_some_and(|left| left < Duration::from_secs(10)), "{next:?}");
}
