//! Methods of [`Case`] for promises of a lease table.

use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use crate::conformance::Fixture;
use crate::conformance::kit::case::Case;
use crate::error::StoreError;
use crate::key::Lessee;
use crate::store::attributes::Attributes;
use crate::store::grant::{Grant, Written};
use crate::store::lease_table::{LeaseRecord, LeaseTable};

#[expect(clippy::expect_used, reason = "a panic reports a broken promise")]
impl<F: Fixture<Store: LeaseTable>> Case<F> {
    #[track_caller]
    pub(crate) fn attributes_are(
        &self,
        expected: &Attributes,
        why: &str,
    ) -> impl Future<Output = ()> {
        let caller = Location::caller();
        async move {
            let found = self.attributes().await;
            assert_eq!(&found, expected, "attributes: {why} ({caller})");
        }
    }

    pub(crate) async fn has_no_record(&self, after: &str) {
        let record = self.read().await;
        assert!(record.is_none(), "the store should return no record after {after}: {record:?}");
    }

    pub(crate) async fn created(&self, attributes: &Attributes) -> bool {
        self.store
            .create(&self.key(), attributes)
            .await
            .expect("the store should answer a creation")
    }

    pub(crate) async fn read(&self) -> Option<LeaseRecord> {
        self.store.read(&self.key()).await.expect("the store should answer a read")
    }

    pub(crate) async fn attributes(&self) -> Attributes {
        self.read()
            .await
            .map(|record| record.attributes)
            .expect("the store should return a record that was created")
    }

    pub(crate) async fn written(
        &self,
        write: impl Future<Output = Result<Written, StoreError>>,
    ) -> Written {
        write.await.expect("the store should answer a write")
    }

    /// Transfers to the lessee `b`.
    pub(crate) async fn transferred(&self, grant: &Grant, reserved: Duration) -> Written {
        let to = Lessee::new("b").expect("a lessee");
        self.written(self.store.transfer(grant, &to, reserved)).await
    }
}
