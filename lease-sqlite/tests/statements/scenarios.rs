//! Scenarios of statements.

use std::time::Duration;

use futures_util::StreamExt;
use lease_core::store::{Grant, Heartbeat, LeaseTable, LockStore, Obtained};
use lease_core::{Attributes, Change, GrantId, Written};

use crate::world::{ALMOST_TTL, Handle, TTL, World, attribute, claim, key, lessee};

pub(crate) async fn held_key_is_refused(world: World) {
    let (first, second) = (world.open().await, world.open().await);
    first.granted(&claim("a")).await;

    world.pass(ALMOST_TTL);

    assert_eq!(second.refused(&claim("b")).await.lessee, lessee("a"));
}

pub(crate) async fn expired_key_is_granted_again(world: World) {
    let store = world.open().await;
    let first = store.granted(&claim("a")).await;

    world.pass(TTL);

    assert!(store.granted(&claim("b")).await.token > first.token);
}

/// A time bound as a parameter would be from before the wait.
pub(crate) async fn ttl_counts_from_after_the_wait_for_the_lock(world: World) {
    let store = world.open().await;
    let other = world.connect();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting = claim("a");
    let mut grant = Box::pin(store.granted(&waiting));
    assert!(futures_util::poll!(&mut grant).is_pending());

    world.pass(TTL * 2);
    other.execute_batch("COMMIT").unwrap();
    grant.await;

    world.pass(ALMOST_TTL);
    store.refused(&claim("b")).await;
}

pub(crate) async fn claim_of_expired_grant_is_not_granted_again(world: World) {
    let store = world.open().await;
    let late = claim("a");
    store.granted(&late).await;

    world.pass(TTL);

    store.refused(&late.repeated()).await;
    store.granted(&claim("b")).await;
}

pub(crate) async fn released_claim_is_not_granted_again(world: World) {
    let store = world.open().await;
    let late = claim("a");
    let grant = store.granted(&late).await;
    store.release(&grant).await;

    store.refused(&late.repeated()).await;
    assert_eq!(store.holder().await, None);
}

pub(crate) async fn reserved_key_is_refused_until_its_time(world: World) {
    let store = world.open().await;
    let grant = store.granted(&claim("a")).await;
    store.0.release(&grant, Some(TTL)).await.unwrap();

    store.refused(&claim("b")).await;
    world.pass(ALMOST_TTL);
    store.refused(&claim("a")).await;
    world.pass(Duration::from_micros(1));

    store.granted(&claim("b")).await;
}

pub(crate) async fn transferred_key_is_granted_to_its_lessee_only(world: World) {
    let store = world.open().await;
    let grant = store.granted(&claim("a")).await;
    let written = store.0.transfer(&grant, &lessee("b"), TTL).await.unwrap();

    assert_eq!(written, Written::Applied);
    assert_eq!(store.refused(&claim("a")).await.lessee, lessee("b"));
    let grant = store.granted(&claim("b")).await;
    store.release(&grant).await;
    store.granted(&claim("c")).await;
}

pub(crate) async fn tokens_grow_if_the_wall_clock_stands_still(world: World) {
    let store = world.open().await;
    let first = store.granted(&claim("a")).await;
    world.machine.step_wall_clock(-1);
    let adopted = store.0.adopt(&first, &claim("b")).await.unwrap();
    let Obtained::Granted(second, _) = adopted else { panic!("{adopted:?}") };
    store.release(&second).await;
    let third = store.granted(&claim("c")).await;
    store.release(&third).await;
    world.machine.step_wall_clock(2);
    let fourth = store.granted(&claim("d")).await;

    let tokens = [first, second, third, fourth].map(|grant| grant.token.get());
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert_eq!(tokens[0] + 3_600_000_000, tokens[3], "tokens start from the wall clock");
}

pub(crate) async fn tokens_grow_over_removed_rows(world: World) {
    let store = world.open().await;
    let first = store.granted(&claim("a")).await;
    store.release(&first).await;
    let is_kept = store.is_remembered(&world).await;
    world.pass(Duration::from_secs(3600));
    let is_removed = !store.is_remembered(&world).await;
    world.machine.step_wall_clock(-1);

    let second = store.granted(&claim("b")).await;

    assert!(is_kept && is_removed, "{is_kept} {is_removed}");
    assert!(second.token > first.token, "{} after {}", second.token, first.token);
}

pub(crate) async fn new_grant_starts_anew(world: World) {
    let store = world.open().await;
    let first = store.granted(&claim("a")).await;
    assert_eq!(store.beat(&first, 100).await, Heartbeat::Extended);
    let adopted = store.0.adopt(&first, &claim("b")).await.unwrap();
    let Obtained::Granted(second, _) = adopted else { panic!("{adopted:?}") };
    assert_eq!(store.beat(&second, 1).await, Heartbeat::Extended);
    assert_eq!(store.beat(&second, 100).await, Heartbeat::Extended);
    assert!(store.0.evict(&key("job"), &GrantId::from(second.token)).await.unwrap());
    store.release(&second).await;

    let third = store.granted(&claim("c")).await;

    assert_eq!(store.beat(&third, 1).await, Heartbeat::Extended);
}

/// A late duplicate of the first claim was granted after another lessee's grant.
pub(crate) async fn earlier_token_of_one_nonce_writes_nothing(world: World) {
    let store = world.open().await;
    let late = claim("a");
    let first = store.granted(&late).await;
    store.release(&first).await;
    let between = store.granted(&claim("b")).await;
    store.release(&between).await;
    let current = store.granted(&late.repeated()).await;

    assert_eq!(first.nonce, current.nonce);
    store.writes_nothing_under(&first, &current).await;
}

/// The key's row was deleted, and the wall clock did not advance. So the next grant has an equal
/// token.
pub(crate) async fn equal_token_of_another_nonce_writes_nothing(world: World) {
    let store = world.open().await;
    let former = store.granted(&claim("a")).await;
    world.run_sql("DROP TRIGGER lease_removed; DELETE FROM lease");
    let current = store.granted(&claim("b")).await;

    assert_eq!(former.token, current.token);
    store.writes_nothing_under(&former, &current).await;
}

pub(crate) async fn expired_grant_writes_nothing(world: World) {
    let store = world.open().await;
    store.0.create(&key("job"), &attribute("sky", "blue")).await.unwrap();
    let grant = store.granted(&claim("a")).await;
    world.pass(TTL);

    let black = Change::new().set("sky", "black");
    let extended = store.beat(&grant, 1).await;
    let updated = store.0.update(&grant, &black).await.unwrap();
    let adopted = store.0.adopt(&grant, &claim("b")).await.unwrap();
    let evicted = store.0.evict(&key("job"), &GrantId::from(grant.token)).await.unwrap();
    let transferred = store.0.transfer(&grant, &lessee("b"), TTL).await.unwrap();
    let deleted = store.0.delete(&grant).await.unwrap();

    assert!(matches!(extended, Heartbeat::Lost(_)), "{extended:?}");
    assert!(matches!(adopted, Obtained::Held(_)), "{adopted:?}");
    assert!(!evicted);
    for written in [updated, transferred, deleted] {
        assert!(matches!(written, Written::Lost(_)), "{written:?}");
    }
    assert_eq!(store.attributes().await, Some(attribute("sky", "blue")));
    store.granted(&claim("c")).await;
}

pub(crate) async fn evicted_grant_is_neither_extended_nor_adopted(world: World) {
    let store = world.open().await;
    let grant = store.granted(&claim("a")).await;
    assert!(store.0.evict(&key("job"), &GrantId::from(grant.token)).await.unwrap());

    let extended = store.beat(&grant, 1).await;
    let adopted = store.0.adopt(&grant, &claim("b")).await.unwrap();

    assert!(matches!(extended, Heartbeat::Lost(_)), "{extended:?}");
    assert!(matches!(adopted, Obtained::Held(_)), "{adopted:?}");
}

pub(crate) async fn eviction_names_one_grant_of_one_key(world: World) {
    let store = world.open().await;
    let mut other = claim("b");
    other.key = key("other");
    let (grant, other) = (store.granted(&claim("a")).await, store.granted(&other).await);
    assert_eq!(grant.token, other.token);

    assert!(store.0.evict(&key("job"), &GrantId::from(grant.token)).await.unwrap());
    assert!(!store.0.evict(&key("other"), &GrantId::new("7")).await.unwrap());

    assert_eq!(store.beat(&other, 1).await, Heartbeat::Extended);
}

pub(crate) async fn late_heartbeat_is_overtaken(world: World) {
    let store = world.open().await;
    let grant = store.granted(&claim("a")).await;
    assert_eq!(store.beat(&grant, 2).await, Heartbeat::Extended);
    let mut shorter = grant.clone();
    shorter.ttl = TTL / 4;

    assert_eq!(store.beat(&shorter, 1).await, Heartbeat::Overtaken);
    assert_eq!(store.beat(&shorter, 2).await, Heartbeat::Overtaken);

    world.pass(TTL / 2);
    store.refused(&claim("b")).await;
}

pub(crate) async fn attributes_change_only_as_expected(world: World) {
    let store = world.open().await;
    let grant = store.granted(&claim("a").with_attributes(attribute("sky", "blue"))).await;
    store.release(&grant).await;
    let grant = store.granted(&claim("b").with_attributes(attribute("sea", "grey"))).await;
    let adopted =
        store.0.adopt(&grant, &claim("c").with_attributes(attribute("sun", "red"))).await.unwrap();
    let Obtained::Granted(grant, _) = adopted else { panic!("{adopted:?}") };

    let wrong = Change::new().expecting("sky", "green").set("sky", "black");
    let right = Change::new().expecting("sky", "blue").expecting_none("moon").set("sky", "white");
    let answers = [&wrong, &right].map(|change| store.0.update(&grant, change));
    let answers = futures_util::future::join_all(answers).await;

    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers, [Written::Unexpected, Written::Applied]);
    let mut expected = attribute("sky", "white");
    expected.extend(attribute("sea", "grey"));
    expected.extend(attribute("sun", "red"));
    assert_eq!(store.attributes().await, Some(expected));
    let mut other = claim("a");
    other.key = key("other");
    let grant = store.granted(&other).await;
    let written = store.0.update(&grant, &Change::new().remove("none")).await.unwrap();
    assert_eq!(written, Written::Applied);
    store.release(&grant).await;
    assert!(store.0.read(&key("other")).await.unwrap().is_some());
}

pub(crate) async fn record_is_created_once_and_not_under_a_holder(world: World) {
    let store = world.open().await;
    let none = Attributes::new();
    assert!(store.0.create(&key("job"), &attribute("sky", "blue")).await.unwrap());

    assert!(!store.0.create(&key("job"), &none).await.unwrap());

    assert_eq!(store.attributes().await, Some(attribute("sky", "blue")));
    let mut other = claim("a");
    other.key = key("other");
    let grant = store.granted(&other).await;
    assert!(!store.0.create(&key("other"), &none).await.unwrap(), "the key is held");
    store.release(&grant).await;
    assert!(store.0.create(&key("other"), &none).await.unwrap(), "nothing remains of the lease");
}

pub(crate) async fn deleted_record_is_gone(world: World) {
    let store = world.open().await;
    store.0.create(&key("job"), &attribute("sky", "blue")).await.unwrap();
    let late = claim("a");
    let grant = store.granted(&late).await;

    assert_eq!(store.0.delete(&grant).await.unwrap(), Written::Applied);

    assert_eq!(store.attributes().await, None);
    store.refused(&late.repeated()).await;
    let next = store.granted(&claim("b")).await;
    assert!(next.token > grant.token);
    assert_eq!(store.attributes().await, Some(Attributes::new()));
}

pub(crate) async fn list_has_its_prefix_in_pages(world: World) {
    let store = world.open().await;
    let names =
        |from: &str| (0..450).map(|number| format!("{from}/{number:03}")).collect::<Vec<_>>();
    for name in names("b").iter().chain(&["a".to_owned(), "b".to_owned(), "c".to_owned()]) {
        assert!(store.0.create(&key(name), &Attributes::new()).await.unwrap());
    }

    // With a broken statement, the list may repeat its first page for ever.
    let listed: Vec<_> = store.0.list("b/").take(1000).collect().await;

    let listed: Vec<_> = listed.into_iter().map(|record| record.unwrap().key).collect();
    let expected: Vec<_> = names("b").iter().map(|name| key(name)).collect();
    assert_eq!(listed, expected);
}

/// The new boot time is once far behind the old boot time, and once far ahead.
pub(crate) async fn lease_of_another_boot_gets_one_more_ttl(world: World) {
    for boot_time in [Duration::from_secs(1), Duration::from_secs(7200)] {
        let former = world.open().await;
        let mut before = claim("a");
        before.key = key(&format!("{boot_time:?}"));
        let grant = former.granted(&before).await;
        world.machine.reboot(boot_time);
        let mut after = claim("b");
        after.key = before.key.clone();

        // An open handle first sees the row in the claim. A new handle sees the row when it opens.
        let store = if boot_time > TTL { former } else { world.open().await };
        let holder = store.refused(&after).await;
        world.pass(ALMOST_TTL);
        store.refused(&after).await;
        world.pass(Duration::from_micros(1));

        assert_eq!(holder.expires_in, Some(TTL));
        assert!(store.granted(&after).await.token > grant.token);
    }
}

pub(crate) async fn reservation_of_another_boot_lasts_once_more(world: World) {
    let store = world.open().await;
    let grant = store.granted(&claim("a")).await;
    store.0.release(&grant, Some(TTL)).await.unwrap();
    world.machine.reboot(Duration::from_secs(7200));

    let store = world.open().await;
    store.refused(&claim("b")).await;
    world.pass(ALMOST_TTL);
    store.refused(&claim("b")).await;
    world.pass(Duration::from_micros(1));

    store.granted(&claim("b")).await;
}

pub(crate) async fn second_process_does_not_extend_leases(world: World) {
    let store = world.open().await;
    store.granted(&claim("a")).await;
    world.pass(TTL / 2);
    drop(world.open().await);
    world.pass(TTL / 2);

    store.granted(&claim("b")).await;
}

/// A running virtual machine was copied. The boot is new, and the holder still runs.
pub(crate) async fn write_after_a_reboot_belongs_to_the_new_boot(world: World) {
    let store = world.open().await;
    for boot_time in [Duration::from_secs(1), Duration::from_secs(7200)] {
        for write in ["heartbeat", "adoption", "transfer"] {
            let grant = store.granted(&claim("a")).await;
            world.machine.reboot(boot_time);

            match write {
                "heartbeat" => assert_eq!(store.beat(&grant, 1).await, Heartbeat::Extended),
                "adoption" => {
                    let adopted = store.0.adopt(&grant, &claim("b")).await.unwrap();
                    assert!(matches!(adopted, Obtained::Granted(..)), "{adopted:?}");
                }
                _ => {
                    let written = store.0.transfer(&grant, &lessee("b"), TTL).await.unwrap();
                    assert_eq!(written, Written::Applied);
                }
            }

            world.pass(ALMOST_TTL);
            store.refused(&claim("c")).await;
            world.pass(Duration::from_micros(1));
            let next = store.granted(&claim("c")).await;
            store.release(&next).await;
        }
    }
}

pub(crate) async fn row_of_another_boot_is_not_removed(world: World) {
    let store = world.open().await;
    store.granted(&claim("a")).await;
    // The store's thread answers, then cleans. So the second answer comes after the cleaning.
    store.refused(&claim("b")).await;
    world.machine.reboot(Duration::from_secs(7200));

    store.cleans(&world, Duration::from_secs(11)).await;

    store.refused(&claim("b")).await;
}

pub(crate) async fn rows_are_removed_only_when_they_no_longer_matter(world: World) {
    let store = world.open().await;
    let claims = ["lasting", "reserved", "held", "released"].map(|name| {
        let mut claim = claim("a");
        claim.key = key(name);
        claim
    });
    let [lasting, reserved, held, released] = &claims;
    store.0.create(&lasting.key, &Attributes::new()).await.unwrap();
    let mut grants = Vec::new();
    for claim in &claims {
        grants.push(store.granted(claim).await);
    }
    store.release(&grants[0]).await;
    store.0.release(&grants[1], Some(TTL * 100)).await.unwrap();
    store.release(&grants[3]).await;
    let is_cleaned_by = async |after: Duration| {
        world.pass(after);
        store.refused(&released.clone().repeated()).await;
        store.refused(&released.clone().repeated()).await;
    };

    is_cleaned_by(Duration::from_secs(20)).await;
    assert_eq!(store.beat(&grants[2], 1).await, Heartbeat::Extended, "{held:?}");
    is_cleaned_by(Duration::from_secs(20)).await;
    store.cleans(&world, Duration::from_secs(600)).await;

    assert!(store.0.read(&lasting.key).await.unwrap().is_some());
    let mut other = claim("b");
    other.key = reserved.key.clone();
    store.refused(&other).await;
    assert!(!world.has_row("released"), "the released key still has a row");
    assert!(!world.has_row("held"), "the expired key still has a row");
}

impl Handle {
    async fn writes_nothing_under(&self, former: &Grant, current: &Grant) {
        let black = Change::new().set("sky", "black");
        let extended = self.beat(former, 1).await;
        self.release(former).await;
        let written = [
            self.0.update(former, &black).await.unwrap(),
            self.0.transfer(former, &lessee("c"), TTL).await.unwrap(),
            self.0.delete(former).await.unwrap(),
        ];
        let adopted = self.0.adopt(former, &claim("c")).await.unwrap();

        assert!(matches!(extended, Heartbeat::Lost(_)), "{extended:?}");
        assert!(matches!(adopted, Obtained::Held(_)), "{adopted:?}");
        for written in written {
            assert!(matches!(written, Written::Lost(_)), "{written:?}");
        }
        let holder = self.holder().await.unwrap();
        assert_eq!((holder.lessee, holder.token), (current.lessee.clone(), Some(current.token)));
        assert_eq!(self.beat(current, 1).await, Heartbeat::Extended);
    }

    pub(crate) async fn cleans(&self, world: &World, after: Duration) {
        world.pass(after);
        let mut probe = claim("probe");
        probe.key = key("probe");
        // The store's thread answers, then cleans. So the second answer comes after the first
        // cleaning.
        drop(self.ask(&probe).await);
        drop(self.ask(&probe).await);
    }

    async fn is_remembered(&self, world: &World) -> bool {
        self.cleans(world, Duration::from_secs(11)).await;
        world.has_row("job")
    }
}
