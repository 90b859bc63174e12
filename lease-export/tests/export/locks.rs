//! What an exporter's lease does for it, in the words of the earlier exporter's lock.

use lease_core::{Attempt, Released};

use crate::world::{TTL, World, everywhere, key};

everywhere! {
    who_obtains_the_lease_is_its_holder
    the_lease_is_obtained_once
    the_lease_lasts_no_longer_than_its_ttl
    what_was_released_can_be_obtained
    nobody_holds_what_is_free
}

async fn who_obtains_the_lease_is_its_holder(world: World) {
    let locker = world.locker();
    let Attempt::Obtained(lease) = locker.obtain(&key()).await.unwrap() else { panic!("held") };

    let holder = locker.holder(&key()).await.unwrap().unwrap();

    assert_eq!(holder.token, lease.token());
}

async fn the_lease_is_obtained_once(world: World) {
    let _lease = world.locker().wait_until_obtained(&key()).await.unwrap();

    let attempt = world.locker().obtain(&key()).await.unwrap();

    assert!(matches!(attempt, Attempt::Held(_)), "{attempt:?}");
}

async fn the_lease_lasts_no_longer_than_its_ttl(world: World) {
    let lease = world.locker().wait_until_obtained(&key()).await.unwrap();

    assert!(lease.remaining() <= TTL);
    let holder = world.locker().holder(&key()).await.unwrap().unwrap();
    assert!(holder.expires_in.is_none_or(|left| left <= TTL), "{holder:?}");
}

async fn what_was_released_can_be_obtained(world: World) {
    let lease = world.locker().wait_until_obtained(&key()).await.unwrap();

    assert_eq!(lease.release().await.unwrap(), Released::Freed);

    let attempt = world.locker().obtain(&key()).await.unwrap();
    assert!(matches!(attempt, Attempt::Obtained(_)), "{attempt:?}");
}

async fn nobody_holds_what_is_free(world: World) {
    assert_eq!(world.locker().holder(&key()).await.unwrap(), None);
}
