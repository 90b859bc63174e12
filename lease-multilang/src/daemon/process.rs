//! A child as the operating system has it.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::command::ChildCommand;

/// A process that is killed when this is dropped, with all that it has started.
pub(super) struct Process {
    // Before the child, so that its group is killed first: while the child is not waited for, its
    // number is nobody else's.
    group: Group,
    child: Child,
}

pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// The child leads a group of its own: what it starts is in there, unless it leaves, and a Ctrl-C
/// on the terminal is for the daemon alone.
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
            return Err(io::Error::other("its pipes are missing"));
        };
        Ok((Self { group, child }, Pipes { stdin, stdout, stderr }))
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Completes once it has ended, and kills what it has left behind: that may keep its pipes open.
    ///
    /// # Cancel safety
    ///
    /// May be dropped, and called again: the answer is the same.
    pub(super) async fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.wait().await.ok();
        self.group.kill();
        // From here on, its number may be another's.
        self.group.0 = None;
        status
    }

    /// Waits until it has ended by itself, for `limit` at most, and kills what is left.
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
        // It may have ended, and been waited for.
        drop(self.child.start_kill());
        self.ended().await;
    }
}

impl Group {
    fn kill(&self) {
        if let Some(group) = self.0 {
            // There may be nobody left in it.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
