//! The servers of a run.
//!
//! This file tracks how overlapping faults change the clocks and memories of servers. [`server`] is one
//! server, and [`topology`] the servers of a run with single faults. [`stores`] opens stores by address,
//! [`plain`] is a connection without a driver, and [`hash_slots`] maps keys to slots. [`postgres`] is a
//! PostgreSQL with its standby and pooler, and [`shared_file`] a file of SQLite.

pub(crate) mod hash_slots;
pub(crate) mod plain;
pub(crate) mod postgres;
pub(crate) mod server;
pub(crate) mod shared_file;
pub(crate) mod stores;
pub(crate) mod topology;

use std::time::Duration;

use crate::failure::Failure;
use crate::monotonic::Monotonic;
use crate::servers::server::Server;

/// The servers of a run with overlapping faults.
///
/// Tokens get smaller only if a server loses its memory while its clock is behind the last token.
/// So a server loses its memory only while its clock has the largest offset of all. Later, no step
/// sets its clock back behind the moment of the loss.
#[derive(Debug)]
pub(crate) struct Servers {
    all: Vec<Known>,
    /// The largest offset of any clock so far, in seconds.
    furthest: i64,
}

#[derive(Debug)]
struct Known {
    server: Server,
    /// The clock's offset in seconds.
    clock: i64,
    /// The time at which the server last started with an empty memory.
    emptied: Option<Monotonic>,
    /// The time at which the server last lost its memory, and the offset of its clock then.
    forgot: Option<(Monotonic, i64)>,
}

impl Servers {
    pub(crate) fn new(servers: Vec<Server>) -> Self {
        let known = |server| Known { server, clock: 0, emptied: None, forgot: None };
        Self { all: servers.into_iter().map(known).collect(), furthest: 0 }
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&mut self, number: usize) -> Result<&mut Server, Failure> {
        Ok(&mut self.known(number)?.server)
    }

    pub(crate) fn clock(&mut self, number: usize) -> Result<i64, Failure> {
        Ok(self.known(number)?.clock)
    }

    pub(crate) fn furthest_clock(&self) -> i64 {
        self.furthest
    }

    pub(crate) fn set_clock(&mut self, number: usize, seconds: i64) -> Result<(), Failure> {
        let known = self.known(number)?;
        known.server.set_clock(seconds)?;
        known.clock = seconds;
        self.furthest = self.furthest.max(seconds);
        Ok(())
    }

    /// Sets a clock back by `seconds`, unless the server would grant forgotten keys under smaller
    /// tokens. Returns the offset of the clock.
    pub(crate) fn step_back(&mut self, number: usize, seconds: i64) -> Result<i64, Failure> {
        let known = self.known(number)?;
        let clock = known.clock - seconds;
        if let Some((at, ahead)) = known.forgot {
            // The difference is negative if the new offset is still larger than the offset at the
            // loss.
            let behind = u64::try_from(ahead - clock).unwrap_or(0);
            if Monotonic::now().since(at) <= Duration::from_secs(behind) {
                return Ok(known.clock);
            }
        }
        self.set_clock(number, clock)?;
        Ok(clock)
    }

    pub(crate) fn flush(&mut self, number: usize) -> Result<(), Failure> {
        let known = self.known(number)?;
        known.server.command("FLUSHALL");
        known.forgot = Some((Monotonic::now(), known.clock));
        Ok(())
    }

    pub(crate) fn restart_empty(&mut self, number: usize) -> Result<(), Failure> {
        self.get(number)?.kill();
        self.set_clock(number, self.furthest)?;
        let known = self.known(number)?;
        known.server.restart_empty();
        known.emptied = Some(Monotonic::now());
        known.forgot = Some((Monotonic::now(), known.clock));
        Ok(())
    }

    pub(crate) fn emptied_after(&self, moment: Monotonic) -> usize {
        self.all.iter().filter(|known| known.emptied > Some(moment)).count()
    }

    fn known(&mut self, number: usize) -> Result<&mut Known, Failure> {
        Ok(self.all.get_mut(number).ok_or("there is no such server")?)
    }
}
