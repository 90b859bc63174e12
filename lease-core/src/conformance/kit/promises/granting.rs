//! Grants: when a claim is granted, and when it is refused.

use std::time::Duration;

use futures_util::future::join_all;

use crate::conformance::Fixture;
use crate::conformance::kit::case::{Case, expect_again, expect_held, name};
use crate::error::StoreErrorKind;
use crate::key::Lessee;
use crate::store::attributes::{Attributes, Value};
use crate::store::grant::{Heartbeat, Obtained};
use crate::store::lock_store::LockStore;

/// A key that was never leased is granted to the first claim.
pub async fn free_key_is_granted<F: Fixture>(case: Case<F>) {
    let claim = case.claim("a");

    let grant = case.obtain(&claim).await;

    assert_eq!(
        grant,
        claim.granted(grant.token),
        "the store should grant the claim as it is: its key, lessee, nonce and ttl"
    );
}

/// One lessee holds the key until its ttl has passed, even if many lessees claim it at once.
pub async fn held_key_is_granted_to_no_other_lessee<F: Fixture>(case: Case<F>) {
    for round in 0..5 {
        let key = name(&format!("conformance/round-{round}"));
        let claims: Vec<_> =
            (0..16).map(|lessee| case.long_claim(&key, &format!("lessee-{lessee}"))).collect();

        let answers = join_all(claims.iter().map(|claim| case.store.obtain(claim))).await;

        let granted = answers.iter().filter(|one| matches!(one, Ok(Obtained::Granted(..))));
        assert_eq!(
            granted.count(),
            1,
            "of 16 concurrent claims, the store should grant one: the check and the write should be \
             one atomic step"
        );
    }
    let since = case.now();
    case.granted("a").await;

    let (_, taken) = case.taken_over("b").await;

    case.not_before_ttl(taken, since);
}

/// If claims or releases of several keys arrive together, each gets the answer for its own key.
pub async fn claims_of_several_keys_at_once_are_each_answered<F: Fixture>(case: Case<F>) {
    let keys: Vec<_> =
        (0..12).map(|number| name(&format!("conformance/at-once-{number}"))).collect();
    let is_held = |place: &usize| place.is_multiple_of(3);
    for (place, key) in keys.iter().enumerate().filter(|(place, _)| is_held(place)) {
        case.obtain(&case.long_claim(key, &format!("holder-{place}"))).await;
    }
    let claims: Vec<_> = keys.iter().map(|key| case.long_claim(key, "claimant")).collect();

    let answers = join_all(claims.iter().map(|claim| case.ask(claim))).await;

    let mut grants = Vec::new();
    for (place, (claim, answer)) in claims.iter().zip(answers).enumerate() {
        let state = if is_held(&place) { "held" } else { "free" };
        assert_eq!(
            matches!(answer, Obtained::Held(_)),
            is_held(&place),
            "{} is {state}, so this is the answer to another claim: {answer:?}",
            claim.key
        );
        match answer {
            Obtained::Granted(grant, _) => {
                assert_eq!(grant, claim.granted(grant.token), "the grant of {}", claim.key);
                grants.push(grant);
            }
            Obtained::Held(holder) => assert_eq!(
                holder.lessee.as_str(),
                format!("holder-{place}"),
                "the refusal of {} should name its own holder",
                claim.key
            ),
        }
    }
    join_all(grants.iter().map(|grant| case.release(grant))).await;
    for (place, key) in keys.iter().enumerate() {
        let holder = case.store.holder(key).await.ok().flatten().map(|holder| holder.lessee);
        let expected = is_held(&place).then(|| format!("holder-{place}"));
        let holder = holder.as_ref().map(Lessee::as_str);
        assert_eq!(holder, expected.as_deref(), "the holder of {key} after the releases");
    }
}

/// Two processes with the same name do not both hold the key.
pub async fn lessee_is_not_granted_a_key_twice<F: Fixture>(case: Case<F>) {
    case.granted("a").await;

    drop(expect_held(
        case.ask(&case.claim("a")).await,
        "a second claim of a held key, although the claim has the holder's name: nonces distinguish \
         processes of one name",
    ));
}

/// A repeated claim gets the grant of the first claim again.
pub async fn repeated_claim_is_granted_again<F: Fixture>(case: Case<F>) {
    let claim = case.claim("a");
    let first = case.obtain(&claim).await;

    let second = case.obtain(&claim.clone().repeated()).await;

    expect_again(&second, &first, "a repeated claim");
}

/// A repeated claim does not extend the grant, because the caller cannot know which reply arrived.
pub async fn repeated_claim_does_not_extend<F: Fixture>(case: Case<F>) {
    let (claim, other) = (case.claim("a"), name("conformance/other"));
    case.obtain(&claim).await;
    case.obtain(&case.claim_of(&other, "a")).await;
    case.pass(case.ttl / 2).await;

    let (second, asked) = (claim.clone().repeated(), case.now());
    let answer = case.ask(&second).await;

    if let Obtained::Granted(grant, _) = answer
        && grant.request == Some(second.request)
    {
        let (_, taken) = case.taken_over("b").await;
        case.not_before_ttl(taken, asked);
        return;
    }
    case.not_extended(&claim.key, &other).await;
}

/// A claim whose own grant has ended is granted, or is refused in the name of its own lessee, with no time left.
/// The refusal never names another lessee that held the key before or since.
///
/// The locker then claims the key under a new nonce. Otherwise, the refused claim waits for a lease that no process
/// has.
pub async fn spent_claim_is_refused_in_its_own_name<F: Fixture>(case: Case<F>) {
    let keys = ["conformance/expired", "conformance/released"].map(name);
    let [expired, released] = keys.each_ref().map(|key| case.claim_of(key, "a"));
    let before = case.obtain(&case.claim_of(&expired.key, "b")).await;
    case.release(&before).await;
    case.obtain(&expired).await;
    let grant = case.obtain(&released).await;
    case.release(&grant).await;
    case.obtain(&case.claim_of(&released.key, "b")).await;
    case.pass(case.ttl).await;

    for claim in [expired, released] {
        case.is_granted_or_refused_as_spent(claim).await;
    }
}

/// A key whose lease expired is granted again.
pub async fn expired_key_is_granted_again<F: Fixture>(case: Case<F>) {
    case.granted("a").await;
    case.pass(case.ttl).await;

    let (grant, _) = case.taken_over("b").await;

    assert_eq!(grant.lessee.as_str(), "b", "the store should grant the claim of its lessee");
}

/// A refused claim reports the holder, its token, and the longest time until the lease expires.
pub async fn held_key_shows_its_holder<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    // A store may learn the token from the first heartbeat.
    assert_eq!(
        case.heartbeat(&grant, 1).await,
        Heartbeat::Extended,
        "the store should extend the current grant"
    );

    let reported = case.holder().await.into_iter();
    let refused = match case.ask(&case.claim("b")).await {
        Obtained::Held(holder) => Some(holder),
        // The promise `held_key_is_granted_to_no_other_lessee` reports this fault.
        Obtained::Granted(..) => None,
    };

    let most = case.ttl * 3;
    for holder in reported.chain(refused) {
        assert_eq!(
            (&holder.lessee, holder.token),
            (&grant.lessee, Some(grant.token)),
            "`holder` and a refused claim should report the lessee and the token of the grant"
        );
        let left = holder.expires_in.unwrap_or(Duration::ZERO);
        assert!(
            left <= most,
            "`holder` reports that {left:?} are left of {:?}: the store should report how long it \
             keeps the key for its holder if no heartbeat arrives",
            case.ttl
        );
    }
    case.has_holder(&grant.lessee, "its lease has not expired").await;
}

/// A key whose lease expired has no holder. A store that measures expiry by observation may need two reads.
pub async fn expired_key_has_no_holder<F: Fixture>(case: Case<F>) {
    case.granted("a").await;
    case.pass(case.ttl * 4).await;
    drop(case.holder().await);
    case.pass(case.ttl * 2).await;

    case.has_no_holder("its lease expired").await;
}

/// A key that was never leased or was released has no holder.
pub async fn free_key_has_no_holder<F: Fixture>(case: Case<F>) {
    case.has_no_holder("the store was opened").await;
    let grant = case.granted("a").await;
    case.release(&grant).await;

    case.has_no_holder("a release").await;
}

/// Leases of different keys do not affect each other.
pub async fn keys_do_not_disturb_each_other<F: Fixture>(case: Case<F>) {
    // Names that a store might confuse.
    let keys = ["k", "k/", "K", "k:1", "k:10", "{k}", "k%", "k*", "ключ", "k k"].map(name);
    let mut grants = Vec::new();
    for key in &keys {
        // A slow server may need longer than one ttl for ten requests.
        grants.push(case.obtain(&case.long_claim(key, "a")).await);
    }

    for grant in grants.iter().step_by(2) {
        case.release(grant).await;
    }

    for (place, grant) in grants.iter().enumerate() {
        let extended = case.heartbeat(grant, 1).await == Heartbeat::Extended;
        let released = place % 2 == 0;
        assert_eq!(
            extended, !released,
            "{}: the store should extend a grant that was not released (released: {released}), \
             independently of other keys",
            grant.key
        );
    }
}

/// A store sets the attributes of a claim, or refuses the claim.
pub async fn attributes_of_claim_are_set_or_refused<F: Fixture>(case: Case<F>) {
    let sky = Attributes::from([("sky".to_owned(), Value::from("grey"))]);
    let claim = case.claim("a").with_attributes(sky.clone());

    let answer = case.store.obtain(&claim).await;

    match answer {
        Ok(Obtained::Granted(_, attributes)) => {
            assert_eq!(attributes, sky, "a grant should return the attributes that it set");
        }
        Err(error) if error.kind() == StoreErrorKind::Misconfigured => {
            case.has_no_holder("a refused claim").await;
            let grant = case.granted("b").await;
            let adopted = case.store.adopt(&grant, &case.claim("a").with_attributes(sky)).await;
            assert!(
                adopted.is_err_and(|error| error.kind() == StoreErrorKind::Misconfigured),
                "a store that refuses a claim with attributes should refuse its adoption as well"
            );
        }
        answer => unreachable!(
            "the store should grant a claim with attributes, or refuse it as `Misconfigured` if \
             it keeps no records: {answer:?}"
        ),
    }
}

/// Each grant after a release has a larger token.
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

/// The grant after an expired grant has a larger token.
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

/// An adoption has a larger token than the grant that was handed over.
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
