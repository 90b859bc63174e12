//! A request to a server: one round trip.

use std::time::Duration;

use redis::{Arg, Cmd, Pipeline};

use crate::scripts::Call;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Request<'a> {
    Script(&'a Call),
    Command(&'a Cmd),
    /// A script, then a command on the same connection. The answer is an array of both answers.
    ScriptThen(&'a Call, &'a Cmd),
    /// Several commands in one write, to a server whose run has lasted for this time. Not supported in a
    /// Cluster. The answer is an array of all answers, and may contain errors.
    Pipeline(&'a Pipeline, Duration),
}

/// Whether `ASKING` precedes the request, because the node is importing the slot:
/// <https://redis.io/docs/latest/commands/asking/>
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asking {
    Yes,
    No,
}

impl<'a> Request<'a> {
    pub(crate) fn key(self) -> &'a [u8] {
        let (command, index) = match self {
            Self::Script(call) | Self::ScriptThen(call, _) => (call.by_hash(), 3),
            Self::Command(command) => (command, 1),
            Self::Pipeline(..) => return &[],
        };
        match command.args_iter().nth(index) {
            Some(Arg::Simple(key)) => key,
            _ => &[],
        }
    }

    pub(crate) fn script(self) -> Option<&'a Call> {
        match self {
            Self::Script(call) | Self::ScriptThen(call, _) => Some(call),
            Self::Command(_) | Self::Pipeline(..) => None,
        }
    }

    pub(crate) fn min_run(self) -> Duration {
        match self {
            Self::Pipeline(_, min_run) => min_run,
            _ => self.script().map_or(Duration::ZERO, Call::min_run),
        }
    }

    pub(crate) fn then(self) -> Option<&'a Cmd> {
        match self {
            Self::ScriptThen(_, command) => Some(command),
            Self::Script(_) | Self::Command(_) | Self::Pipeline(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripts;

    #[test]
    fn first_key_of_a_request_determines_its_slot() {
        let call = scripts::HEARTBEAT.on(["lease:{a}", "lease:{b}"]).number(7);
        let command = redis::cmd("HGETALL").arg("lease:{c}").to_owned();

        assert_eq!(Request::Script(&call).key(), b"lease:{a}");
        assert_eq!(Request::ScriptThen(&call, &command).key(), b"lease:{a}");
        assert_eq!(Request::Command(&command).key(), b"lease:{c}");
    }
}
