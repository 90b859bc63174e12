//! Counts the commands that a server executes. The counts show that claims share batches.

use std::net::SocketAddr;
use std::time::Duration;

use crate::servers::plain::PlainConnection;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Commands {
    pub(crate) set: u64,
    pub(crate) exec: u64,
    pub(crate) evalsha: u64,
}

impl Commands {
    /// If the server does not reply, all counts are zero.
    pub(crate) fn of(server: SocketAddr) -> Self {
        Self::read(&PlainConnection::to(server, TIMEOUT).first("INFO commandstats"))
    }

    fn read(info: &str) -> Self {
        let calls = |command: &str| {
            let start = format!("cmdstat_{command}:calls=");
            let calls = info.lines().find_map(|line| line.strip_prefix(&start));
            let calls = calls.and_then(|calls| calls.split(',').next()?.parse().ok());
            calls.unwrap_or_default()
        };
        Self { set: calls("set"), exec: calls("exec"), evalsha: calls("evalsha") }
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            set: self.set.saturating_sub(earlier.set),
            exec: self.exec.saturating_sub(earlier.exec),
            evalsha: self.evalsha.saturating_sub(earlier.evalsha),
        }
    }
}

const TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_from_the_reply() {
        let info =
            "# Commandstats\r\ncmdstat_set:calls=12,usec=3\r\ncmdstat_exec:calls=4,usec=1\r\n";

        assert_eq!(Commands::read(info), Commands { set: 12, exec: 4, evalsha: 0 });
    }
}
