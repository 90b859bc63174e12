//! Operators: they list the keys that are held, and end a lease.

use crate::conformance::Fixture;
use crate::conformance::kit::case::{Case, expect_held, name, scanned_by};
use crate::conformance::kit::promises::table::colours;
use crate::error::StoreErrorKind;
use crate::lost::LossCause;
use crate::store::grant::{GrantId, Heartbeat, HeldKey};
use crate::store::lease_table::LeaseTable;
use crate::store::lock_store::LockStore;

/// The next heartbeat of an evicted holder is answered with `Lost`.
pub async fn evicted_lease_is_lost_at_its_next_heartbeat<F: Fixture>(case: Case<F>) {
    case.evicted_holder_is_lost().await;
}

/// The holder of a key that has a record can be evicted, too.
pub async fn holder_of_record_is_evicted<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;

    case.evicted_holder_is_lost().await;

    case.attributes_are(&colours(), "an eviction should change no attributes").await;
}

/// An evicted holder may still be working: the key becomes free after the ttl, not earlier.
pub async fn evicted_lease_expires_by_its_ttl<F: Fixture>(case: Case<F>) {
    let since = case.now();
    let grant = case.granted("a").await;
    if !case.evicted().await {
        return;
    }
    case.pass(case.ttl / 2).await;
    // A heartbeat of the evicted holder must not extend the lease.
    case.heartbeat(&grant, 1).await;

    let (next, taken) = case.taken_over("b").await;

    case.not_before_ttl(taken, since);
    assert_eq!(
        case.heartbeat(&next, 1).await,
        Heartbeat::Extended,
        "the store should remove the mark of an eviction with the next grant"
    );
}

/// An evicted grant cannot be adopted.
pub async fn evicted_grant_is_not_adopted<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    if !case.evicted().await {
        return;
    }

    drop(expect_held(
        case.adopt(&grant, &case.claim("b")).await,
        "the adoption of a grant that was evicted",
    ));
}

/// An eviction that does not name the current grant changes nothing.
pub async fn eviction_of_another_grant_changes_nothing<F: Fixture>(case: Case<F>) {
    let former = case.granted("a").await;
    let Some(named) = case.holder().await.and_then(|holder| holder.grant) else { return };
    case.release(&former).await;
    let grant = case.granted("a").await;

    for other in [named, GrantId::new("no such grant")] {
        let evicted = case.store.evict(&grant.key, &other).await;
        let refused = match &evicted {
            Ok(evicted) => !evicted,
            Err(error) => error.kind() == StoreErrorKind::Unsupported,
        };
        assert!(
            refused,
            "the store should refuse to evict a grant that is not current: {evicted:?}"
        );
    }

    assert_eq!(
        case.heartbeat(&grant, 1).await,
        Heartbeat::Extended,
        "a refused eviction should not change the grant"
    );
}

/// A scan lists every held key of its prefix, with its holder. It lists no key that is free.
pub async fn scan_lists_held_keys_of_its_prefix<F: Fixture>(case: Case<F>) {
    let held: Vec<_> = (0..130).map(|number| format!("conformance/scan/{number:03}")).collect();
    for key in &held {
        case.obtain(&case.long_claim(&name(key), key)).await;
    }
    case.obtain(&case.long_claim(&name("conformance/scanner"), "a")).await;
    let free = case.obtain(&case.long_claim(&name("conformance/scan/free"), "a")).await;
    case.release(&free).await;

    let Some(scanned) = case.scanned("conformance/scan/").await else { return };

    let keys: Vec<_> = scanned.iter().map(|held| held.key.as_str()).collect();
    assert_eq!(keys, held, "a scan should list exactly the held keys of its prefix");
    for HeldKey { key, holder } in scanned {
        assert_eq!(holder.lessee.as_str(), key.as_str(), "a scan should name the holder of {key}");
        let read = case.holder_of(&key).await;
        assert_eq!(
            read.and_then(|read| read.grant),
            holder.grant,
            "a scan should name the grant of {key} as `holder` does"
        );
    }
}

/// A scan of a table lists the holders of records, and no record without a holder.
pub async fn scan_lists_holders_of_records<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let free = case.scanned("").await;
    assert_eq!(free.unwrap_or_default(), [], "a scan should list no record without a holder");
    let grant = case.obtain(&case.long_claim(&case.key(), "a")).await;

    let Some(scanned) = case.scanned("").await else { return };

    let lessees: Vec<_> = scanned.iter().map(|held| &held.holder.lessee).collect();
    assert_eq!(lessees, [&grant.lessee], "a scan should list the holder of a record");
}

impl<F: Fixture> Case<F> {
    async fn evicted_holder_is_lost(&self) {
        let grant = self.granted("a").await;

        if !self.evicted().await {
            return;
        }

        let answer = self.heartbeat(&grant, 1).await;
        assert_eq!(
            answer,
            Heartbeat::Lost(LossCause::Revoked),
            "the store should report an evicted grant as revoked at its next heartbeat"
        );
    }

    async fn scanned(&self, prefix: &str) -> Option<Vec<HeldKey>> {
        scanned_by(&*self.store.inner(), prefix).await
    }
}
