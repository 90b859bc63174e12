//! How a grant goes from one holder to the next.

use crate::conformance::Fixture;
use crate::conformance::case::{Case, expect_granted, expect_held};
use crate::grant::Heartbeat;

/// Whoever has a grant may adopt it, and then holds the key.
pub async fn a_grant_is_adopted<F: Fixture>(case: Case<F>) {
    let handed = case.granted("a").await;

    let adopted = expect_granted(case.adopt(&handed, &case.claim("b")).await);

    assert_eq!(adopted.lessee.as_str(), "b");
    assert_eq!(case.lessee_of_holder().await, Some(adopted.lessee));
}

/// Who adopts has a ttl from then on, not what was left.
pub async fn an_adoption_lasts_for_its_own_ttl<F: Fixture>(case: Case<F>) {
    let handed = case.granted("a").await;
    case.pass(case.ttl / 2).await;

    let since = case.now();
    expect_granted(case.adopt(&handed, &case.claim("b")).await);
    case.pass(case.ttl / 4).await;

    let (_, taken) = case.taken_over("c").await;
    case.not_before_ttl(taken, since);
}

/// A grant is adopted once; the second to try is told who has it.
pub async fn a_grant_is_adopted_at_most_once<F: Fixture>(case: Case<F>) {
    let handed = case.granted("a").await;
    let first = expect_granted(case.adopt(&handed, &case.claim("b")).await);

    let holder = expect_held(case.adopt(&handed, &case.claim("c")).await);

    assert_eq!(holder.lessee, first.lessee);
}

/// An adoption whose reply was lost is answered again with what it got.
pub async fn a_repeated_adoption_is_the_same_grant<F: Fixture>(case: Case<F>) {
    let handed = case.granted("a").await;
    let claim = case.claim("b");
    let first = expect_granted(case.adopt(&handed, &claim).await);

    let second = expect_granted(case.adopt(&handed, &claim).await);

    assert_eq!(first, second);
}

/// Who handed a grant over no longer keeps it alive.
pub async fn an_adopted_grant_is_lost_to_its_former_holder<F: Fixture>(case: Case<F>) {
    let handed = case.granted("a").await;
    let adopted = expect_granted(case.adopt(&handed, &case.claim("b")).await);

    let answer = case.heartbeat(&handed, 1).await;

    assert!(matches!(answer, Heartbeat::Lost(_)), "{answer:?}");
    assert_eq!(case.lessee_of_holder().await, Some(adopted.lessee));
}

/// A grant that was released is not adopted.
pub async fn a_released_grant_is_not_adopted<F: Fixture>(case: Case<F>) {
    let handed = case.granted("a").await;
    case.release(&handed).await;

    drop(expect_held(case.adopt(&handed, &case.claim("b")).await));

    assert_eq!(case.holder().await, None);
}

/// A grant that ran out is not adopted: somebody else may have it by now.
pub async fn an_expired_grant_is_not_adopted<F: Fixture>(case: Case<F>) {
    let handed = case.granted("a").await;
    case.pass(case.ttl * 4).await;

    drop(expect_held(case.adopt(&handed, &case.claim("b")).await));
}
