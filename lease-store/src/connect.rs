//! Opens a store by its URL.

use std::sync::Arc;

use lease_core::StoreError;
use lease_core::store::LeaseTable;

use crate::any_store::AnyStore;
#[cfg(any(
    feature = "memory",
    feature = "sqlite",
    feature = "redis",
    feature = "dynamodb",
    feature = "postgres",
    feature = "etcd",
    feature = "kubernetes"
))]
use crate::scheme::Kind;
use crate::url::StoreUrl;

/// Opens the store at `url`. The [crate's page](crate#urls) lists the URLs.
///
/// # Errors
///
/// If the URL is wrong, its store's feature is off, or the store cannot be used. The message names the
/// remedy, and contains no password.
///
/// # Cancel safety
///
/// Safe: dropping the future closes the connection.
///
/// # Examples
///
/// ```
/// use lease_core::Locker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let url = std::env::var("LEASE_STORE").unwrap_or_else(|_| "memory:".to_owned());
/// let locker = Locker::new(lease_store::connect(&url).await?);
/// let lease = locker.wait_until_obtained(&"payroll".parse()?).await?;
/// lease.release().await?;
/// # Ok(())
/// # }
/// ```
pub async fn connect(url: &str) -> Result<AnyStore, StoreError> {
    let url = StoreUrl::parse(url)?;
    match url.scheme.kind {
        #[cfg(feature = "memory")]
        Kind::Memory => crate::stores::memory::open(url),
        #[cfg(feature = "sqlite")]
        Kind::Sqlite => crate::stores::sqlite::open(url).await,
        #[cfg(feature = "redis")]
        Kind::Redis => crate::stores::redis::server(url).await,
        #[cfg(feature = "redis")]
        Kind::RedisSentinel => crate::stores::redis::sentinel(url).await,
        #[cfg(feature = "redis")]
        Kind::RedisCluster => crate::stores::redis::cluster(url).await,
        #[cfg(feature = "redis")]
        Kind::RedisQuorum => crate::stores::redis::quorum(url).await,
        #[cfg(feature = "dynamodb")]
        Kind::DynamoDb => crate::stores::dynamodb::open(url).await,
        #[cfg(feature = "postgres")]
        Kind::Postgres => crate::stores::postgres::open(url).await,
        #[cfg(feature = "etcd")]
        Kind::Etcd => crate::stores::etcd::open(url).await,
        #[cfg(feature = "kubernetes")]
        Kind::Kubernetes => crate::stores::kubernetes::open(url).await,
        #[cfg(not(all(
            feature = "memory",
            feature = "sqlite",
            feature = "redis",
            feature = "dynamodb",
            feature = "postgres",
            feature = "etcd",
            feature = "kubernetes"
        )))]
        // `parse` has refused the schemes of features that are off.
        _ => Err(url.refuse("needs a feature of lease-store that is off")),
    }
}

/// Opens the store at `url`, like [`connect`], to keep records with attributes.
///
/// # Errors
///
/// As for [`connect`]. A quorum of Redis servers also causes an error, because it keeps no records.
///
/// # Cancel safety
///
/// As for [`connect`].
///
/// # Examples
///
/// ```
/// use lease_core::Attributes;
/// use lease_core::store::LeaseTable;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let table = lease_store::connect_table("memory:").await?;
/// table.create(&"shard-1".parse()?, &Attributes::new()).await?;
/// # Ok(())
/// # }
/// ```
pub async fn connect_table(url: &str) -> Result<Arc<dyn LeaseTable>, StoreError> {
    let store = connect(url).await?;
    let none = || StoreUrl::parse(url).map_or_else(|error| error, |url| url.refuse(NO_RECORDS));
    store.table().ok_or_else(none)
}

const NO_RECORDS: &str =
    "is a quorum, which keeps no records: name one server with redis://HOST:6379";
