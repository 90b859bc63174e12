//! Scenarios of sessions.

use std::time::Duration;

use lease_core::store::{
    Ended, Grant, Heartbeat, LastGrant, LeaseRecord, LeaseTable, LockStore, Obtained, Parent,
    SessionState, Sessions, Vacancy,
};
use lease_core::{LeaseKey, StoreErrorKind, Value};

use crate::world::{ALMOST_TTL, Handle, TTL, World, attribute, claim, key};

pub(crate) async fn lease_under_session_outlasts_its_ttl(world: World) {
    let store = world.open().await;
    let session = store.session("worker").await;
    let child = store.child(&session).await;
    let mut other = claim("a");
    other.key = key("other");
    let handed = store.granted(&other).await;
    let mut adopting = other.clone().under(Parent::from(&session));
    adopting.nonce = claim("b").nonce;
    let adopted = store.0.adopt(&handed, &adopting).await.unwrap();
    assert!(matches!(adopted, Obtained::Granted(..)), "{adopted:?}");

    world.pass(TTL * 10);

    assert_eq!(store.refused(&claim("c")).await.parent, child.parent);
    other.nonce = claim("c").nonce;
    assert_eq!(store.refused(&other).await.parent, child.parent);
}

pub(crate) async fn claim_is_refused_if_its_token_is_no_longer_current(world: World) {
    let store = world.open().await;
    let session = store.session("worker").await;
    let seen = store.vacancy(None).await;
    let first = store.child(&session).await;
    store.release(&first).await;

    let late = store.0.obtain_under(&claim("b"), &seen).await.unwrap();

    assert!(matches!(late, Obtained::Held(_)), "{late:?}");
    assert!(store.child(&session).await.token > first.token);
}

/// The first session has another key and an equal token. The second has an equal key and another token.
pub(crate) async fn end_of_another_session_frees_no_key(world: World) {
    let store = world.open().await;
    let other = store.session("other").await;
    let former = store.session("worker").await;
    assert_eq!(other.token, former.token);
    store.release(&other).await;
    store.release(&former).await;
    let with_equal_token = store.session("worker").await;
    assert!(with_equal_token.token > former.token);
    let child = store.child(&with_equal_token).await;

    let another_key = Parent::new(key("other"), with_equal_token.token);
    for ended in [another_key, Parent::from(&former)] {
        let mut record = store.record(&child.key).await.unwrap();
        if let Some(holder) = &mut record.holder {
            holder.parent = Some(ended.clone());
        }
        let proof = Ended::written(ended);
        let lessee = claim("b").lessee;
        let seen = Vacancy::seen(&child.key, Some(&record), &lessee, Some(&proof)).unwrap();

        let answer = store.0.obtain_under(&claim("b"), &seen).await.unwrap();

        assert!(matches!(answer, Obtained::Held(_)), "{answer:?}");
    }
}

/// A late hand-over does not change the token.
pub(crate) async fn key_that_has_left_its_session_is_refused(world: World) {
    let store = world.open().await;
    let session = store.session("worker").await;
    let child = store.child(&session).await;
    store.release(&session).await;
    let seen = store.vacancy(Some(&Ended::written(Parent::from(&session)))).await;
    assert_eq!(store.beat(&child, 1).await, Heartbeat::Extended);

    let answer = store.0.obtain_under(&claim("b"), &seen).await.unwrap();

    assert!(matches!(answer, Obtained::Held(_)), "{answer:?}");
    world.pass(TTL);
    store.granted(&claim("c")).await;
}

/// The file was restored from a backup, in which the lease had not ended yet.
pub(crate) async fn key_whose_last_lease_is_open_is_refused(world: World) {
    let store = world.open().await;
    let first = store.granted(&claim("a")).await;
    store.release(&first).await;
    let seen = store.vacancy(None).await;
    world.run_sql("UPDATE lease SET nonce = last, ends = 9000000000000000, last = NULL");

    let answer = store.0.obtain_under(&claim("b"), &seen).await.unwrap();

    assert!(matches!(answer, Obtained::Held(_)), "{answer:?}");
}

pub(crate) async fn claim_is_refused_if_its_row_was_removed(world: World) {
    let store = world.open().await;
    let first = store.granted(&claim("a")).await;
    store.release(&first).await;
    let seen = store.vacancy(None).await;
    world.run_sql("DELETE FROM lease");

    let answer = store.0.obtain_under(&claim("b"), &seen).await.unwrap();

    assert!(matches!(answer, Obtained::Held(_)), "{answer:?}");
    assert!(!world.has_row("job"));
}

pub(crate) async fn session_is_ended_only_after_its_ttl(world: World) {
    let store = world.open().await;
    let session = store.session("worker").await;

    world.pass(ALMOST_TTL);
    let before = store.end(&session).await;
    world.pass(Duration::from_micros(1));
    let after = store.end(&session).await;

    assert!(matches!(before, SessionState::Held(_)), "{before:?}");
    assert!(matches!(after, SessionState::Ended(_)), "{after:?}");
    assert_eq!(store.record(&session.key).await.unwrap().last_grant, LastGrant::Ended);
    assert!(matches!(store.beat(&session, 1).await, Heartbeat::Lost(_)));
}

pub(crate) async fn end_of_a_former_session_changes_no_later_one(world: World) {
    let store = world.open().await;
    let former = store.session("worker").await;
    store.release(&former).await;
    let later = store.session("worker").await;
    world.pass(TTL);

    let state = store.end(&former).await;

    assert!(matches!(state, SessionState::Ended(_)), "{state:?}");
    let record = store.record(&later.key).await.unwrap();
    assert_eq!((record.token, record.last_grant), (Some(later.token), LastGrant::Open));
}

/// The file has lost the grant of the session, once with its row.
pub(crate) async fn session_without_its_grant_gets_an_end_mark(world: World) {
    let store = world.open().await;
    for loss in [
        "DROP TRIGGER lease_removed; DELETE FROM lease",
        "UPDATE lease SET token = token - 5 WHERE nonce IS NULL",
    ] {
        let session = store.session("worker").await;
        store.release(&session).await;
        world.run_sql(loss);

        let state = store.end(&session).await;

        assert!(matches!(state, SessionState::Ended(_)), "{state:?}");
        let record = store.record(&session.key).await.unwrap();
        assert_eq!((record.token, record.last_grant), (Some(session.token), LastGrant::Ended));
    }
}

pub(crate) async fn session_of_another_boot_gets_one_more_ttl(world: World) {
    let store = world.open().await;
    let session = store.session("worker").await;
    let child = store.child(&session).await;
    world.machine.reboot(Duration::from_secs(7200));

    let state = store.end(&session).await;
    drop(world.open().await);
    world.pass(TTL);

    assert!(matches!(state, SessionState::Held(_)), "{state:?}");
    let holder = store.holder().await;
    assert_eq!(holder.and_then(|holder| holder.parent), child.parent, "only the session ends");
    let state = store.end(&session).await;
    assert!(matches!(state, SessionState::Ended(_)), "{state:?}");
}

pub(crate) async fn count_keeps_other_attributes(world: World) {
    let store = world.open().await;
    let session = store.granted(&claim("a")).await;
    for expected in [1, 2] {
        assert_eq!(store.0.count(&key("job"), "changes").await.unwrap(), expected);
    }
    store.release(&session).await;
    assert!(store.0.read(&key("job")).await.unwrap().is_some(), "a counter makes a record");
    let mut both = attribute("sky", "blue");
    both.insert("changes".to_owned(), Value::from(3));
    let grant = store.granted(&claim("b").with_attributes(attribute("sky", "blue"))).await;
    store.release(&grant).await;

    assert_eq!(store.0.count(&key("job"), "changes").await.unwrap(), 3);

    assert_eq!(store.attributes().await, Some(both));
    let error = store.0.count(&key("job"), "sky").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt);
    store.0.count(&key("other"), "changes").await.unwrap();
    let record = store.0.read(&key("other")).await.unwrap();
    assert_eq!(record.unwrap().attributes.get("changes"), Some(&Value::from(1)));
}

impl Handle {
    async fn session(&self, name: &str) -> Grant {
        let mut claim = claim("a");
        claim.key = key(name);
        self.granted(&claim).await
    }

    async fn child(&self, session: &Grant) -> Grant {
        let vacancy = self.vacancy(None).await;
        let claim = claim("a").under(Parent::from(session));
        match self.0.obtain_under(&claim, &vacancy).await.unwrap() {
            Obtained::Granted(grant, _) => grant,
            Obtained::Held(holder) => panic!("the key is held by {holder:?}"),
        }
    }

    async fn vacancy(&self, proof: Option<&Ended>) -> Vacancy {
        let record = self.record(&key("job")).await;
        Vacancy::seen(&key("job"), record.as_ref(), &claim("a").lessee, proof).unwrap()
    }

    async fn record(&self, key: &LeaseKey) -> Option<LeaseRecord> {
        self.0.read_all(std::slice::from_ref(key)).await.remove(0).unwrap()
    }

    async fn end(&self, session: &Grant) -> SessionState {
        self.0.end_session(&Parent::from(session)).await.unwrap()
    }
}
