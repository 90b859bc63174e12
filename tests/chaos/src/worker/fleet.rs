//! The workers. A supervisor restarts each worker process after its end.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lease_test_servers::sync::lock;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::chance::Chance;
use crate::failure::Failure;
use crate::judge::ledger::{Grant, Incarnation, Ledger, Wait};
use crate::load::SharedLog;
use crate::servers::server::with_clock;
use crate::setup::{Sabotage, Setup};
use crate::worker::message::Message;
use crate::worker::resource::Resource;

#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) slots: Vec<Arc<WorkerSlot>>,
    supervisors: JoinSet<Result<(), Failure>>,
    stopping: Arc<AtomicBool>,
}

#[derive(Debug)]
pub(crate) struct WorkerSlot {
    worker: usize,
    clock: PathBuf,
    process: Mutex<Option<Process>>,
}

#[derive(Debug)]
struct Process {
    pid: Pid,
    inbox: mpsc::UnboundedSender<String>,
}

impl Fleet {
    /// Starts a worker on each of `stores`. The last workers are the processes of the load.
    pub(crate) fn start(
        setup: &Setup,
        stores: Vec<String>,
        resource: &Arc<Resource>,
        (ledger, load): (&Arc<Mutex<Ledger>>, Option<&SharedLog>),
        chance: &mut Chance,
    ) -> Result<Self, Failure> {
        let slots: Vec<_> = (0..stores.len())
            .map(|number| {
                let worker = number + 1;
                let name = format!("lease-chaos-clock-{}-{worker}", std::process::id());
                let clock = std::env::temp_dir().join(name);
                std::fs::write(&clock, "+0")?;
                Ok(Arc::new(WorkerSlot { worker, clock, process: Mutex::default() }))
            })
            .collect::<io::Result<_>>()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let mut supervisors = JoinSet::new();
        for (slot, store) in slots.iter().zip(stores) {
            let load = (slot.worker > setup.workers).then_some(load).flatten();
            let supervisor = Supervisor {
                slot: Arc::clone(slot),
                slots: slots.iter().take(setup.workers).cloned().collect(),
                store,
                setup: setup.clone(),
                resource: Arc::clone(resource),
                ledger: Arc::clone(ledger),
                load: load.cloned(),
                chance: Chance::from_seed(chance.seed()),
                stopping: Arc::clone(&stopping),
            };
            supervisors.spawn(supervisor.supervise());
        }
        Ok(Self { slots, supervisors, stopping })
    }

    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        self.stopping.store(true, Ordering::SeqCst);
        for slot in &self.slots {
            slot.signal(Signal::KILL);
        }
        while let Some(kept) = self.supervisors.join_next().await {
            kept??;
        }
        Ok(())
    }
}

impl WorkerSlot {
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn set_clock(&self, seconds: i64) -> io::Result<()> {
        std::fs::write(&self.clock, format!("{seconds:+}"))
    }

    fn signal(&self, signal: Signal) {
        // Holds the lock. An ended process stays a zombie until its supervisor removes it, so no
        // other process has its id.
        if let Some(process) = &*self.process() {
            let _ = kill_process(process.pid, signal);
        }
    }

    fn send(&self, line: String) {
        if let Some(process) = &*self.process() {
            // The process may have ended.
            drop(process.inbox.send(line));
        }
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        lock(&self.process)
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.clock));
    }
}

struct Supervisor {
    slot: Arc<WorkerSlot>,
    /// A lease may be handed over to these workers.
    slots: Vec<Arc<WorkerSlot>>,
    store: String,
    setup: Setup,
    resource: Arc<Resource>,
    ledger: Arc<Mutex<Ledger>>,
    load: Option<SharedLog>,
    chance: Chance,
    stopping: Arc<AtomicBool>,
}

impl Supervisor {
    async fn supervise(mut self) -> Result<(), Failure> {
        for number in 1.. {
            if self.stopping.load(Ordering::SeqCst) {
                break;
            }
            self.live(Incarnation { worker: self.slot.worker, number }).await?;
            let pause = self.chance.up_to(RESTART);
            sleep(pause).await;
        }
        Ok(())
    }

    async fn live(&mut self, incarnation: Incarnation) -> Result<(), Failure> {
        let mut command = Command::from(self.command(incarnation)?);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let (inbox, lines) = mpsc::unbounded_channel();
        *self.slot.process() = pid.map(|pid| Process { pid, inbox: inbox.clone() });
        if self.stopping.load(Ordering::SeqCst) {
            self.slot.kill();
        }
        if let Some(stdin) = child.stdin.take() {
            tokio::spawn(write_all(lines, stdin));
        }
        let stdout = child.stdout.take().ok_or("a worker without output")?;
        let mut lines_of_worker = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = lines_of_worker.next_line().await {
            // A killed process may leave an incomplete line.
            if let Ok(message) = line.parse() {
                self.handle(incarnation, message, &inbox);
            }
        }
        *self.slot.process() = None;
        child.wait().await?;
        self.ledger().count("worker processes ended");
        Ok(())
    }

    fn command(&mut self, incarnation: Incarnation) -> Result<std::process::Command, Failure> {
        let mut command = std::process::Command::new(std::env::current_exe()?);
        command.args(["worker", "--store", &self.store]);
        command.args(["--name", &format!("worker-{}.{}", incarnation.worker, incarnation.number)]);
        command.args(["--ttl-ms", &self.setup.ttl.as_millis().to_string()]);
        let max_ttl = self.setup.max_ttl();
        command.args(["--max-ttl-ms", &max_ttl.as_millis().to_string()]);
        command.args(["--seed", &self.chance.seed().to_string()]);
        if let Some(load) = self.setup.load.filter(|_| self.load.is_some()) {
            let process = self.slot.worker.saturating_sub(self.setup.workers + 1);
            command.args(["--counters", &load.keys.to_string()]);
            command.args(["--tasks", &load.share(process).to_string()]);
            if self.setup.sabotage == Some(Sabotage::Swapped) {
                command.arg("--swapped");
            }
        } else {
            command.args(["--counters", &self.setup.counters.to_string()]);
            match self.setup.sabotage {
                Some(Sabotage::Heedless) => drop(command.arg("--heedless")),
                Some(Sabotage::Racing) => drop(command.arg("--racing")),
                _ => (),
            }
        }
        with_clock(&mut command, &self.slot.clock)?;
        Ok(command)
    }

    fn handle(
        &mut self,
        incarnation: Incarnation,
        message: Message,
        inbox: &mpsc::UnboundedSender<String>,
    ) {
        if let Some(load) = &self.load {
            return lock(load).note(incarnation, message);
        }
        let answer = |request: u64, value: Option<u64>| {
            let value = value.map_or_else(|| "refused".to_owned(), |value| value.to_string());
            // The process may have ended.
            drop(inbox.send(format!("answer {request} {value}")));
        };
        match message {
            Message::Obtained { counter, token, asked, held, by } => {
                let (held_from, held_until) = (Some(held), Some(held));
                self.ledger().granted(Grant {
                    counter,
                    token,
                    incarnation,
                    asked,
                    by,
                    held_from,
                    held_until,
                    ended: None,
                });
            }
            Message::Queued { counter, asked, at } => {
                self.ledger().waits.push(Wait { counter, incarnation, asked, queued: at });
            }
            Message::TooLate { counter, token, asked } => {
                let (held_from, held_until) = (None, None);
                let ended = Some((asked, "granted too late".to_owned()));
                let by = "any".to_owned();
                let grant =
                    Grant { counter, token, incarnation, asked, by, held_from, held_until, ended };
                self.ledger().granted(grant);
            }
            Message::Held { counter, token, at } => {
                self.ledger().held(counter, token, incarnation, at);
            }
            Message::Ended { counter, token, at, how } => {
                let mut ledger = self.ledger();
                ledger.count(format!("lease {how}"));
                ledger.ended(counter, token, incarnation, (at, how));
            }
            Message::Open { request, counter, token } => {
                answer(request, self.resource.write(incarnation, counter, token, None, None));
            }
            Message::Write { request, counter, token, read, sent } => {
                let value =
                    self.resource.write(incarnation, counter, token, Some(read), Some(sent));
                answer(request, value);
            }
            Message::Offer { counter, text } => {
                // Some offers are dropped on purpose, so that hand-overs expire.
                if !self.chance.one_in(5)
                    && let Some(slot) = self.slots.get(self.chance.below(self.slots.len()))
                {
                    slot.send(format!("resume {counter} {text}"));
                }
            }
            // A worker with counters reports this error as a failed call.
            Message::WrongType { .. } => (),
            Message::Counted { what } => self.ledger().count(what),
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }
}

async fn write_all(mut lines: mpsc::UnboundedReceiver<String>, mut stdin: ChildStdin) {
    while let Some(line) = lines.recv().await {
        if stdin.write_all(format!("{line}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

pub(crate) const RESTART: Duration = Duration::from_millis(500);
