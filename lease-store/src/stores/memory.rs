//! `memory:` is one store per process. `memory:NAME` is a separate store for each name.

use std::collections::HashMap;

use lease_core::StoreError;
use lease_memory::MemoryStore;
use parking_lot::Mutex;

use crate::any_store::AnyStore;
use crate::url::StoreUrl;

/// Calls with the same name share one store.
pub(crate) fn open(url: StoreUrl) -> Result<AnyStore, StoreError> {
    static STORES: Mutex<Option<HashMap<String, MemoryStore>>> = Mutex::new(None);

    if url.has_authority {
        return Err(url
            .refuse("names a place, but memory is in this process: write memory: or memory:NAME"));
    }
    url.refuse_others(&[])?;
    let mut stores = STORES.lock();
    let store = stores.get_or_insert_default().entry(url.path).or_default();
    Ok(AnyStore::of_table(store.clone()))
}
