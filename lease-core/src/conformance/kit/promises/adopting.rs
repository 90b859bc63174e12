//! Adoption: a grant passes from its holder to another lessee.

use crate::conformance::Fixture;
use crate::conformance::kit::case::{Case, expect_again, expect_held};
use crate::store::grant::Heartbeat;

/// A lessee that receives a grant can adopt it, and then holds the key.
pub async fn grant_is_adopted<F: Fixture>(case: Case<F>) {
    let handed = case.granted("a").await;

    let adopted = case.adopted(&handed, &case.claim("b")).await;

    assert_eq!(adopted.lessee.as_str(), "b", "an adoption should grant the claim of its lessee");
    case.has_holder(&adopted.lessee, "it adopted the grant").await;
}

/// An adoption lasts for a full ttl, not for the rest of the earlier grant.
pub async fn adoption_lasts_for_its_own_ttl<F: Fixture>(case: Case<F>) {
    let handed = case.granted("a").await;
    case.pass(case.ttl / 2).await;

    let since = case.now();
    case.adopted(&handed, &case.claim("b")).await;
    case.pass(case.ttl / 4).await;

    let (_, taken) = case.taken_over("c").await;
    case.not_before_ttl(taken, since);
}

/// A grant is adopted only once. The refusal of a second adoption names the holder.
pub async fn grant_is_adopted_at_most_once<F: Fixture>(case: Case<F>) {
    let handed = case.granted("a").await;
    let first = case.adopted(&handed, &case.claim("b")).await;

    let holder = expect_held(
        case.adopt(&handed, &case.claim("c")).await,
        "a second adoption of the same grant",
    );

    assert_eq!(holder.lessee, first.lessee, "a refused adoption should name the holder");
}

/// A repeated adoption, as after a lost reply, is granted again.
pub async fn repeated_adoption_is_granted_again<F: Fixture>(case: Case<F>) {
    let handed = case.granted("a").await;
    let claim = case.claim("b");
    let first = case.adopted(&handed, &claim).await;

    let second = case.adopted(&handed, &claim.repeated()).await;

    expect_again(&second, &first, "a repeated adoption");
}

/// After an adoption, the store answers the former holder's heartbeats with `Lost`.
pub async fn adopted_grant_is_lost_to_its_former_holder<F: Fixture>(case: Case<F>) {
    let handed = case.granted("a").await;
    let adopted = case.adopted(&handed, &case.claim("b")).await;

    let answer = case.heartbeat(&handed, 1).await;

    assert!(
        matches!(answer, Heartbeat::Lost(_)),
        "the store should answer `Lost` to the former holder of an adopted grant: {answer:?}"
    );
    case.has_holder(&adopted.lessee, "it adopted the grant").await;
}

/// A released grant is not adopted.
pub async fn released_grant_is_not_adopted<F: Fixture>(case: Case<F>) {
    let handed = case.granted("a").await;
    case.release(&handed).await;

    drop(expect_held(
        case.adopt(&handed, &case.claim("b")).await,
        "the adoption of a grant that was released",
    ));

    case.has_no_holder("a release and a refused adoption").await;
}

/// An expired grant is not adopted: another lessee may hold the key.
pub async fn expired_grant_is_not_adopted<F: Fixture>(case: Case<F>) {
    let handed = case.granted("a").await;
    case.pass(case.ttl * 4).await;

    drop(expect_held(
        case.adopt(&handed, &case.claim("b")).await,
        "the adoption of an expired grant",
    ));
}
