//! Tokens only grow.

use crate::conformance::Fixture;
use crate::conformance::case::{Case, expect_granted};

/// Each grant after a release carries a larger token.
pub async fn tokens_grow_over_releases<F: Fixture>(case: Case<F>) {
    let mut last = None;
    for lessee in ["a", "b", "a", "a"] {
        let grant = case.granted(lessee).await;

        assert!(Some(grant.token) > last, "{} after {last:?}", grant.token);

        last = Some(grant.token);
        case.release(&grant).await;
    }
}

/// The grant after one that ran out carries a larger token.
pub async fn tokens_grow_over_expiry<F: Fixture>(case: Case<F>) {
    let first = case.granted("a").await;
    case.pass(case.ttl).await;

    let (second, _) = case.taken_over("b").await;

    assert!(second.token > first.token, "{} after {}", second.token, first.token);
}

/// Who adopts a grant gets a larger token than who handed it over.
pub async fn tokens_grow_over_adoption<F: Fixture>(case: Case<F>) {
    let first = case.granted("a").await;

    let second = expect_granted(case.adopt(&first, &case.claim("b")).await);

    assert!(second.token > first.token, "{} after {}", second.token, first.token);
}
