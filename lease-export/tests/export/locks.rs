//! The exporter's lease as a lock.

use lease_core::{Attempt, Released};

use crate::world::{TTL, World, everywhere, key};

everywhere! {
    obtained_lease_has_its_holder
    held_lease_is_not_obtained_again
    lease_expires_after_ttl
    released_lease_is_obtained_again
    free_lease_has_no_holder
}

async fn obtained_lease_has_its_holder(world: World) {
    let locker = world.locker();
    let Attempt::Obtained(lease) = locker.obtain(&key()).await.unwrap() else { panic!("held") };

    let holder = locker.holder(&key()).await.unwrap().unwrap();

    assert!(holder.holds(lease.grant()));
}

async fn held_lease_is_not_obtained_again(world: World) {
    let _lease = world.locker().wait_until_obtained(&key()).await.unwrap();

    let attempt = world.locker().obtain(&key()).await.unwrap();

    assert!(matches!(attempt, Attempt::Held(_)), "{attempt:?}");
}

async fn lease_expires_after_ttl(world: World) {
    let lease = world.locker().wait_until_obtained(&key()).await.unwrap();

    assert!(lease.remaining() <= TTL);
    let holder = world.locker().holder(&key()).await.unwrap().unwrap();
    assert!(holder.expires_in.is_none_or(|left| left <= TTL), "{holder:?}");
}

async fn released_lease_is_obtained_again(world: World) {
    let lease = world.locker().wait_until_obtained(&key()).await.unwrap();

    assert_eq!(lease.release().await.unwrap(), Released::Freed);

    let attempt = world.locker().obtain(&key()).await.unwrap();
    assert!(matches!(attempt, Attempt::Obtained(_)), "{attempt:?}");
}

async fn free_lease_has_no_holder(world: World) {
    assert_eq!(world.locker().holder(&key()).await.unwrap(), None);
}
