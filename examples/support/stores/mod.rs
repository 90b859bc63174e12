//! Opens a store by its address: `memory`, Redis or DynamoDB.
//!
//! An application makes the store where it makes its `Locker`. All other code is the same for every
//! store.

use std::sync::{Arc, OnceLock};

use lease_core::store::{LeaseTable, LockStore};
use lease_memory::MemoryStore;

use crate::Failure;

#[cfg(feature = "dynamodb")]
mod dynamodb;
#[cfg(feature = "redis")]
mod redis;

/// Opens the store at `address`: `memory`, `dynamodb://HOST:PORT/TABLE`,
/// `redis://HOST:PORT/DATABASE`, or `redis://HOST:PORT,HOST:PORT,HOST:PORT` for a quorum.
/// [`lease_store::connect`] opens every other URL, such as `sqlite:///PATH`. Each worker opens its
/// own handle, as each process would.
///
/// # Errors
///
/// Fails if `address` has another form, the store's feature is missing, or the store cannot be
/// used.
pub async fn open(address: &str) -> Result<Arc<dyn LockStore>, Failure> {
    match address.split_once("://") {
        None if address == "memory" => Ok(Arc::new(memory())),
        #[cfg(feature = "dynamodb")]
        Some(("dynamodb", table)) => Ok(Arc::new(dynamodb::open(table).await?)),
        #[cfg(feature = "redis")]
        Some(("redis", servers)) => redis::open(servers).await,
        _ => {
            refuse_missing_feature(address)?;
            Ok(Arc::new(lease_store::connect(address).await?))
        }
    }
}

/// Opens the store at `address`, as [`open`] does, for records.
///
/// # Errors
///
/// Fails if [`open`] would fail, or if `address` is a quorum, which keeps leases only.
pub async fn open_table(address: &str) -> Result<Arc<dyn LeaseTable>, Failure> {
    match address.split_once("://") {
        None if address == "memory" => Ok(Arc::new(memory())),
        #[cfg(feature = "dynamodb")]
        Some(("dynamodb", table)) => Ok(Arc::new(dynamodb::open(table).await?)),
        #[cfg(feature = "redis")]
        Some(("redis", server)) if !server.contains(',') => {
            Ok(Arc::new(redis::connect(server).await?))
        }
        #[cfg(feature = "redis")]
        Some(("redis", _servers)) => {
            Err(format!("store {address:?} is a quorum, which keeps no records: name one server")
                .into())
        }
        _ => {
            refuse_missing_feature(address)?;
            Ok(lease_store::connect_table(address).await?)
        }
    }
}

/// Fails if the package was built without the store's feature. The error names the feature.
fn refuse_missing_feature(address: &str) -> Result<(), Failure> {
    let features = [
        ("dynamodb", cfg!(feature = "dynamodb")),
        ("postgres", cfg!(feature = "postgres")),
        ("redis", cfg!(feature = "redis")),
        ("sqlite", cfg!(feature = "sqlite")),
    ];
    for (scheme, is_built) in features {
        if !is_built && address.starts_with(scheme) {
            return Err(format!("store {address:?} needs `--features {scheme}`").into());
        }
    }
    Ok(())
}

/// All calls share one store, as they would share a server.
fn memory() -> MemoryStore {
    static MEMORY: OnceLock<MemoryStore> = OnceLock::new();
    // Tokens that count from one are easier to read. Such tokens are safe here, since no lease outlives
    // the process.
    MEMORY.get_or_init(MemoryStore::counting_from_one).clone()
}
