//! A locker that sets attributes with each grant.

use std::time::Duration;

use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::LeaseTable;
use lease_core::{Attributes, Change, Handed, Locker, Ttl, Value, Written};
use lease_memory::MemoryStore;

use crate::{key, obtained};

fn address(address: &str) -> Attributes {
    Attributes::from([("address".to_owned(), Value::from(address))])
}

async fn stored_attributes(store: &MemoryStore) -> Attributes {
    store.read(&key("job")).await.unwrap().unwrap().attributes
}

#[tokio::test(start_paused = true)]
async fn each_way_to_obtain_sets_attributes_in_one_request() {
    let memory = MemoryStore::new();
    let store = Faulty::new(memory.clone());
    let locker = |name| Locker::new(store.clone()).with_attributes(address(name));
    let job = key("job");

    let first = obtained(&locker("first"), "job").await;
    assert_eq!(
        (first.attributes(), stored_attributes(&memory).await),
        (&address("first"), address("first"))
    );
    first.release().await.unwrap();
    let second = locker("second").wait_until_obtained(&job).await.unwrap();
    assert_eq!(second.attributes(), &address("second"));
    second.release().await.unwrap();
    let third = locker("third").obtain_any(std::slice::from_ref(&job)).await.unwrap().unwrap();
    assert_eq!(third.attributes(), &address("third"));
    let Handed::Over(handed) =
        third.hand_over(Ttl::clamped(Duration::from_secs(10))).await.unwrap()
    else {
        panic!("the lease was held")
    };
    let fourth = locker("fourth").resume(handed).await.unwrap().unwrap();

    assert_eq!(
        (fourth.attributes(), stored_attributes(&memory).await),
        (&address("fourth"), address("fourth"))
    );
    let requests = [Call::Obtain, Call::Adopt, Call::Write].map(|call| store.calls(call));
    assert_eq!(requests, [3, 1, 0], "claims, adoptions and updates");
}

#[tokio::test(start_paused = true)]
async fn attempt_after_lost_reply_does_not_undo_an_update() {
    let memory = MemoryStore::new();
    let store = Faulty::new(memory.clone());
    // Lockers with one seed and one lessee send the same claim.
    let seeded = |locker: Locker| {
        let locker = locker.with_seed(7).with_lessee("lessee".parse().unwrap());
        locker.with_attributes(address("10.0.0.1"))
    };
    let (locker, twin) = (seeded(Locker::new(store.clone())), seeded(Locker::new(memory.clone())));
    store.next(Call::Obtain, Fault::LoseReply);
    locker.obtain(&key("job")).await.unwrap_err();
    let granted = obtained(&twin, "job").await;
    let change = Change::from(address("10.0.0.2"));
    assert_eq!(memory.update(granted.grant(), &change).await.unwrap(), Written::Applied);

    let lease = obtained(&locker, "job").await;

    assert_eq!(lease.grant(), granted.grant());
    assert_eq!(
        (lease.attributes(), stored_attributes(&memory).await),
        (&address("10.0.0.2"), address("10.0.0.2"))
    );
}
