//! The view of leases: held keys with their holders.

use std::sync::Arc;

use futures_util::TryStreamExt;
use lease_core::store::{HeldKey, LockStore};
use lease_core::{GrantId, StoreError};
use lease_store::AnyStore;
use serde_json::json;

use crate::serve::feed::View;
use crate::serve::rows::Rows;
use crate::started::start_of;

#[derive(Debug)]
pub(crate) struct Leases {
    store: AnyStore,
    prefix: String,
    former: Arc<Rows>,
}

impl Leases {
    pub(crate) fn new(store: AnyStore, prefix: String) -> Self {
        Self { store, prefix, former: Arc::default() }
    }
}

impl View for Leases {
    async fn read(&mut self) -> Result<Arc<Rows>, StoreError> {
        let mut rows = Rows::now();
        let mut held = self.store.scan(&self.prefix);
        while let Some(HeldKey { key, holder, .. }) = held.try_next().await? {
            // A text, since a number of JavaScript has 53 bits.
            let token = holder.token.map(|token| token.to_string());
            let grant = holder.grant.as_ref().map(GrantId::as_str);
            let lessee = holder.lessee.as_str();
            let fields = json!([lessee, grant, token, start_of(&holder.lessee)]);
            rows.add(key.as_str(), holder.expires_in, fields);
        }
        drop(held);
        let rows = Arc::new(rows.steadied_by(&self.former));
        self.former = Arc::clone(&rows);
        Ok(rows)
    }
}
