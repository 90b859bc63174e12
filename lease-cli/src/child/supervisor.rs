//! Runs a command under a lease: forwards signals, and stops the command before the lease's deadline.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use lease_core::{Lease, LeaseState, LossCause};
use rustix::process::{Pid, Signal, kill_process};
use tokio::select;
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::time::{interval, sleep};

use crate::child::group::{Group, has_terminal};
use crate::child::keeper::Keeper;
use crate::child::launcher::launcher;
use crate::child::running_time::RunningTime;
use crate::exit::Exit;
use crate::signals::Signals;

/// How to start and stop a command.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    /// The program and its arguments.
    pub(crate) command: &'a [OsString],
    pub(crate) place: Place,
    /// The signal that asks the command to end.
    pub(crate) signal: Signal,
    /// The time from this signal to SIGKILL, if the lease lasts that long.
    pub(crate) grace: Duration,
    /// How long before the lease's deadline the command is killed.
    pub(crate) margin: Duration,
    /// How often the keeper learns the lease's deadline.
    pub(crate) period: Duration,
    /// The exit code if the lease was lost before the command was executed.
    pub(crate) lost_exit_code: u8,
}

/// The process group in which a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A group of its own.
    OwnGroup,
    /// The group of `lease`, so that the command can read from the terminal.
    Foreground,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It ended by itself, or by a signal that was forwarded to it.
    Ended(Exit),
    /// The lease was lost, and the command was stopped.
    Lost,
    /// The keeper died, and the command was killed.
    KeeperDied,
}

/// A command that runs under a lease.
#[derive(Debug)]
pub(crate) struct Supervisor<'a> {
    plan: &'a Plan<'a>,
    lease: &'a Lease,
    keeper: Keeper,
    group: Group,
    child: Child,
    child_ended: unix::Signal,
    /// When the command must be dead.
    limit: RunningTime,
    status: Option<ExitStatus>,
}

impl<'a> Supervisor<'a> {
    /// Starts the command. The lease must be held; otherwise the command is not executed.
    pub(crate) fn start(plan: &'a Plan<'a>, lease: &'a Lease) -> io::Result<Self> {
        let child_ended = signal(SignalKind::child())?;
        let shared = (plan.place == Place::Foreground)
            .then(|| Group::Shared { lessee: lease.lessee().to_string() });
        let mut keeper = Keeper::start(shared.as_ref())?;
        let limit = RunningTime::limit_of(lease, plan.margin).unwrap_or_else(RunningTime::now);
        keeper.set_limit(limit);
        let mut command = launcher(plan.command, limit, plan.lost_exit_code);
        command.env("LEASE_KEY", lease.key().as_str());
        command.env("LEASE_TOKEN", lease.token().to_string());
        command.env("LEASE_LESSEE", lease.lessee().as_str());
        if shared.is_none() {
            command.process_group(keeper.id().as_raw_nonzero().get());
        }
        let group = shared.unwrap_or_else(|| Group::Own { id: keeper.id() });
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                keeper.dismiss();
                return Err(error);
            }
        };
        Ok(Self { plan, lease, keeper, group, child, child_ended, limit, status: None })
    }

    /// Waits until no process of the command is left.
    pub(crate) async fn run(mut self, signals: &mut Signals) -> Outcome {
        let outcome = self.until_ended(signals).await;
        self.stop_rest().await;
        self.keeper.dismiss();
        outcome
    }

    async fn until_ended(&mut self, signals: &mut Signals) -> Outcome {
        let cancelled = self.lease.cancelled_on_loss();
        // Outside of the loop, so that signals cannot delay a tick.
        let mut ticks = interval(self.plan.period);
        loop {
            select! {
                // The loss first. Then the end of the command, so that no signal is sent after it.
                biased;
                () = cancelled.cancelled() => {
                    self.stop_before_deadline().await;
                    return Outcome::Lost;
                }
                _ = self.child_ended.recv() => {
                    if let Some(exit) = self.exit() {
                        return if self.was_killed_at_limit() {
                            Outcome::Lost
                        } else {
                            Outcome::Ended(exit)
                        };
                    }
                    if self.keeper.has_died() {
                        return self.after_keeper().await;
                    }
                }
                _ = ticks.tick() => self.follow_deadline(),
                signal = signals.next() => self.forward(signal),
            }
        }
    }

    /// Whether the keeper has killed the command, as after a pause of this process.
    fn was_killed_at_limit(&self) -> bool {
        let is_killed =
            self.status.is_some_and(|status| status.signal() == Some(Signal::KILL.as_raw()));
        is_killed && self.limit.remaining().is_zero()
    }

    /// Tells the keeper the new deadline after a heartbeat.
    fn follow_deadline(&mut self) {
        if let Some(limit) = RunningTime::limit_of(self.lease, self.plan.margin) {
            self.limit = limit;
            self.keeper.set_limit(limit);
        }
    }

    fn forward(&self, signal: Signal) {
        // A terminal sends these two to all processes of its foreground group.
        let is_from_terminal = matches!(signal, Signal::INT | Signal::QUIT) && has_terminal();
        if self.plan.place == Place::OwnGroup || !is_from_terminal {
            self.signal(signal);
        }
    }

    /// Sends `signal` to all processes of the command, and continues them, since a stopped process does not
    /// receive a signal.
    fn signal(&self, signal: Signal) {
        for signal in [signal, Signal::CONT] {
            self.group.signal(signal);
            if !self.group.has(self.command()) {
                self.signal_command(signal);
            }
        }
    }

    /// Sends `signal` to the command itself, which may have left the group.
    fn signal_command(&self, signal: Signal) {
        // No other process can get its id before this process has reaped it.
        if self.status.is_none() {
            // An error means that the command has another user.
            let _refused = kill_process(self.command(), signal);
        }
    }

    fn command(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The keeper kills the group at the deadline, and dies with it. If `lease` was paused meanwhile, it finds
    /// the keeper dead. Another process may have killed the keeper, too.
    async fn after_keeper(&mut self) -> Outcome {
        self.kill().await;
        if self.lease.is_held() && self.limit.remaining() > Duration::ZERO {
            return Outcome::KeeperDied;
        }
        Outcome::Lost
    }

    /// Asks the command to end, and kills it after the grace, before the deadline.
    async fn stop_before_deadline(&mut self) {
        self.follow_deadline();
        // A holder that was evicted has until its deadline. In all other cases, another lessee may have the key.
        let is_in_time = matches!(
            *self.lease.state().borrow(),
            LeaseState::Held | LeaseState::AtRisk | LeaseState::Lost(LossCause::Revoked)
        );
        if is_in_time {
            let grace = self.plan.grace.min(self.limit.remaining());
            self.end_within(grace).await;
        }
        self.kill().await;
    }

    /// Stops what the command has left behind in its group.
    async fn stop_rest(&mut self) {
        if !self.group.members().is_empty() {
            let grace = self.plan.grace.min(self.limit.remaining());
            self.end_within(grace).await;
            self.kill().await;
        }
        if let Group::Own { .. } = self.group {
            // A process that was started during the search may have been missed.
            self.group.kill_all();
        }
    }

    /// Sends the signal that asks for an end, and waits for it, for at most `grace`.
    async fn end_within(&mut self, grace: Duration) {
        self.signal(self.plan.signal);
        select! {
            biased;
            () = self.until_empty() => (),
            () = sleep(grace) => (),
        }
    }

    async fn kill(&mut self) {
        self.signal_command(Signal::KILL);
        self.group.kill_all();
        self.until_empty().await;
    }

    /// Waits until the command and all processes of the group have ended.
    async fn until_empty(&mut self) {
        let mut pause = Duration::from_millis(1);
        while self.exit().is_none() || !self.group.members().is_empty() {
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Reaps the command, if it has ended.
    fn exit(&mut self) -> Option<Exit> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status.map(exit_of)
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).map_or(Exit::OWN_FAULT, Exit::code)
}

/// Between two searches for processes of the group.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
