//! Sessions behind a bad network.

use async_trait::async_trait;

use crate::conformance::kit::faulty::fault::unanswered;
use crate::conformance::kit::faulty::{Call, Faulty};
use crate::error::{StoreError, StoreErrorKind};
use crate::key::LeaseKey;
use crate::store::grant::{Claim, Obtained};
use crate::store::lease_table::LeaseRecord;
use crate::store::lock_store::LockStore;
use crate::store::session::{Parent, SessionState, Sessions, Vacancy};

#[async_trait]
impl<S: LockStore> Sessions for Faulty<S> {
    async fn obtain_under(&self, claim: &Claim, vacancy: &Vacancy) -> Result<Obtained, StoreError> {
        let asked = (claim.clone(), vacancy.clone());
        self.call(Call::Obtain, move |store| {
            let (claim, vacancy) = asked.clone();
            async move { sessions(&*store)?.obtain_under(&claim, &vacancy).await }
        })
        .await
    }

    async fn end_session(&self, session: &Parent) -> Result<SessionState, StoreError> {
        let session = session.clone();
        self.call(Call::Write, move |store| {
            let session = session.clone();
            async move { sessions(&*store)?.end_session(&session).await }
        })
        .await
    }

    /// If the reply is lost, the reads of all keys fail.
    async fn read_all(&self, keys: &[LeaseKey]) -> Vec<Result<Option<LeaseRecord>, StoreError>> {
        let asked = keys.to_vec();
        let read = self.call(Call::Read, move |store| {
            let keys = asked.clone();
            async move { Ok(sessions(&*store)?.read_all(&keys).await) }
        });
        let failed = |_error| keys.iter().map(|_key| Err(unanswered())).collect();
        read.await.unwrap_or_else(failed)
    }

    async fn count(&self, key: &LeaseKey, name: &str) -> Result<i64, StoreError> {
        let asked = (key.clone(), name.to_owned());
        self.call(Call::Write, move |store| {
            let (key, name) = asked.clone();
            async move { sessions(&*store)?.count(&key, &name).await }
        })
        .await
    }
}

fn sessions<S: LockStore>(store: &S) -> Result<&dyn Sessions, StoreError> {
    let none = || StoreError::new(StoreErrorKind::Unsupported, "this store keeps no sessions");
    store.sessions().ok_or_else(none)
}
