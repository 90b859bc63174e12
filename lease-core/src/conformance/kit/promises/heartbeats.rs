//! Heartbeats: when a heartbeat extends its lease, and when the answer is `Overtaken` or `Lost`.

use futures_util::StreamExt;

use crate::conformance::Fixture;
use crate::conformance::kit::case::{Case, name};
use crate::lost::LossCause;
use crate::store::grant::{Beat, Heartbeat};
use crate::store::lock_store::LockStore;

/// After a heartbeat, the lease lasts for a ttl from that heartbeat.
pub async fn heartbeat_extends<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    case.pass(case.ttl / 2).await;

    let since = case.now();
    assert_eq!(case.heartbeat(&grant, 1).await, Heartbeat::Extended, "{EXTEND}");

    let (_, taken) = case.taken_over("b").await;
    case.not_before_ttl(taken, since);
}

/// A heartbeat extends the lease by the heartbeat's own ttl, which may be longer or shorter than before.
pub async fn heartbeat_lasts_as_long_as_its_own_ttl<F: Fixture>(case: Case<F>) {
    let (key, other) = (case.key(), name("conformance/other"));
    let mut longer = case.granted("a").await;
    let mut shorter = case.obtain(&case.claim_of(&other, "a")).await;
    longer.ttl = case.ttl * 3;
    shorter.ttl = case.ttl / 2;

    let since = case.now();
    assert_eq!(case.heartbeat(&longer, 1).await, Heartbeat::Extended, "{EXTEND}");
    assert_eq!(case.heartbeat(&shorter, 1).await, Heartbeat::Extended, "{EXTEND}");

    case.pass(case.ttl / 4).await;

    let [long, short] = case.both_taken_over([&key, &other]).await;
    case.not_before(long.granted, since, longer.ttl);
    let between = long.granted.since(short.granted);
    assert!(
        between > case.ttl * 2,
        "a lease that was extended for {:?} ended only {between:?} before a lease that was extended \
         for {:?}: the store should extend by the heartbeat's own ttl",
        shorter.ttl,
        longer.ttl
    );
}

/// A heartbeat that arrives after a later heartbeat does not shorten the lease.
pub async fn late_heartbeat_does_not_shorten<F: Fixture>(case: Case<F>) {
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

/// A heartbeat that arrives twice, or after a later heartbeat, is neither an extension nor a loss.
pub async fn late_heartbeat_is_overtaken<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    case.heartbeat(&grant, 2).await;

    for late in [1, 2] {
        let answer = case.heartbeat(&grant, late).await;
        // Either `Lost` or `Extended` would mislead the caller.
        assert_eq!(
            answer,
            Heartbeat::Overtaken,
            "heartbeat {late} arrived after heartbeat 2: the store should neither extend the \
             lease nor report it lost"
        );
    }
}

/// Heartbeat numbers restart with each grant, even if an earlier grant of the key had many heartbeats.
pub async fn heartbeats_count_from_each_grant<F: Fixture>(case: Case<F>) {
    let former = case.granted("a").await;
    assert_eq!(case.heartbeat(&former, MANY).await, Heartbeat::Extended, "{EXTEND}");
    case.release(&former).await;
    let grant = case.granted("b").await;

    let answer = case.heartbeat(&grant, 1).await;

    assert_eq!(
        answer,
        Heartbeat::Extended,
        "heartbeat 1 of a new grant came after heartbeat {MANY} of an earlier grant: the store \
         should reset the number of the last heartbeat with each grant, or the new holder loses \
         its lease"
    );
}

/// Heartbeat numbers restart with each adoption.
pub async fn heartbeats_count_from_each_adoption<F: Fixture>(case: Case<F>) {
    let handed = case.granted("a").await;
    assert_eq!(case.heartbeat(&handed, MANY).await, Heartbeat::Extended, "{EXTEND}");
    let adopted = case.adopted(&handed, &case.claim("b")).await;

    let answer = case.heartbeat(&adopted, 1).await;

    assert_eq!(
        answer,
        Heartbeat::Extended,
        "heartbeat 1 after an adoption follows heartbeat {MANY} before the adoption: the store should \
         reset the number of the last heartbeat with each adoption, or the new holder loses its \
         lease"
    );
}

/// A late heartbeat does not extend an expired lease.
pub async fn heartbeat_does_not_revive_expired_lease<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    // Waits long enough for a store that adds a margin to the ttl.
    case.pass(case.ttl * 4).await;

    let answer = case.heartbeat(&grant, 1).await;

    assert_eq!(
        answer,
        Heartbeat::Lost(LossCause::Expired),
        "the store should report an expired grant as expired, also if no other lessee has obtained \
         the key"
    );
}

/// A heartbeat after the release of its grant is answered with `Lost`, and does not obtain the key again.
pub async fn heartbeat_after_release_is_lost<F: Fixture>(case: Case<F>) {
    let grant = case.granted("a").await;
    case.release(&grant).await;

    let answer = case.heartbeat(&grant, 1).await;

    assert!(
        matches!(answer, Heartbeat::Lost(_)),
        "the store should answer `Lost` for a grant that was released: {answer:?}"
    );
    case.has_no_holder("a release and a later heartbeat").await;
}

/// A heartbeat of a former holder is answered with `Lost`, and does not affect the holder.
pub async fn heartbeat_by_former_holder_is_lost<F: Fixture>(case: Case<F>) {
    let former = case.granted("a").await;
    case.pass(case.ttl).await;
    let (current, _) = case.taken_over("b").await;

    let answer = case.heartbeat(&former, 1).await;

    assert_eq!(
        answer,
        Heartbeat::Lost(LossCause::Superseded),
        "the store should report a grant as superseded once its key was granted to another lessee"
    );
    case.has_holder(&current.lessee, "it obtained the key after the lease expired").await;
}

/// If many heartbeats are sent together, each gets exactly one answer, its own.
pub async fn many_heartbeats_are_each_answered_once<F: Fixture>(case: Case<F>) {
    let mut beats = Vec::new();
    for number in 0..300 {
        let key = name(&format!("conformance/many-{number}"));
        // No grant may expire before the last grant is made, even on a slow store.
        let grant = case.obtain(&case.long_claim(&key, "a")).await;
        if number % 3 == 0 {
            case.release(&grant).await;
        }
        beats.push((grant, Beat::new(1)));
    }

    let store = case.store.inner();
    let answers: Vec<_> = store.heartbeat_all(&beats).collect().await;

    let mut places: Vec<_> = answers.iter().map(|(place, _)| *place).collect();
    places.sort_unstable();
    assert_eq!(places, (0..300).collect::<Vec<_>>(), "the store should answer each heartbeat once");
    for (place, answer) in answers {
        let extended = matches!(answer, Ok(Heartbeat::Extended));
        let released = place % 3 == 0;
        assert_eq!(
            extended, !released,
            "the store should extend exactly the grants that were not released: heartbeat {place} \
             (released: {released}) was answered {answer:?}"
        );
    }
}

/// More heartbeats than a lease of 30 s has in a week.
const MANY: u64 = 100_000;
const EXTEND: &str = "the store should extend the current grant";
