//! Tokens only grow.

use crate::conformance::Fixture;
use crate::conformance::case::Case;

/// Each grant after a release carries a larger token.
pub async fn tokens_grow_over_releases<F: Fixture>(case: Case<F>) {
    let mut last = None;
    for lessee in ["a", "b", "a", "a"] {
        let grant = case.granted(lessee).await;

        assert!(
            Some(grant.token) > last,
            "the token after {last:?} was {}: the store should grant a larger one each time",
            grant.token
        );

        last = Some(grant.token);
        case.release(&grant).await;
    }
}

/// The grant after one that ran out carries a larger token.
pub async fn tokens_grow_over_expiry<F: Fixture>(case: Case<F>) {
    let first = case.granted("a").await;
    case.pass(case.ttl).await;

    let (second, _) = case.taken_over("b").await;

    assert!(
        second.token > first.token,
        "the token after {} was {}: the store should grant a larger one each time",
        first.token,
        second.token
    );
}

/// Who adopts a grant gets a larger token than who handed it over.
pub async fn tokens_grow_over_adoption<F: Fixture>(case: Case<F>) {
    let first = case.granted("a").await;

    let second = case.adopted(&first, &case.claim("b")).await;

    assert!(
        second.token > first.token,
        "the token after {} was {}: the store should grant a larger one each time",
        first.token,
        second.token
    );
}
