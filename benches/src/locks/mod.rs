//! The baselines, this library and similar crates, each as a [`Lock`](crate::lock::Lock).

pub(crate) mod bare_counter;
pub(crate) mod bare_dynamodb;
pub(crate) mod bare_redis;
pub(crate) mod counting;
pub(crate) mod dynamodb_lease;
pub(crate) mod dynamodb_lock;
pub(crate) mod ours;
pub(crate) mod redlock;
pub(crate) mod rslock;
pub(crate) mod same_commands;
