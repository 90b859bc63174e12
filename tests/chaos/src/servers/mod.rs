//! All servers, with what was done to their clocks and memories.

use std::time::Duration;

use crate::Failure;
use crate::server::Server;
use crate::stamp::Stamp;

/// The servers of a run.
///
/// Tokens grow through everything but this: memory is lost, and the clock is behind the last
/// token. So a server starts empty, or is flushed, only at the furthest time that any told; and
/// its clock does not step back behind the moment of that.
#[derive(Debug)]
pub(crate) struct Servers {
    all: Vec<Known>,
    /// The furthest that any clock was ahead, in seconds.
    furthest: i64,
}

#[derive(Debug)]
struct Known {
    server: Server,
    /// How far ahead its clock is, in seconds.
    clock: i64,
    /// When it was last started with an empty memory.
    emptied: Option<Stamp>,
    /// When it lost its memory last, and how far ahead its clock was.
    forgot: Option<(Stamp, i64)>,
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

    /// How far ahead a clock is, in seconds.
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

    /// Sets a clock back by `seconds`, unless keys that were forgotten would be granted under
    /// smaller tokens than before; says where it is.
    pub(crate) fn step_back(&mut self, number: usize, seconds: i64) -> Result<i64, Failure> {
        let known = self.known(number)?;
        let clock = known.clock - seconds;
        if let Some((at, ahead)) = known.forgot {
            // Below zero, where the clock is ahead of where it was then.
            let behind = u64::try_from(ahead - clock).unwrap_or(0);
            if Stamp::now().since(at) <= Duration::from_secs(behind) {
                return Ok(known.clock);
            }
        }
        self.set_clock(number, clock)?;
        Ok(clock)
    }

    /// Makes a server forget everything. Its clock must be the furthest.
    pub(crate) fn flush(&mut self, number: usize) -> Result<(), Failure> {
        let known = self.known(number)?;
        known.server.command("FLUSHALL");
        known.forgot = Some((Stamp::now(), known.clock));
        Ok(())
    }

    pub(crate) fn restart_empty(&mut self, number: usize) -> Result<(), Failure> {
        self.get(number)?.kill();
        self.set_clock(number, self.furthest)?;
        let known = self.known(number)?;
        known.server.restart_empty();
        known.emptied = Some(Stamp::now());
        known.forgot = Some((Stamp::now(), known.clock));
        Ok(())
    }

    /// How many were restarted empty after `moment`.
    pub(crate) fn emptied_after(&self, moment: Stamp) -> usize {
        self.all.iter().filter(|known| known.emptied > Some(moment)).count()
    }

    fn known(&mut self, number: usize) -> Result<&mut Known, Failure> {
        Ok(self.all.get_mut(number).ok_or("there is no such server")?)
    }
}
