//! The daemon's side of the protocol: one child process for each shard whose lease is held.
//!
//! [`Children`] makes the processors of a [`Worker`](crate::Worker), each of which has the work done
//! by a child. A child that breaks the protocol, dies or is too slow is killed, with all that it
//! started, and another one begins at the last checkpoint, after a while: nothing else is affected.
//!
//! ```no_run
//! use lease_kinesis::multilang::daemon::Children;
//! # use lease_kinesis::{SimStream, Worker};
//! # async fn run(table: lease_memory::MemoryStore, source: SimStream)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! let children = Children::of("python3 processor.py".parse()?);
//! let worker = Worker::builder("orders", table, source, children.clone()).build()?;
//! worker.run().await?;
//! children.all_ended().await;
//! # Ok(())
//! # }
//! ```

mod children;
mod command;
mod conversation;
mod ends;
mod failure;
mod noise;
mod pipe;
mod process;
mod processor;
mod progress;
mod stderr;

pub use children::Children;
pub use command::{ChildCommand, NoProgram};
pub use failure::ChildFailure;
