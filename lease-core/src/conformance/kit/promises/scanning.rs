//! Scans: the keys that are held, for operators.

use crate::conformance::Fixture;
use crate::conformance::kit::case::{Case, name, scanned_by};
use crate::conformance::kit::promises::table::colours;
use crate::store::grant::HeldKey;
use crate::store::lease_table::LeaseTable;

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
    assert_eq!(free.unwrap_or_default(), [], "a record without a holder is not held");
    let grant = case.obtain(&case.long_claim(&case.key(), "a")).await;

    let Some(scanned) = case.scanned("").await else { return };

    let lessees: Vec<_> = scanned.iter().map(|held| &held.holder.lessee).collect();
    assert_eq!(lessees, [&grant.lessee], "a scan should list the holder of a record");
}

impl<F: Fixture> Case<F> {
    async fn scanned(&self, prefix: &str) -> Option<Vec<HeldKey>> {
        scanned_by(&*self.store.inner(), prefix).await
    }
}
