//! The process of a child and its process group.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::command::ChildCommand;

/// Dropping a `Process` kills the child and all processes that the child started.
pub(super) struct Process {
    // The group is dropped before `child`. Dropping `child` lets tokio reap the process, and the system may
    // reuse the id.
    group: Group,
    child: Child,
}

pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// Processes that the child starts join its group, unless they leave the group. Ctrl-C on the terminal
/// signals only the daemon's group.
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

    /// Kills the rest of the group, which may hold the pipes open. Cancel safe.
    pub(super) async fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.wait().await.ok();
        self.group.kill();
        // From now on, the system may give the id to another process.
        self.group.0 = None;
        status
    }

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
        // An error means that the process has already been reaped.
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
