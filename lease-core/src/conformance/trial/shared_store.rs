//! The simplest model: one store that all contenders share over a bad network.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

use super::ledger::Ledger;
use super::plan::{ClientContext, Model, ModelContext};
use super::simulation::Simulation;
use crate::conformance::kit::faulty::Faulty;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::{LeaseKey, Lessee};
use crate::store::attributes::{Attributes, Change};
use crate::store::grant::{
    Beat, Claim, Grant, GrantId, Heartbeat, HeldKey, Holder, Obtained, Written,
};
use crate::store::in_turn::{Enqueued, InTurn, Notice, Notices};
use crate::store::lease_table::{LeaseRecord, LeaseTable};
use crate::store::lock_store::{Freed, LockStore};
use crate::store::session::{Parent, SessionState, Sessions, Vacancy};

/// A model of one store within this process.
#[derive(Debug)]
pub struct SharedStore<S> {
    world: ModelContext,
    store: Arc<RecordingStore<S>>,
}

/// A store that records its grants and writes in the ledger.
#[derive(Debug)]
pub struct RecordingStore<S> {
    store: S,
    ledger: Ledger,
}

impl<S> SharedStore<S> {
    /// Makes a model of `store`. The store must be new, and only this trial may use it.
    pub fn new(world: ModelContext, store: S) -> Self {
        let store = Arc::new(RecordingStore { store, ledger: world.ledger.clone() });
        Self { world, store }
    }
}

impl<S: LockStore> Model for SharedStore<S> {
    type Store = Faulty<Arc<RecordingStore<S>>>;

    fn connect(&mut self, client: ClientContext) -> BoxFuture<'static, Self::Store> {
        let faulty = Faulty::new(Arc::clone(&self.store))
            .carried_by(self.world.network.clone())
            .with_latency(Simulation::LATENCY);
        faulty.choose(move |call| client.faults.next_fault(call));
        async move { faulty }.boxed()
    }
}

impl<S> RecordingStore<S> {
    fn note(&self, obtained: Obtained) -> Obtained {
        if let Obtained::Granted(grant, _) = &obtained {
            self.ledger.granted(grant);
        }
        obtained
    }

    fn note_enqueued(&self, enqueued: Enqueued) -> Enqueued {
        if let Enqueued::Granted(grant, _) = &enqueued {
            self.ledger.granted(grant);
        }
        enqueued
    }

    fn note_write(&self, grant: &Grant, written: Written) -> Written {
        if written == Written::Applied {
            self.ledger.written(grant);
        }
        written
    }
}

impl<S: LockStore> RecordingStore<S> {
    fn queues(&self) -> Result<&dyn InTurn, StoreError> {
        let none = || StoreError::new(StoreErrorKind::Unsupported, "this store keeps no queues");
        self.store.in_turn().ok_or_else(none)
    }

    fn kept_sessions(&self) -> Result<&dyn Sessions, StoreError> {
        let none = || StoreError::new(StoreErrorKind::Unsupported, "this store keeps no sessions");
        self.store.sessions().ok_or_else(none)
    }
}

#[async_trait]
impl<S: LockStore> LockStore for RecordingStore<S> {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        Ok(self.note(self.store.obtain(claim).await?))
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        self.store.heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        self.store.release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        Ok(self.note(self.store.adopt(grant, claim).await?))
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        self.store.holder(key).await
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        self.store.evict(key, grant).await
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        self.store.scan(prefix)
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        self.store.watch(key).await
    }

    fn in_turn(&self) -> Option<&dyn InTurn> {
        self.store.in_turn().map(|_queues| self as &dyn InTurn)
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        self.store.sessions().map(|_sessions| self as &dyn Sessions)
    }

    fn grain(&self) -> Duration {
        self.store.grain()
    }
}

/// Records the grant of a queued claim when its notice or answer arrives, because no process uses
/// the grant before.
#[async_trait]
impl<S: LockStore> InTurn for RecordingStore<S> {
    async fn listen(&self, claim: &Claim) -> Result<Notices, StoreError> {
        let ledger = self.ledger.clone();
        let notices = self.queues()?.listen(claim).await?;
        Ok(notices.inspect(move |notice| {
            if let Notice::Granted(grant, _) = notice {
                ledger.granted(grant);
            }
        }))
    }

    async fn enqueue(&self, claim: &Claim) -> Result<Enqueued, StoreError> {
        Ok(self.note_enqueued(self.queues()?.enqueue(claim).await?))
    }

    async fn renew(&self, claim: &Claim) -> Result<Enqueued, StoreError> {
        Ok(self.note_enqueued(self.queues()?.renew(claim).await?))
    }

    async fn leave(&self, claim: &Claim) -> Result<(), StoreError> {
        self.queues()?.leave(claim).await
    }
}

#[async_trait]
impl<S: LockStore> Sessions for RecordingStore<S> {
    async fn obtain_under(&self, claim: &Claim, vacancy: &Vacancy) -> Result<Obtained, StoreError> {
        Ok(self.note(self.kept_sessions()?.obtain_under(claim, vacancy).await?))
    }

    async fn end_session(&self, session: &Parent) -> Result<SessionState, StoreError> {
        self.kept_sessions()?.end_session(session).await
    }

    async fn read_all(&self, keys: &[LeaseKey]) -> Vec<Result<Option<LeaseRecord>, StoreError>> {
        match self.kept_sessions() {
            Ok(sessions) => sessions.read_all(keys).await,
            Err(_none) => Vec::new(),
        }
    }

    async fn count(&self, key: &LeaseKey, name: &str) -> Result<i64, StoreError> {
        self.kept_sessions()?.count(key, name).await
    }
}

#[async_trait]
impl<S: LeaseTable> LeaseTable for RecordingStore<S> {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        self.store.read(key).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        self.store.list(prefix)
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        self.store.create(key, attributes).await
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        Ok(self.note_write(grant, self.store.update(grant, change).await?))
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        Ok(self.note_write(grant, self.store.transfer(grant, to, reserved).await?))
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        Ok(self.note_write(grant, self.store.delete(grant).await?))
    }
}
