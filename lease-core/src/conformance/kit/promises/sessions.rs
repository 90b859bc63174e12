//! Sessions: leases that last as long as another lease. Stores without sessions pass.

use crate::conformance::Fixture;
use crate::conformance::kit::case::{Case, expect_again, expect_granted, expect_held, name};
use crate::key::LeaseKey;
use crate::lengths::Ttl;
use crate::store::attributes::{Change, Value};
use crate::store::grant::{Claim, Grant, Heartbeat, Obtained, Written};
use crate::store::lease_table::{LastGrant, LeaseRecord, LeaseTable};
use crate::store::lock_store::LockStore;
use crate::store::session::{Ended, Parent, SessionState, Sessions, Vacancy};

/// A lease under a session does not expire, and its `Holder` names the session.
pub async fn lease_under_session_outlasts_its_ttl<F: Fixture>(case: Case<F>) {
    let Some(sessions) = case.store.sessions() else { return };
    let session = case.session().await;
    let (_, child) = case.child(sessions, &session).await;

    case.pass(case.ttl * 2).await;

    let why = "the session of the key has not ended";
    case.has_holder(&child.lessee, why).await;
    let holder = expect_held(case.ask(&case.claim("b")).await, "a key whose session is held");
    for holder in [Some(holder), case.holder().await].into_iter().flatten() {
        assert_eq!(
            holder.parent,
            Some(Parent::from(&session)),
            "the holder should name the session under which it holds the key"
        );
    }
}

/// The store does not end a session that is held, and a heartbeat extends the session.
pub async fn session_that_is_held_is_not_ended<F: Fixture>(case: Case<F>) {
    let Some(sessions) = case.store.sessions() else { return };
    let session = case.session().await;

    let state = case.end(sessions, &session).await;

    assert!(
        matches!(state, SessionState::Held(_)),
        "the store should not end a session that is held: {state:?}"
    );
    let beat = case.heartbeat(&session, 1).await;
    assert_eq!(beat, Heartbeat::Extended, "the store should not have ended the session");
}

/// The end of an expired session is irrevocable: its record shows the end, and heartbeats are lost.
pub async fn end_of_expired_session_is_written<F: Fixture>(case: Case<F>) {
    let Some(sessions) = case.store.sessions() else { return };
    let session = case.short_session().await;

    case.ended(sessions, &session).await;

    let record = case.record(sessions, &session.key).await;
    assert!(
        record.as_ref().and_then(|it| Ended::shown_by(it, &Parent::from(&session))).is_some(),
        "a read should show that the session has ended: {record:?}"
    );
    let beat = case.heartbeat(&session, 1).await;
    assert!(matches!(beat, Heartbeat::Lost(_)), "an ended session should stay ended: {beat:?}");
    let again = case.end(sessions, &session).await;
    assert!(matches!(again, SessionState::Ended(_)), "the session should stay ended: {again:?}");
}

/// The record of a session shows its end after a release, and also after a later session.
///
/// A store may learn the token of the later session from its first heartbeat.
pub async fn released_session_has_ended<F: Fixture>(case: Case<F>) {
    let Some(sessions) = case.store.sessions() else { return };
    let session = case.session().await;
    let parent = Parent::from(&session);
    let before = case.record(sessions, &session.key).await;
    let shown = |record: Option<LeaseRecord>| Ended::shown_by(&record?, &parent);
    assert_eq!(shown(before), None, "a read should not show the end of a session that is held");

    case.release(&session).await;
    let mut released = case.record(sessions, &session.key).await;
    if released.is_none() && !case.fixture.remembers_released_nonces() {
        case.ended(sessions, &session).await;
        released = case.record(sessions, &session.key).await;
    }
    let next = case.session().await;
    let extended = case.heartbeat(&next, 1).await;
    let later = case.record(sessions, &session.key).await;

    assert!(shown(released).is_some(), "a read should show the end of a released session");
    assert!(shown(later).is_some(), "a read should show the larger token of a later session");
    let state = case.end(sessions, &session).await;
    assert!(matches!(state, SessionState::Ended(_)), "a released session has ended: {state:?}");
    assert_eq!(
        [extended, case.heartbeat(&next, 2).await],
        [Heartbeat::Extended; 2],
        "the end of a former session should not end a later one"
    );
}

/// A key whose session has ended is granted to a claim with the proof of the end, under a larger token.
pub async fn key_of_ended_session_is_granted_with_its_proof<F: Fixture>(case: Case<F>) {
    let Some(sessions) = case.store.sessions() else { return };
    let session = case.short_session().await;
    let (_, child) = case.child(sessions, &session).await;
    let proof = case.ended(sessions, &session).await;

    let next = case.session().await;
    let vacancy = case.vacancy(sessions, Some(&proof)).await;
    let claim = case.claim("b").under(Parent::from(&next));
    let granted = expect_granted(
        case.ask_under(sessions, &claim, &vacancy).await,
        "a key under a session that has ended",
    );

    assert!(
        granted.token > child.token,
        "the token after {} was {}: the store should grant a larger one each time",
        child.token,
        granted.token
    );
    case.has_holder(&granted.lessee, "its claim was granted").await;
}

/// A session that has ended does not free the keys under another session.
pub async fn proof_of_another_session_grants_nothing<F: Fixture>(case: Case<F>) {
    let Some(sessions) = case.store.sessions() else { return };
    let former = case.session().await;
    case.release(&former).await;
    let proof = case.ended(sessions, &former).await;
    let session = case.session().await;
    let (_, child) = case.child(sessions, &session).await;

    // A copy of the record, as if the key were held under the former session.
    let mut record = case.record(sessions, &case.key()).await.unwrap_or_else(|| absent(&case));
    if let Some(holder) = &mut record.holder {
        holder.parent = Some(Parent::from(&former));
    }
    let claim = case.claim("b");
    let vacancy = Vacancy::seen(&case.key(), Some(&record), &claim.lessee, Some(&proof));
    let Some(vacancy) = vacancy else { return };
    drop(expect_held(
        case.ask_under(sessions, &claim, &vacancy).await,
        "a key under a session that is held",
    ));

    case.has_holder(&child.lessee, "the proof belongs to another session").await;
}

/// A claim is refused if the key was granted after the client read the record, even if the key is free again.
pub async fn claim_that_has_seen_a_smaller_token_is_refused<F: Fixture>(case: Case<F>) {
    let Some(sessions) = case.store.sessions() else { return };
    let session = case.session().await;
    let seen = case.vacancy(sessions, None).await;
    let (claim, first) = case.child(sessions, &session).await;
    case.release(&first).await;

    let late = case.claim("a").under(Parent::from(&session));
    for claim in [&claim, &late] {
        drop(expect_held(
            case.ask_under(sessions, claim, &seen).await,
            "a claim whose client has read a smaller token than the current one",
        ));
    }
    case.has_no_holder("a release, and late claims").await;
}

/// If the reply to a claim under a session was lost, the repeated claim is granted again.
pub async fn repeated_claim_under_session_is_granted_again<F: Fixture>(case: Case<F>) {
    let Some(sessions) = case.store.sessions() else { return };
    let session = case.session().await;
    let seen = case.vacancy(sessions, None).await;
    let claim = case.claim("a").under(Parent::from(&session));

    let first = expect_granted(case.ask_under(sessions, &claim, &seen).await, "a free key");
    let repeated = case.ask_under(sessions, &claim.clone().repeated(), &seen).await;

    expect_again(&expect_granted(repeated, "a repeated claim"), &first, "a repeated claim");
    assert_eq!(first.parent, claim.parent, "the grant should name the session of its claim");
}

/// A late release of an earlier lease under the same session does not free the key.
pub async fn release_of_earlier_lease_under_session_changes_nothing<F: Fixture>(case: Case<F>) {
    let Some(sessions) = case.store.sessions() else { return };
    let session = case.session().await;
    let (_, first) = case.child(sessions, &session).await;
    case.release(&first).await;
    let (_, second) = case.child(sessions, &session).await;

    case.release(&first).await;

    case.has_holder(&second.lessee, "an earlier lease of the session was released").await;
}

/// An update under an earlier lease of the same session is refused.
pub async fn update_under_earlier_lease_of_session_changes_nothing<
    F: Fixture<Store: LeaseTable>,
>(
    case: Case<F>,
) {
    let Some(sessions) = case.store.sessions() else { return };
    let session = case.session().await;
    let (_, first) = case.child(sessions, &session).await;
    case.release(&first).await;
    case.child(sessions, &session).await;

    let change = Change::new().set("checkpoint", 1);
    let written = case.written(case.store.update(&first, &change)).await;

    assert!(matches!(written, Written::Lost(_)), "the update should be refused: {written:?}");
    let record = case.record(sessions, &case.key()).await;
    let checkpoint = record.and_then(|record| record.attributes.get("checkpoint").cloned());
    assert_eq!(checkpoint, None, "the update should have been refused");
}

/// A lease under a session cannot be evicted: its holder sends no heartbeats, so the holder would not
/// notice.
pub async fn lease_under_session_is_not_evicted<F: Fixture>(case: Case<F>) {
    let Some(sessions) = case.store.sessions() else { return };
    let session = case.session().await;
    let (_, child) = case.child(sessions, &session).await;
    let holder = case.holder().await;
    let Some(grant) = holder.and_then(|holder| holder.grant) else { return };

    let evicted = case.store.evict(&case.key(), &grant).await;

    assert!(
        evicted.is_err(),
        "the store should refuse to evict a lease under a session: {evicted:?}"
    );
    case.has_holder(&child.lessee, "the eviction was refused").await;
}

/// A heartbeat takes a lease out of its session, so that the lease can be handed over.
pub async fn heartbeat_takes_lease_out_of_its_session<F: Fixture>(case: Case<F>) {
    let Some(sessions) = case.store.sessions() else { return };
    let session = case.session().await;
    let (_, child) = case.child(sessions, &session).await;
    let handed = Grant { ttl: Ttl::clamped(case.ttl).get(), ..child };
    let since = case.now();

    let beat = case.heartbeat(&handed, 1).await;

    assert_eq!(beat, Heartbeat::Extended, "the last heartbeat of a hand-over extends the lease");
    let holder = case.holder().await;
    assert!(
        holder.as_ref().is_some_and(|holder| holder.parent.is_none()),
        "the lease should no longer be under the session: {holder:?}"
    );
    let (_, taken) = case.taken_over("b").await;
    case.not_before_ttl(taken, since);
}

/// A late hand-over takes a key out of its ended session, under the same token. A claim that is refused then is also
/// refused later, when the key is free. A store that may grant the claim later returns an error instead of the
/// refusal.
pub async fn claim_refused_after_late_hand_over_stays_refused<F: Fixture>(case: Case<F>) {
    let Some(sessions) = case.store.sessions() else { return };
    let session = case.short_session().await;
    let (_, child) = case.child(sessions, &session).await;
    let proof = case.ended(sessions, &session).await;
    let next = case.session().await;
    let seen = case.vacancy(sessions, Some(&proof)).await;
    let handed = Grant { ttl: case.fixture.long_ttl(), ..child };
    let beat = case.heartbeat(&handed, 1).await;
    assert_eq!(beat, Heartbeat::Extended, "no lessee has obtained the key since the session ended");

    let claim = case.claim("b").under(Parent::from(&next));
    let Ok(answer) = sessions.obtain_under(&claim, &seen).await else { return };
    drop(expect_held(answer, "a key that has left its session"));
    case.release(&handed).await;

    let late = case.ask_under(sessions, &claim.repeated(), &seen).await;
    drop(expect_held(late, "a late copy of a claim that was refused"));
    case.has_no_holder("a release, and a late copy of a refused claim").await;
}

/// A read shows that a key is reserved, so no client claims it: a late duplicate might be granted.
pub async fn reserved_key_shows_its_reservation<F: Fixture>(case: Case<F>) {
    let Some(sessions) = case.store.sessions() else { return };
    let grant = case.granted("a").await;
    let reserved = Some(case.fixture.long_ttl());
    let answer = case.store.release(&grant, reserved).await;
    assert!(answer.is_ok(), "the store should answer a release: {answer:?}");

    let record = case.record(sessions, &case.key()).await;

    let vacancy = Vacancy::seen(&case.key(), record.as_ref(), &grant.lessee, None);
    assert_eq!(vacancy, None, "a read should show that the key is reserved: {record:?}");
}

/// `read_all` returns the records in the order of the requested keys.
pub async fn records_of_several_keys_are_read_in_order<F: Fixture>(case: Case<F>) {
    let Some(sessions) = case.store.sessions() else { return };
    let keys = ["a", "b", "c"].map(|key| name(&format!("conformance/{key}")));
    let [a, _, c] = &keys;
    for key in [c, a] {
        case.obtain(&case.long_claim(key, key.as_str())).await;
    }

    let records = sessions.read_all(&keys).await;

    let found = records.into_iter().map(|record| record.ok().flatten().map(|record| record.key));
    assert_eq!(
        found.collect::<Vec<_>>(),
        [Some(a.clone()), None, Some(c.clone())],
        "`read_all` should answer in the order of its keys"
    );
}

/// `count` adds one to an attribute, and creates the key's record if it is absent.
pub async fn count_adds_one<F: Fixture>(case: Case<F>) {
    let Some(sessions) = case.store.sessions() else { return };
    for expected in 1..=3 {
        let counted = sessions.count(&case.key(), "changes").await;

        assert_eq!(counted.ok(), Some(expected), "the store should add one");
    }

    let record = case.record(sessions, &case.key()).await;
    let changes = record.and_then(|record| record.attributes.get("changes").cloned());
    assert_eq!(changes.as_ref().and_then(Value::as_i64), Some(3), "a read should show the count");
}

fn absent<F: Fixture>(case: &Case<F>) -> LeaseRecord {
    LeaseRecord::new(case.key(), None, None, crate::Attributes::new())
        .with_end(LastGrant::Ended, None)
}

#[expect(clippy::expect_used, clippy::panic, reason = "a panic reports a broken promise")]
impl<F: Fixture> Case<F> {
    async fn session(&self) -> Grant {
        self.obtain(&self.long_claim(&name("conformance/session"), "a")).await
    }

    async fn short_session(&self) -> Grant {
        self.obtain(&self.claim_of(&name("conformance/session"), "a")).await
    }

    async fn record(&self, sessions: &dyn Sessions, key: &LeaseKey) -> Option<LeaseRecord> {
        let mut records = sessions.read_all(std::slice::from_ref(key)).await;
        let record = records.pop().expect("the store should answer each read");
        record.expect("the store should read a record")
    }

    async fn vacancy(&self, sessions: &dyn Sessions, proof: Option<&Ended>) -> Vacancy {
        let record = self.record(sessions, &self.key()).await;
        let lessee = self.claim("a").lessee;
        Vacancy::seen(&self.key(), record.as_ref(), &lessee, proof).unwrap_or_else(|| {
            panic!("a read should show that the key is free, or held under `{proof:?}`: {record:?}")
        })
    }

    async fn ask_under(
        &self,
        sessions: &dyn Sessions,
        claim: &Claim,
        vacancy: &Vacancy,
    ) -> Obtained {
        sessions.obtain_under(claim, vacancy).await.expect("the store should answer a claim")
    }

    async fn child(&self, sessions: &dyn Sessions, session: &Grant) -> (Claim, Grant) {
        let vacancy = self.vacancy(sessions, None).await;
        let claim = self.claim("a").under(Parent::from(session));
        let granted = self.ask_under(sessions, &claim, &vacancy).await;
        (claim, expect_granted(granted, "a free key under a session"))
    }

    async fn end(&self, sessions: &dyn Sessions, session: &Grant) -> SessionState {
        let session = Parent::from(session);
        sessions.end_session(&session).await.expect("the store should answer the end of a session")
    }

    async fn ended(&self, sessions: &dyn Sessions, session: &Grant) -> Ended {
        for _ in 0..80 {
            if let SessionState::Ended(proof) = self.end(sessions, session).await {
                return proof;
            }
            self.pass(self.ttl / 16).await;
        }
        panic!("the store should end a session within five ttls after its lease ran out");
    }
}
