//! The daemon's side of the protocol: one child process for each shard whose lease the worker holds.
//!
//! Start with [`Children`], which creates the processors of a [`Worker`](lease_kinesis::Worker).
//!
//! The daemon kills a child that breaks the protocol, exits or is too slow, with all of its processes. After
//! a pause, a new child starts at the last checkpoint. Other shards are not affected.
//!
//! ```no_run
//! use lease_multilang::daemon::Children;
//! # use lease_kinesis::{SimStream, Worker};
//! # async fn run(table: lease_memory::MemoryStore, source: SimStream)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! let children = Children::new("python3 processor.py".parse()?);
//! let worker = Worker::builder("orders", table, source, children.clone()).build()?;
//! worker.run().await?;
//! children.all_ended().await;
//! # Ok(())
//! # }
//! ```

mod checkpoints;
mod children;
mod command;
mod conversation;
mod end_message;
mod failure;
mod message_filter;
mod pipe;
mod process;
mod processor;
mod shared;
mod stderr;

pub use children::Children;
pub use command::{ChildCommand, NoProgram};
pub use failure::ChildFailure;
