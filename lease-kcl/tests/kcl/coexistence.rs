//! The shards that a worker obtains although its share is full.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lease_core::store::LeaseTable;
use lease_core::{LeaseKey, Lessee, Written};
use lease_kcl::KclCoexistence;
use lease_kinesis::Member;
use lease_kinesis::extension::{Coexistence, SharedTable};
use tokio::time::Instant;

use crate::shop::{Shop, TTL, key};

/// Two of our workers and a KCL worker have one shard each, so no worker lacks a shard beside the row of `shop`.
struct Listing {
    held: BTreeMap<LeaseKey, Option<Lessee>>,
    owners: BTreeMap<LeaseKey, Lessee>,
    foreign: BTreeSet<LeaseKey>,
    members: Vec<Member>,
}

impl Listing {
    async fn of(shop: &Shop) -> Self {
        let mut held = BTreeMap::new();
        for (number, name) in [(2, "a"), (3, "b"), (4, "kcl")] {
            held.insert(shard(number), Some(name.parse::<Lessee>().unwrap()));
        }
        let mut foreign = BTreeSet::from([shard(4)]);
        let row = shop.table.read(&key()).await.unwrap().unwrap();
        if row.attributes.contains_key("leaseOwner") {
            foreign.insert(key());
        }
        held.insert(key(), row.holder.map(|holder| holder.lessee));
        let owners = held.iter().filter_map(|(key, holder)| Some((key.clone(), holder.clone()?)));
        let owners = owners.collect();
        let members = ["a", "b"].map(|name| Member::new(name.parse().unwrap())).into();
        Self { held, owners, foreign, members }
    }

    fn table(&self) -> SharedTable<'_> {
        let Self { held, owners, foreign, members } = self;
        SharedTable { held, owners, foreign, members }
    }

    fn taken_by(&self, shop: &Shop, name: &str) -> Vec<LeaseKey> {
        self.taken_up_to(shop, name, None)
    }

    fn taken_up_to(&self, shop: &Shop, name: &str, most: Option<usize>) -> Vec<LeaseKey> {
        let mut coexistence = KclCoexistence::new(shop.table.clone()).with_max_steals(0);
        let mut me = Member::new(name.parse().unwrap());
        me.most = most;
        coexistence.take(&self.table(), &me, now())
    }

    fn plannable(&self, shop: &Shop) -> BTreeMap<LeaseKey, Option<Lessee>> {
        KclCoexistence::new(shop.table.clone()).plannable(&self.table(), now())
    }
}

fn shard(number: u32) -> LeaseKey {
    format!("shop/shards/shardId-{number}").parse().unwrap()
}

#[expect(clippy::disallowed_methods, reason = "any moment; no lease depends on it")]
fn now() -> Instant {
    Instant::now()
}

#[tokio::test]
async fn transferred_shard_is_taken_by_its_target_and_counts_for_it() {
    let shop = Shop::new().await;
    shop.put(None).await;
    let grant = shop.granted("a").await;
    let to: Lessee = "b".parse().unwrap();
    assert_eq!(shop.table.transfer(&grant, &to, TTL).await.unwrap(), Written::Applied);

    let listing = Listing::of(&shop).await;

    assert_eq!(listing.held[&key()], None);
    assert_eq!(listing.taken_by(&shop, "b"), [key()]);
    assert_eq!(listing.taken_by(&shop, "a"), []);
    assert_eq!(listing.plannable(&shop)[&key()], Some(to));
    shop.granted("b").await;
}

#[tokio::test]
async fn renewed_shard_of_our_name_is_taken_only_after_its_expiry() {
    let shop = Shop::new().await;
    shop.put(Some("kcl")).await;
    Listing::of(&shop).await;
    assert!(shop.kcl_takes("b").await);
    Listing::of(&shop).await;
    assert!(shop.kcl_renews().await);
    let renewed = Listing::of(&shop).await;

    assert_eq!(renewed.taken_by(&shop, "b"), [], "a KCL worker is called b");
    shop.pass(TTL * 2);
    let expired = Listing::of(&shop).await;
    assert_eq!(expired.taken_by(&shop, "b"), [key()]);
    assert_eq!(expired.taken_by(&shop, "a"), []);
}

#[tokio::test]
async fn assigned_shard_is_taken_before_its_expiry() {
    let shop = Shop::new().await;
    shop.put(Some("kcl")).await;
    Listing::of(&shop).await;
    assert!(shop.kcl_takes("b").await);

    let listing = Listing::of(&shop).await;

    assert_eq!(listing.taken_by(&shop, "a"), []);
    assert_eq!(listing.taken_by(&shop, "b"), [key()]);
    shop.refused("a").await;
    shop.granted("b").await;
}

#[tokio::test]
async fn assigned_shard_beyond_the_maximum_is_not_taken() {
    let shop = Shop::new().await;
    shop.put(Some("kcl")).await;
    Listing::of(&shop).await;
    assert!(shop.kcl_takes("b").await);

    let listing = Listing::of(&shop).await;

    assert_eq!(listing.held[&shard(3)], Some("b".parse().unwrap()));
    assert_eq!(listing.taken_up_to(&shop, "b", Some(1)), []);
    assert_eq!(listing.taken_up_to(&shop, "b", Some(2)), [key()]);
}

/// A KCL worker that lacks a shard takes it at its second scan after the last renewal, at the latest.
#[tokio::test]
async fn shard_beyond_our_share_is_left_to_kcl_until_its_second_scan() {
    let shop = Shop::new().await;
    shop.put(None).await;
    let mut listing = Listing::of(&shop).await;
    // The worker `a` has its share, and `kcl` lacks a shard.
    listing.members.pop();
    listing.owners.insert(shard(3), "a".parse().unwrap());
    listing.held.insert(shard(3), Some("a".parse().unwrap()));
    let mut coexistence = KclCoexistence::new(shop.table.clone());
    let mut is_plannable =
        |now: Instant| coexistence.plannable(&listing.table(), now).contains_key(&key());
    let free = now();
    // KCL waits 50 ms more per scan, and the scan itself takes time.
    let scanned = free + TTL * 3 + Duration::from_secs(1);

    assert!(!is_plannable(free));
    assert!(!is_plannable(scanned));
    assert!(is_plannable(scanned + TTL / 3));
}
