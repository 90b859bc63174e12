//! Connections to one logical server: standalone, behind Sentinel, or a Cluster.
//!
//! Start with [`node`], which sends requests over one shared connection. [`connect`] turns URLs and
//! [`settings`] into a [`connector`], which opens connections. [`diagnose`] checks each new connection.
//! [`watches`] subscribes to the channels of keys. [`sentinel`] follows a master behind Sentinel. [`cluster`]
//! follows the slots of a Cluster. Requests that are made at the same time share a [`batch`].

pub(crate) mod address;
pub(crate) mod batch;
pub(crate) mod cluster;
pub(crate) mod connect;
pub(crate) mod connector;
pub(crate) mod diagnose;
#[cfg(feature = "simulation")]
pub(crate) mod dial;
pub(crate) mod node;
pub(crate) mod request;
pub(crate) mod sentinel;
pub(crate) mod server_run;
pub(crate) mod server_time;
pub(crate) mod settings;
pub(crate) mod watches;
