//! Scenarios of queues.

use std::time::Duration;

use lease_core::Written;
use lease_core::store::{Claim, Enqueued, Grant, InTurn, LeaseTable, LockStore, Notice};
use tokio::time::timeout;

use crate::world::{ALMOST_TTL, Handle, TTL, World, claim, key, lessee};

pub(crate) async fn waiters_are_granted_in_the_order_of_arrival(world: World) {
    let (store, other) = (world.open().await, world.open().await);
    let mut held = store.granted(&claim("a")).await;
    let waiting = [claim("b"), claim("c"), claim("d")];
    for (store, waiting) in [&store, &other, &store].into_iter().zip(&waiting) {
        store.is_queued(waiting).await;
    }

    for waiting in &waiting {
        store.release(&held).await;
        held = other.is_granted(waiting).await;
    }

    store.release(&held).await;
    assert_eq!(store.holder().await, None);
}

pub(crate) async fn place_expires_unless_it_is_renewed(world: World) {
    let store = world.open().await;
    let mut long = claim("a");
    long.ttl = TTL * 10;
    let held = store.granted(&long).await;
    let [dead, living] = [claim("b"), claim("c")];
    for waiting in [&dead, &living] {
        store.is_queued(waiting).await;
    }
    world.pass(ALMOST_TTL);
    store.0.renew(&living).await.unwrap();
    // The store's thread answers, then cleans. So the second answer comes after the cleaning.
    store.0.renew(&living).await.unwrap();
    world.pass(Duration::from_micros(1));

    store.release(&held).await;

    store.is_granted(&living).await;
}

pub(crate) async fn place_of_another_boot_has_expired(world: World) {
    let store = world.open().await;
    let held = store.granted(&claim("a")).await;
    let [dead, copied, later] = [claim("b"), claim("c"), claim("d")];
    store.is_queued(&dead).await;
    store.is_queued(&copied).await;
    world.machine.reboot(Duration::from_secs(1));
    store.0.renew(&copied).await.unwrap();
    store.is_queued(&later).await;

    store.release(&held).await;

    let held = store.is_granted(&copied).await;
    store.release(&held).await;
    store.is_granted(&later).await;
}

pub(crate) async fn grant_names_the_largest_request(world: World) {
    let store = world.open().await;
    let held = store.granted(&claim("a")).await;
    let waiting = claim("b");
    store.is_queued(&waiting).await;
    let last = waiting.clone().repeated().repeated();
    store.0.renew(&last).await.unwrap();
    store.is_queued(&waiting).await;

    store.release(&held).await;

    assert_eq!(store.is_granted(&waiting).await.request, Some(last.request));
}

pub(crate) async fn renewal_of_another_claim_is_no_renewal(world: World) {
    let store = world.open().await;
    store.granted(&claim("a")).await;
    store.is_queued(&claim("b")).await;

    let answer = store.0.renew(&claim("stranger")).await.unwrap();

    assert_eq!(answer, Enqueued::Gone);
}

pub(crate) async fn queue_of_another_key_is_left_alone(world: World) {
    let store = world.open().await;
    let held = store.granted(&claim("a")).await;
    let mut other = claim("a");
    other.key = key("other");
    let other = store.granted(&other).await;
    let waiting = claim("b");
    store.is_queued(&waiting).await;

    store.release(&other).await;
    store.release(&held).await;

    store.is_granted(&waiting).await;
    assert_eq!(store.0.holder(&key("other")).await.unwrap(), None);
}

pub(crate) async fn expired_places_are_removed(world: World) {
    let store = world.open().await;
    let mut long = claim("a");
    long.ttl = TTL * 10;
    store.granted(&long).await;
    store.is_queued(&claim("b")).await;
    let places = || -> i64 {
        let file = world.connect();
        file.query_row("SELECT count(*) FROM waiter", [], |row| row.get(0)).unwrap()
    };

    store.cleans(&world, Duration::from_secs(11)).await;
    let before = places();
    store.cleans(&world, TTL).await;

    assert_eq!((before, places()), (1, 0));
}

/// A reserved key is granted to its lessee only, also within a queue.
pub(crate) async fn transferred_key_is_granted_to_its_waiter(world: World) {
    let store = world.open().await;
    let held = store.granted(&claim("a")).await;
    let [first, second] = [claim("b"), claim("c")];
    store.is_queued(&first).await;
    store.is_queued(&second).await;

    let written = store.0.transfer(&held, &lessee("c"), TTL).await.unwrap();

    assert_eq!(written, Written::Applied);
    let held = store.is_granted(&second).await;
    store.release(&held).await;
    store.is_granted(&first).await;
}

/// Otherwise, the waiter would not know when the reservation ends.
pub(crate) async fn reservation_is_noticed_once_by_waiters(world: World) {
    let (store, other) = (world.open().await, world.open().await);
    for ends_with in ["release", "transfer"] {
        let held = other.granted(&claim("a")).await;
        let waiting = claim("b");
        let mut notices = store.0.listen(&waiting).await.unwrap();
        store.is_queued(&waiting).await;

        if ends_with == "release" {
            other.0.release(&held, Some(TTL / 2)).await.unwrap();
        } else {
            let written = other.0.transfer(&held, &lessee("absent"), TTL / 2).await.unwrap();
            assert_eq!(written, Written::Applied);
        }

        let notice = timeout(LIMIT, notices.next()).await.unwrap();
        assert_eq!(notice, Notice::Missed, "{ends_with}");
        let mut notices = store.0.listen(&waiting).await.unwrap();
        store.is_queued(&waiting).await;
        world.pass(TTL / 2);
        other.0.renew(&waiting).await.unwrap();
        let notice = timeout(LIMIT, notices.next()).await.unwrap();
        let Notice::Granted(held, _) = notice else { panic!("a second notice: {notice:?}") };
        store.release(&held).await;
    }
}

impl Handle {
    async fn is_queued(&self, claim: &Claim) {
        let answer = self.0.enqueue(claim).await.unwrap();
        assert!(matches!(answer, Enqueued::Queued(_)), "{answer:?}");
    }

    async fn is_granted(&self, claim: &Claim) -> Grant {
        let answer = self.0.renew(claim).await.unwrap();
        let Enqueued::Granted(grant, _) = answer else { panic!("{answer:?}") };
        assert_eq!(grant.nonce, claim.nonce);
        grant
    }
}

const LIMIT: Duration = Duration::from_secs(60);
