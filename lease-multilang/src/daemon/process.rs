//! The process of a child, and its process group.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::command::ChildCommand;

/// A process. It is killed when this is dropped, with all processes that it started.
pub(super) struct Process {
    // Declared first, so that it is dropped first: until the child is waited for, no other process gets
    // its id.
    group: Group,
    child: Child,
}

pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// The process group that the child leads. Processes that it starts are in the group, unless they leave
/// it. A Ctrl-C on the terminal signals only the daemon.
struct Group(Option<Pid>);

impl Process {
    pub(super) fn start(command: &ChildCommand) -> io::Result<(Self, Pipes)> {
        let mut child = Command::new(command.program())
            .args(command.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(io::Error::other("the child's pipes are missing"));
        };
        Ok((Self { group, child }, Pipes { stdin, stdout, stderr }))
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until the process exits, and kills the rest of its group, which may hold its pipes open.
    ///
    /// # Cancel safety
    ///
    /// Safe: the next call returns the same status.
    pub(super) async fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.wait().await.ok();
        self.group.kill();
        // From here on, another process may have its id.
        self.group.0 = None;
        status
    }

    /// Waits until the process exits, for `limit` at most, and kills what is left.
    pub(super) async fn end(&mut self, limit: Duration) -> Option<ExitStatus> {
        match timeout(limit, self.ended()).await {
            Ok(status) => status,
            Err(_elapsed) => {
                self.kill().await;
                None
            }
        }
    }

    pub(super) async fn kill(&mut self) {
        self.group.kill();
        // An error means that it has already been waited for.
        drop(self.child.start_kill());
        self.ended().await;
    }
}

impl Group {
    fn kill(&self) {
        if let Some(group) = self.0 {
            // An error means that the group is empty.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
