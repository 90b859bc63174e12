//! What a fleet of workers does while it changes, fails and is kept from its table and its stream:
//! real workers in virtual time.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

mod acceptance;
mod batches;
mod carried;
mod checkpoints;
mod fleet;
mod giving;
mod gone;
mod hash_keys;
mod leaving;
mod limits;
mod listing;
mod log;
mod outages;
mod owed;
mod partial;
mod processors;
mod quiet;
mod resharding;
mod setting;
mod starts;
mod world;
