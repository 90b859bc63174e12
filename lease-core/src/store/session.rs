//! Sessions: many leases that last as long as one lease, and need only its heartbeats.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::key::{LeaseKey, Lessee};
use crate::store::grant::{Claim, Grant, Holder, Obtained};
use crate::store::lease_table::{LastGrant, LeaseRecord};
use crate::token::FencingToken;

/// Keeps leases under a session. Such a store returns itself from
/// [`LockStore::sessions`](crate::store::LockStore::sessions).
///
/// A *session* is a plain lease. A *child* is a lease whose [claim](Claim::under) names a session.
/// A child has no ttl and no heartbeats: it lasts as long as its session. Each request is one
/// conditional write to one record.
///
/// # To ensure correctness
///
/// - **The record of a child names its session**: its key and the token of its grant. No time ends the
///   child. [`obtain`](crate::store::LockStore::obtain) and [`holder`](crate::store::LockStore::holder)
///   treat the key as held, and the [`Holder`] names the session. The key has [no
///   queue](crate::store::Enqueued::NoQueue), so its waiters race, and look for the end of the session.
/// - **The end of a session is written, and is irrevocable.** An expiry alone proves no end: see
///   [`end_session`](Self::end_session).
/// - **Only [`obtain_under`](Self::obtain_under) replaces a child**, with a proof that its session
///   has ended. Releases, transfers, updates and deletes of a child compare its nonce and its
///   token, and do not look at the session. So such a write may be applied after the session has
///   ended, as long as no lessee has obtained the key since.
/// - **A heartbeat under the grant of a child takes the child out of its session.** The lease then lasts
///   for the ttl of this heartbeat. A hand-over sends such a heartbeat. An
///   [adoption](crate::store::LockStore::adopt) makes a child of the session that its claim names, if any.
/// - **A child is not evicted**: [`evict`](crate::store::LockStore::evict) returns an error. The eviction
///   of its session ends all children.
/// - **The store keeps the token of a child's record** for as long as a request may be late.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// Grants `claim`, if its key is still in the state that `vacancy` describes.
    ///
    /// - The token of the record is that of `vacancy`, and the key is free and not reserved for
    ///   others: grant the claim, under a larger token. If `vacancy` has seen a session, the key
    ///   has left this session since, and a store may refuse the claim.
    /// - The token is that of `vacancy`, and the key is held under the session that `vacancy`
    ///   proves to have ended: grant the claim, too.
    /// - Held under this claim's nonce: return the grant again, as `obtain` does.
    /// - Otherwise: [`Obtained::Held`], also if the key is free under another token.
    ///
    /// The grant sets the claim's session and its attributes on the record. A claim without a session gets
    /// a lease with a ttl. Tokens only grow, so a late duplicate of a refused claim is refused, too.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown. Repeat the claim, with the same nonce and vacancy, until it is
    /// answered, or until its session ends: no ttl frees the key.
    /// [`Refused`](crate::StoreErrorKind::Refused), if `vacancy` is that of another key.
    async fn obtain_under(&self, claim: &Claim, vacancy: &Vacancy) -> Result<Obtained, StoreError>;

    /// Ends `session`, if the session is over: removes its lessee from the record, and keeps the token.
    ///
    /// The session is over if it has expired by the store's time, or has not changed for a ttl while the
    /// store observed it. If its token is no longer the latest token, or the record has no lessee, the
    /// session has already ended. Otherwise the answer is [`SessionState::Held`].
    ///
    /// If the record is absent, the store writes the end mark, unless all later tokens are larger anyway.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown. Repeat the call.
    async fn end_session(&self, session: &Parent) -> Result<SessionState, StoreError>;

    /// Reads the records of `keys`, in batches if the store can. The answers are in the order of
    /// `keys`: `None` if a key has no record, and an error if the record could not be read. A store
    /// that keeps the token of a deleted record returns the record without attributes, because a
    /// [`Vacancy`] must name this token.
    ///
    /// A read may be stale. Use the records for hints, [proofs](Ended::shown_by) and
    /// [vacancies](Vacancy::seen).
    async fn read_all(&self, keys: &[LeaseKey]) -> Vec<Result<Option<LeaseRecord>, StoreError>>;

    /// Adds one to the attribute `name` of the record of `key`, and returns its new value. Needs no grant.
    ///
    /// Creates the record if it is absent. An absent attribute counts as zero.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown: the attribute may have grown.
    /// [`Corrupt`](crate::StoreErrorKind::Corrupt), if the attribute is not a whole number.
    async fn count(&self, key: &LeaseKey, name: &str) -> Result<i64, StoreError>;
}

/// Names one session: a key, and the token of one grant of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Parent {
    /// The key of the session.
    pub key: LeaseKey,
    /// The token of the session's grant. A session that is obtained again has a larger token.
    pub token: FencingToken,
}

impl Parent {
    /// Names the session that was granted `key` under `token`.
    pub fn new(key: LeaseKey, token: FencingToken) -> Self {
        Self { key, token }
    }
}

impl From<&Grant> for Parent {
    fn from(session: &Grant) -> Self {
        Self::new(session.key.clone(), session.token)
    }
}

/// A proof that a session has ended. The end is irrevocable.
///
/// An absent record, an expiry in the past, and silence prove nothing. Then call
/// [`end_session`](Sessions::end_session).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ended(Parent);

impl Ended {
    /// Returns the proof, if the token of `record` is larger than that of `session`, or if the last grant
    /// is that of the session and [has ended](LastGrant::Ended). The read may be stale.
    pub fn shown_by(record: &LeaseRecord, session: &Parent) -> Option<Self> {
        let token = record.token.filter(|_| record.key == session.key)?;
        let is_current = token == session.token && record.last_grant == LastGrant::Ended;
        (token > session.token || is_current).then(|| Self(session.clone()))
    }

    /// Returns the proof, if `successor` is a later grant of the session's key.
    pub fn by_successor(session: &Parent, successor: &Grant) -> Option<Self> {
        let is_later = successor.key == session.key && successor.token > session.token;
        is_later.then(|| Self(session.clone()))
    }

    /// Makes the proof, for a store that has just written the end of `session`.
    pub fn written(session: Parent) -> Self {
        Self(session)
    }

    /// The session that has ended.
    pub fn session(&self) -> &Parent {
        &self.0
    }
}

/// A key that a read found free, or held under a session that has ended. A claim under a session
/// needs such a vacancy.
///
/// A vacancy names the token that the record had then. The store refuses the claim if the token has grown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vacancy {
    key: LeaseKey,
    token: Option<FencingToken>,
    ended: Option<Ended>,
}

impl Vacancy {
    /// Returns the vacancy, if `record` shows that `lessee` may claim `key`. The read may be stale.
    ///
    /// Pass `None` for the record if the key has none. If the key is held under a session, `ended`
    /// must prove the end of this session. If the key was held by a lease with a ttl, and this
    /// lease has expired, `ended` must prove its end: [`end_session`](Sessions::end_session) ends
    /// any lease that is over.
    ///
    /// A key that is reserved for other lessees has no vacancy: the store must refuse a claim only because
    /// the token has grown.
    pub fn seen(
        key: &LeaseKey,
        record: Option<&LeaseRecord>,
        lessee: &Lessee,
        ended: Option<&Ended>,
    ) -> Option<Self> {
        let vacancy = |token, ended| Self { key: key.clone(), token, ended };
        let Some(record) = record else { return Some(vacancy(None, None)) };
        if record.key != *key {
            return None;
        }
        match &record.holder {
            Some(Holder { parent: Some(parent), .. }) => {
                let ended = ended.filter(|ended| ended.session() == parent)?;
                Some(vacancy(record.token, Some(ended.clone())))
            }
            Some(_) => None,
            None => {
                let reserved = record.reserved.as_ref();
                let is_open = reserved.is_none_or(|it| it.only.as_ref() == Some(lessee));
                (is_open && has_no_lease(record, ended)).then(|| vacancy(record.token, None))
            }
        }
    }

    /// The key.
    pub fn key(&self) -> &LeaseKey {
        &self.key
    }

    /// The token that the record had; `None` if the record was absent, or had no grant before.
    pub fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// The session that held the key and has ended.
    pub fn former(&self) -> Option<&Parent> {
        self.ended.as_ref().map(Ended::session)
    }
}

/// Whether the key was never granted, or its last lease has ended irrevocably.
fn has_no_lease(record: &LeaseRecord, ended: Option<&Ended>) -> bool {
    let Some(token) = record.token else { return true };
    let is_of_last_grant =
        |ended: &Ended| ended.session().key == record.key && ended.session().token == token;
    record.last_grant == LastGrant::Ended || ended.is_some_and(is_of_last_grant)
}

/// A store's answer to the [end of a session](Sessions::end_session).
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "a session has ended, or it has not")]
pub enum SessionState {
    /// The session has ended, now or before.
    Ended(Ended),
    /// The session is not over.
    Held(Holder),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::attributes::Attributes;
    use crate::store::lease_table::Reserved;

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    fn key(name: &str) -> LeaseKey {
        name.parse().unwrap()
    }

    fn session(number: u64) -> Parent {
        Parent::new(key("worker"), token(number))
    }

    fn record(name: &str, number: u64, holder: Option<Holder>) -> LeaseRecord {
        LeaseRecord::new(key(name), holder, Some(token(number)), Attributes::new())
    }

    fn seen(record: Option<&LeaseRecord>, ended: Option<&Ended>) -> Option<Vacancy> {
        Vacancy::seen(&key("shard"), record, &"a".parse().unwrap(), ended)
    }

    #[test]
    fn only_larger_token_and_written_end_prove_an_end() {
        let expired = record("worker", 2, None);
        let ended = expired.clone().with_end(LastGrant::Ended, None);

        assert!(Ended::shown_by(&expired, &session(1)).is_some());
        assert!(Ended::shown_by(&ended, &session(2)).is_some());
        assert_eq!(Ended::shown_by(&expired, &session(2)), None);
        assert_eq!(Ended::shown_by(&ended, &session(3)), None);
        assert_eq!(Ended::shown_by(&record("other", 9, None), &session(2)), None);
    }

    #[test]
    fn child_is_vacant_only_with_proof_of_its_session() {
        let holder = Holder::new("b".parse().unwrap(), None).with_parent(Some(session(2)));
        let child = record("shard", 5, Some(holder));

        let proof = |number| Ended::written(session(number));

        assert_eq!(seen(Some(&child), None), None);
        assert_eq!(seen(Some(&child), Some(&proof(1))), None);
        let vacancy = seen(Some(&child), Some(&proof(2))).unwrap();
        assert_eq!((vacancy.token(), vacancy.former()), (Some(token(5)), Some(&session(2))));
    }

    #[test]
    fn key_without_holder_is_vacant_only_after_a_written_end() {
        let expired = record("shard", 5, None);
        let ended = expired.clone().with_end(LastGrant::Ended, None);
        let proof = Ended::written(Parent::new(key("shard"), token(5)));

        assert!(seen(None, None).is_some());
        assert!(seen(Some(&ended), None).is_some());
        assert_eq!(seen(Some(&expired), None), None);
        assert!(seen(Some(&expired), Some(&proof)).is_some());
    }

    #[test]
    fn reserved_key_is_vacant_only_for_its_lessee() {
        let ended = |only: Option<&str>| {
            let only = only.map(|name| name.parse().unwrap());
            let reserved = Reserved::new(only, std::time::Duration::from_secs(1));
            record("shard", 5, None).with_end(LastGrant::Ended, Some(reserved))
        };

        assert!(seen(Some(&ended(Some("a"))), None).is_some());
        assert_eq!(seen(Some(&ended(Some("b"))), None), None);
        assert_eq!(seen(Some(&ended(None)), None), None);
    }
}
