//! Observes the scripts and transactions that servers execute, and records the grants.
//!
//! - This file: `Recorder`, the trait of observers, and descriptions of executed scripts and transactions.
//! - `grant_recorder.rs`: the grants of a quorum.
//! - `lock_recorder.rs`: the grants of one server.

pub(super) mod grant_recorder;
pub(super) mod lock_recorder;

use std::fmt;

use super::server::node::Holding;
use super::server::resp::{Bytes, Reply};

pub(crate) trait Recorder: fmt::Debug + Send + Sync {
    fn record(&self, ran: &Ran<'_>);

    fn record_transaction(&self, executed: &Transaction<'_>);

    /// The server has lost its data.
    fn forget(&self, place: usize);

    /// Removes records of data that a replica of the server may lack, because the replica was
    /// promoted.
    fn promote(&self, place: usize);
}

#[derive(Debug)]
pub(crate) struct Ran<'a> {
    pub(crate) place: usize,
    pub(crate) at: u64,
    pub(crate) script: &'static str,
    pub(crate) keys: &'a [Bytes],
    pub(crate) arguments: &'a [Bytes],
    pub(crate) reply: &'a Reply,
    pub(crate) before: Vec<Option<Holding>>,
    pub(crate) after: Vec<Option<Holding>>,
    pub(crate) published: &'a [(Bytes, Bytes)],
}

#[derive(Debug)]
pub(crate) struct Transaction<'a> {
    pub(crate) commands: &'a [Vec<Bytes>],
    pub(crate) replies: &'a [Reply],
    pub(crate) at: &'a [u64],
}

impl Ran<'_> {
    pub(crate) fn argument(&self, place: usize) -> &str {
        std::str::from_utf8(&self.arguments[place]).unwrap()
    }

    /// Whether the script wrote. A repeated request gets the reply of the first request, but writes
    /// nothing.
    pub(crate) fn is_applied(&self) -> bool {
        let ends = self.script != "update";
        let ended = self.before[0].is_some() && self.after[0].is_none();
        self.reply.as_text() == Some("applied") && (ended || !ends)
    }
}

pub(crate) fn key_of(lease: &[u8]) -> String {
    let name = std::str::from_utf8(lease).unwrap();
    name.trim_start_matches("lease:{").trim_end_matches('}').to_owned()
}
