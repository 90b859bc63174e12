//! What keeps a lease alive, and what does not.

use futures_util::StreamExt;

use crate::conformance::Fixture;
use crate::conformance::case::{Case, name};
use crate::grant::{Beat, Claim, Heartbeat};
use crate::lost::LossCause;
use crate::store::LockStore;

/// A heartbeat keeps the key for another ttl.
pub async fn a_heartbeat_extends<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    case.pass(case.ttl / 2).await;

    let since = case.now();
    assert_eq!(case.heartbeat(&grant, 1).await, Heartbeat::Extended);

    let (_, taken) = case.taken_over("b").await;
    case.not_before_ttl(taken, since);
}

/// A heartbeat lasts as long as it says, longer or shorter than the one before: that is how a
/// hand-over is bounded.
pub async fn a_heartbeat_lasts_as_long_as_its_own_ttl<F: Fixture>(case: Case<F>) {
    let (key, other) = (case.key(), name("conformance/other"));
    let mut longer = case.granted("a").await;
    let mut shorter = case.obtain(&case.claim_of(&other, "a")).await;
    longer.ttl = case.ttl * 3;
    shorter.ttl = case.ttl / 2;

    let since = case.now();
    assert_eq!(case.heartbeat(&longer, 1).await, Heartbeat::Extended);
    assert_eq!(case.heartbeat(&shorter, 1).await, Heartbeat::Extended);

    case.pass(case.ttl / 4).await;

    let [long, short] = case.both_taken_over([&key, &other]).await;
    case.not_before(long.granted, since, longer.ttl);
    let between = long.granted.since(short.granted);
    assert!(between > case.ttl * 2, "the shorter one ended only {between:?} before the longer");
}

/// A heartbeat that arrives after a later one takes nothing from what the later one gave.
pub async fn a_late_heartbeat_does_not_shorten<F: Fixture>(case: Case<F>) {
    let since = case.now();
    let grant = case.granted("a").await;
    case.heartbeat(&grant, 2).await;

    let mut shorter = grant.clone();
    shorter.ttl = case.ttl / 8;
    case.heartbeat(&shorter, 1).await;
    case.pass(case.ttl / 4).await;

    let (_, taken) = case.taken_over("b").await;
    case.not_before_ttl(taken, since);
}

/// A heartbeat that arrives after a later one, or twice, is neither an extension nor a loss.
pub async fn a_late_heartbeat_is_overtaken<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    case.heartbeat(&grant, 2).await;

    for late in [1, 2] {
        let answer = case.heartbeat(&grant, late).await;
        // To answer a loss or an extension would each be believed.
        assert_eq!(answer, Heartbeat::Overtaken, "heartbeat {late} after 2");
    }
}

/// A grant that ran out does not come back by its own heartbeat, however late.
pub async fn a_heartbeat_does_not_revive_what_has_expired<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    // Also long enough for a store that waits a margin beyond the ttl.
    case.pass(case.ttl * 4).await;

    let answer = case.heartbeat(&grant, 1).await;

    assert_eq!(answer, Heartbeat::Lost(LossCause::Expired));
}

/// A heartbeat after its own release is lost, and does not take the key again.
pub async fn a_heartbeat_after_release_is_lost<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    case.release(&grant).await;

    let answer = case.heartbeat(&grant, 1).await;

    assert!(matches!(answer, Heartbeat::Lost(_)), "{answer:?}");
    assert_eq!(case.holder().await, None);
}

/// A heartbeat by a former holder is lost, and leaves the key to its holder.
pub async fn a_heartbeat_by_a_former_holder_is_lost<F: Fixture>(case: Case<F>) {
    let former = case.granted("a").await;
    case.pass(case.ttl).await;
    let (current, _) = case.taken_over("b").await;

    let answer = case.heartbeat(&former, 1).await;

    assert_eq!(answer, Heartbeat::Lost(LossCause::Superseded));
    assert_eq!(case.lessee_of_holder().await, Some(current.lessee));
}

/// Of many heartbeats sent together, each is answered once, and for itself.
pub async fn many_heartbeats_are_each_answered_once<F: Fixture>(case: Case<F>) {
    let mut beats = Vec::new();
    for number in 0..300 {
        let key = name(&format!("conformance/many-{number}"));
        // None of them is to run out before the last is there, however slow the store.
        let claim = Claim { ttl: case.ttl * 20, ..case.claim_of(&key, "a") };
        let grant = case.obtain(&claim).await;
        if number % 3 == 0 {
            case.release(&grant).await;
        }
        beats.push((grant, Beat::new(1)));
    }

    let store = case.store.inner();
    let answers: Vec<_> = store.heartbeat_all(&beats).collect().await;

    let mut places: Vec<_> = answers.iter().map(|(place, _)| *place).collect();
    places.sort_unstable();
    assert_eq!(places, (0..300).collect::<Vec<_>>(), "the places that were answered");
    for (place, answer) in answers {
        let extended = matches!(answer, Ok(Heartbeat::Extended));
        assert_eq!(extended, place % 3 != 0, "heartbeat {place}: {answer:?}");
    }
}
