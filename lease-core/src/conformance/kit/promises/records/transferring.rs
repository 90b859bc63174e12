//! Transfers to one lessee, and deletes.

use std::time::Duration;

use futures_util::StreamExt;

use crate::conformance::Fixture;
use crate::conformance::kit::case::{Case, expect_held};
use crate::conformance::kit::promises::table::{CREATE, REFUSED, SUPERSEDED, colours};
use crate::lost::LossCause;
use crate::store::attributes::Attributes;
use crate::store::grant::{Heartbeat, Written};
use crate::store::lease_table::LeaseTable;
use crate::store::lock_store::LockStore;

/// A transferred key is granted only to the lessee that it was transferred to.
pub async fn transferred_key_is_granted_only_to_its_lessee<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    case.created(&colours()).await;
    let grant = case.granted("a").await;

    let written = case.transferred(&grant, case.ttl * 4).await;

    assert_eq!(written, Written::Applied, "the store should transfer the current grant");
    for other in ["a", "c"] {
        drop(expect_held(
            case.ask(&case.claim(other)).await,
            "a claim of a key that was transferred to another lessee",
        ));
    }
    let next = case.granted("b").await;
    assert!(
        next.token > grant.token,
        "the token after {} was {}: the store should grant a larger one each time",
        grant.token,
        next.token
    );
}

/// A transferred key has no holder until its lessee obtains it.
pub async fn transferred_key_has_no_holder<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let grant = case.granted("a").await;
    let written = case.transferred(&grant, case.fixture.long_ttl()).await;
    assert_eq!(written, Written::Applied, "the store should transfer the current grant");

    case.has_no_holder("a transfer, before its lessee has obtained the key").await;
}

/// After its reservation, a transferred key is granted to any lessee.
pub async fn transferred_key_is_free_after_its_reservation<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    case.created(&colours()).await;
    let grant = case.granted("a").await;
    let since = case.now();
    let _ = case.transferred(&grant, case.ttl).await;

    let (_, taken) = case.taken_over("c").await;

    case.not_before_ttl(taken, since);
}

/// A former holder cannot transfer the key.
pub async fn transfer_by_former_holder_changes_nothing<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    case.created(&colours()).await;
    let former = case.granted("a").await;
    case.release(&former).await;
    let current = case.granted("c").await;

    let written = case.transferred(&former, case.ttl).await;

    assert_eq!(written, Written::Lost(LossCause::Superseded), "{SUPERSEDED}");
    case.has_holder(&current.lessee, REFUSED).await;
}

/// A transfer wakes a watch: the lessee that watches the key may be the target of the transfer.
pub async fn watch_wakes_on_transfer<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    let grant = case.granted("a").await;
    let Ok(freed) = case.store.watch(&grant.key).await else { return };
    if !freed.can_wake() {
        return;
    }

    let _ = case.transferred(&grant, case.ttl).await;

    let woken = tokio::time::timeout(Duration::from_secs(60), freed).await;
    assert!(
        woken.is_ok(),
        "a watch did not wake within a minute of the transfer: the store should wake it, or \
         return a watch whose `can_wake` is false"
    );
}

/// A deleted record is neither read nor listed, and can be created again.
pub async fn deleted_record_is_gone<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let grant = case.granted("a").await;

    let written = case.written(case.store.delete(&grant)).await;

    assert_eq!(written, Written::Applied, "the store should delete under the current grant");
    case.has_no_record("a delete").await;
    case.has_no_holder("a delete").await;
    let listed = case.store.list("").collect::<Vec<_>>().await;
    assert!(listed.is_empty(), "the store should not list a deleted record: {listed:?}");
    assert!(case.created(&Attributes::new()).await, "{CREATE}");
    case.attributes_are(
        &Attributes::new(),
        "a new record should have no attributes of a deleted record",
    )
    .await;
}

/// A grant after a delete has a larger token, and the old grant stays lost.
pub async fn tokens_grow_over_delete<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let claim = case.claim("a");
    let grant = case.obtain(&claim).await;
    let _ = case.written(case.store.delete(&grant)).await;

    drop(expect_held(
        case.ask(&claim).await,
        "a claim whose grant deleted the record (the store must keep its nonce)",
    ));
    let next = case.granted("b").await;

    assert!(
        next.token > grant.token,
        "the token after {} was {}: the store should keep the counter of a deleted record",
        grant.token,
        next.token
    );
    let answer = case.heartbeat(&grant, 1).await;
    assert!(
        matches!(answer, Heartbeat::Lost(_)),
        "the store should answer `Lost` for a grant whose record was deleted: {answer:?}"
    );
}

/// A former holder cannot delete the record.
pub async fn delete_by_former_holder_changes_nothing<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    case.created(&colours()).await;
    let former = case.granted("a").await;
    case.release(&former).await;
    let current = case.granted("b").await;

    let written = case.written(case.store.delete(&former)).await;

    assert_eq!(written, Written::Lost(LossCause::Superseded), "{SUPERSEDED}");
    case.attributes_are(&colours(), REFUSED).await;
    case.has_holder(&current.lessee, REFUSED).await;
}
