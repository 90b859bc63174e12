//! Follows a master behind Sentinel.
//!
//! Start with [`master`], which finds the master and connects to it. [`failover`] closes a connection when a
//! Sentinel announces another master.

pub(crate) mod failover;
pub(crate) mod master;
