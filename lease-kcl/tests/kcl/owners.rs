//! The holder of a row after KCL workers write its owner.

use lease_core::store::{Beat, Heartbeat, LeaseTable, LockStore};
use lease_core::{Lessee, LossCause, Written};

use crate::shop::{Shop, TTL, key, s};

/// The other worker may have processed records meanwhile.
#[tokio::test]
async fn lease_is_lost_after_kcl_held_it_under_another_name() {
    let shop = Shop::new().await;
    shop.put(None).await;
    let grant = shop.granted("a").await;

    assert!(shop.kcl_takes("kcl").await);
    assert!(shop.kcl_takes("a").await);

    let written = shop.checkpoint(&grant, "10", "20").await;
    assert_eq!(written, Written::Lost(LossCause::Superseded));
    let lost = Heartbeat::Lost(LossCause::Superseded);
    assert_eq!(shop.table.heartbeat(&grant, Beat::new(1)).await.unwrap(), lost);
}

#[tokio::test]
async fn kcl_lease_is_taken_after_a_failover_time_without_renewal() {
    let shop = Shop::new().await;
    shop.put(Some("kcl")).await;

    shop.is_left_alone_by("a", "kcl").await;
    shop.pass(TTL.mul_f64(1.1));

    let grant = shop.granted("a").await;
    assert_eq!(grant.lessee.as_str(), "a");
}

#[tokio::test]
async fn lease_in_kcl_3_hand_over_belongs_to_renewing_processor() {
    let shop = Shop::new().await;
    shop.put(Some("kcl-1")).await;
    shop.kcl_hands_over("kcl-1", "a").await;

    // While the processor renews the lease, even the next owner is refused.
    for _ in 0..4 {
        assert_eq!(shop.refused("a").await.lessee.as_str(), "kcl-1");
        assert_eq!(shop.refused("b").await.lessee.as_str(), "kcl-1");
        shop.pass(TTL / 2);
        assert!(shop.kcl_renews().await);
    }

    let row = shop.raw().await;
    assert_eq!((&row["leaseOwner"], &row["checkpointOwner"]), (&s("a"), &s("kcl-1")));
}

#[tokio::test]
async fn lease_in_kcl_3_hand_over_is_taken_after_processor_died() {
    let shop = Shop::new().await;
    shop.put(Some("kcl-1")).await;
    shop.kcl_hands_over("kcl-1", "kcl-2").await;
    assert_eq!(shop.refused("a").await.lessee.as_str(), "kcl-1");
    let seen = shop.counter().await;

    shop.pass(TTL.mul_f64(1.1));
    assert_eq!(shop.table.read(&key()).await.unwrap().unwrap().holder, None, "the lease is free");
    let grant = shop.granted("a").await;

    let row = shop.raw().await;
    assert_eq!((&row["leaseOwner"], row.get("checkpointOwner")), (&s("a"), None));
    assert_eq!(row["checkpoint"], s("10"), "the checkpoint is unchanged");
    assert_eq!(shop.checkpoint(&grant, "10", "20").await, Written::Applied);
    let renewal = "SET leaseCounter = :next";
    assert!(!shop.kcl_writes(seen, renewal, &[]).await, "a resumed processor is refused");
}

#[tokio::test]
async fn our_lease_is_lost_when_kcl_3_hands_it_over() {
    let shop = Shop::new().await;
    shop.put(None).await;
    let grant = shop.granted("a").await;
    shop.kcl_hands_over("a", "a").await;
    let before = shop.raw().await;

    let lost = Heartbeat::Lost(LossCause::Superseded);
    assert_eq!(shop.table.heartbeat(&grant, Beat::new(1)).await.unwrap(), lost);
    let written = shop.checkpoint(&grant, "10", "20").await;
    assert_eq!(written, Written::Lost(LossCause::Superseded));
    assert_eq!(shop.raw().await, before);
}

/// The row may have our name because KCL 3's leader assigned the lease to us. Or a KCL worker has our name.
#[tokio::test]
async fn kcl_worker_of_our_name_keeps_lease_while_it_renews() {
    let shop = Shop::new().await;
    shop.put(Some("a")).await;

    shop.is_left_alone_by("a", "a").await;
    shop.pass(TTL.mul_f64(1.1));

    shop.granted("a").await;
}

#[tokio::test]
async fn lease_assigned_to_us_is_taken_after_a_failover_time() {
    let shop = Shop::new().await;
    shop.put(Some("kcl-1")).await;

    assert!(shop.kcl_takes("a").await);

    assert_eq!(shop.refused("a").await.lessee.as_str(), "a");
    shop.pass(TTL.mul_f64(1.1));
    shop.granted("a").await;
}

#[tokio::test]
async fn lease_is_taken_at_once_after_its_assignment_was_seen() {
    let shop = Shop::new().await;
    shop.put(Some("kcl-1")).await;
    shop.refused("a").await;

    assert!(shop.kcl_takes("a").await);

    assert_eq!(shop.refused("b").await.lessee.as_str(), "a");
    let grant = shop.granted("a").await;
    assert_eq!(shop.checkpoint(&grant, "10", "20").await, Written::Applied);
}

#[tokio::test]
async fn lease_is_taken_at_once_after_kcl_3_handed_it_over() {
    let shop = Shop::new().await;
    shop.put(Some("kcl-1")).await;
    shop.refused("a").await;

    shop.kcl_hands_over("kcl-1", "a").await;
    assert_eq!(shop.refused("a").await.lessee.as_str(), "kcl-1", "kcl-1 still reads");
    let seen = shop.counter().await;
    let done = "SET leaseCounter = :next REMOVE checkpointOwner";
    assert!(shop.kcl_writes(seen, done, &[]).await);

    shop.granted("a").await;
}

/// A KCL worker of the same name took the lease, and renews it.
#[tokio::test]
async fn renewed_lease_of_our_name_is_not_taken() {
    let shop = Shop::new().await;
    shop.put(Some("kcl-1")).await;
    shop.refused("a").await;

    assert!(shop.kcl_takes("a").await);
    assert_eq!(shop.refused("b").await.lessee.as_str(), "a");
    assert!(shop.kcl_renews().await);

    shop.is_left_alone_by("a", "a").await;
}

/// A worker of KCL 3 finds an assigned lease after up to a failover time, and then renews it.
#[tokio::test]
async fn lease_with_new_owner_expires_after_one_and_a_half_failover_times() {
    let shop = Shop::new().await;
    shop.put(Some("kcl-1")).await;
    shop.refused("a").await;
    assert!(shop.kcl_takes("kcl-2").await);

    assert_eq!(shop.refused("a").await.lessee.as_str(), "kcl-2");
    shop.pass(TTL.mul_f64(1.35));
    assert_eq!(shop.refused("a").await.lessee.as_str(), "kcl-2");
    shop.pass(TTL.mul_f64(0.2));
    shop.granted("a").await;
}

#[tokio::test]
async fn lease_without_owner_that_gets_one_expires_after_one_and_a_half_failover_times() {
    let shop = Shop::new().await;
    shop.put(None).await;
    assert_eq!(shop.table.read(&key()).await.unwrap().unwrap().holder, None);
    assert!(shop.kcl_takes("kcl").await);

    assert_eq!(shop.refused("a").await.lessee.as_str(), "kcl");
    shop.pass(TTL.mul_f64(1.35));
    shop.refused("a").await;
    assert!(shop.kcl_renews().await);
    shop.refused("a").await;
    // The owner has renewed the lease, so the usual time counts.
    shop.pass(TTL.mul_f64(1.1));
    shop.granted("a").await;
}

/// KCL renews the lease until it deletes the row. No worker reads the shard.
#[tokio::test]
async fn lease_of_ended_shard_is_taken_although_kcl_renews_it() {
    let shop = Shop::new().await;
    shop.put(Some("kcl")).await;
    let seen = shop.counter().await;
    let end = "SET leaseCounter = :next, checkpoint = :end";
    shop.refused("a").await;
    assert!(shop.kcl_writes(seen, end, &[(":end", "SHARD_END")]).await);

    let grant = shop.granted("a").await;
    assert_eq!(shop.table.delete(&grant).await.unwrap(), Written::Applied);
    assert_eq!(shop.raw().await.len(), 0);
}

/// KCL treats a refused renewal as done if the row has its own name and the next counter.
#[tokio::test]
async fn paused_kcl_worker_of_our_name_cannot_renew_our_grant() {
    let shop = Shop::new().await;
    shop.put(Some("a")).await;
    let seen = shop.counter().await;
    shop.refused("a").await;
    shop.pass(TTL.mul_f64(1.1));

    let grant = shop.granted("a").await;

    assert!(!shop.kcl_writes(seen, "SET leaseCounter = :next", &[]).await);
    assert_ne!(shop.counter().await, seen + 1, "KCL would continue to use the lease");
    assert_eq!(shop.checkpoint(&grant, "10", "20").await, Written::Applied);
}

/// KCL takes a row without an owner at its next listing.
#[tokio::test]
async fn transferred_lease_has_an_owner_for_kcl() {
    let shop = Shop::new().await;
    shop.put(None).await;
    let grant = shop.granted("a").await;

    let to: Lessee = "b".parse().unwrap();
    assert_eq!(shop.table.transfer(&grant, &to, TTL).await.unwrap(), Written::Applied);

    assert_eq!(shop.raw().await["leaseOwner"], s("b"));
    assert_eq!(shop.table.read(&key()).await.unwrap().unwrap().holder, None);
    let lost = shop.table.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert_eq!(lost, Heartbeat::Lost(LossCause::Revoked));
    shop.granted("b").await;
}
