//! One module per store. Each module reads the parts of a URL that its store needs.
//!
//! Start with [`memory`]. A new store gets a module here, an arm in [`connect`](crate::connect), and a
//! scheme.

#[cfg(feature = "dynamodb")]
pub(crate) mod dynamodb;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
#[cfg(feature = "kubernetes")]
pub(crate) mod kubernetes;
#[cfg(feature = "memory")]
pub(crate) mod memory;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
