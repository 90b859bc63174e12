//! The workers: processes that are started again whenever they end.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Failure;
use crate::chance::Chance;
use crate::ledger::{Grant, Ledger, Life};
use crate::resource::Resource;
use crate::saying::Saying;
use crate::server::with_clock;
use crate::setup::{Sabotage, Setup};

/// All workers, until it is stopped.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) berths: Vec<Arc<Berth>>,
    keepers: JoinSet<Result<(), Failure>>,
    stopping: Arc<AtomicBool>,
}

/// The place of one worker, whose processes come and go.
#[derive(Debug)]
pub(crate) struct Berth {
    worker: usize,
    /// The file that says how far off its wall clock is.
    clock: PathBuf,
    process: Mutex<Option<Process>>,
}

#[derive(Debug)]
struct Process {
    pid: Pid,
    inbox: mpsc::UnboundedSender<String>,
}

impl Fleet {
    /// Starts a worker on each of `stores`.
    pub(crate) fn start(
        setup: &Setup,
        stores: Vec<String>,
        resource: &Arc<Resource>,
        ledger: &Arc<Mutex<Ledger>>,
        chance: &mut Chance,
    ) -> Result<Self, Failure> {
        let berths: Vec<_> = (0..stores.len())
            .map(|number| {
                let worker = number + 1;
                let name = format!("lease-chaos-clock-{}-{worker}", std::process::id());
                let clock = std::env::temp_dir().join(name);
                std::fs::write(&clock, "+0")?;
                Ok(Arc::new(Berth { worker, clock, process: Mutex::default() }))
            })
            .collect::<io::Result<_>>()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let mut keepers = JoinSet::new();
        for (berth, store) in berths.iter().zip(stores) {
            let keeper = Keeper {
                berth: Arc::clone(berth),
                berths: berths.clone(),
                store,
                setup: setup.clone(),
                resource: Arc::clone(resource),
                ledger: Arc::clone(ledger),
                chance: Chance::from_seed(chance.seed()),
                stopping: Arc::clone(&stopping),
            };
            keepers.spawn(keeper.keep());
        }
        Ok(Self { berths, keepers, stopping })
    }

    /// Ends all workers, and hears what they said last.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        self.stopping.store(true, Ordering::SeqCst);
        for berth in &self.berths {
            berth.signal(Signal::KILL);
        }
        while let Some(kept) = self.keepers.join_next().await {
            kept??;
        }
        Ok(())
    }
}

impl Berth {
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Sets its wall clock `seconds` ahead of this machine's.
    pub(crate) fn set_clock(&self, seconds: i64) -> io::Result<()> {
        std::fs::write(&self.clock, format!("{seconds:+}"))
    }

    fn signal(&self, signal: Signal) {
        // Under the lock: a process that has ended stays a zombie until its keeper has taken it
        // out, so its number is nobody else's.
        if let Some(process) = &*self.process() {
            let _ = kill_process(process.pid, signal);
        }
    }

    fn tell(&self, line: String) {
        if let Some(process) = &*self.process() {
            // One that has ended hears nothing.
            drop(process.inbox.send(line));
        }
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.clock));
    }
}

/// Who starts a worker again, and listens to it.
struct Keeper {
    berth: Arc<Berth>,
    /// Of all workers, for what is handed over.
    berths: Vec<Arc<Berth>>,
    store: String,
    setup: Setup,
    resource: Arc<Resource>,
    ledger: Arc<Mutex<Ledger>>,
    chance: Chance,
    stopping: Arc<AtomicBool>,
}

impl Keeper {
    async fn keep(mut self) -> Result<(), Failure> {
        for number in 1.. {
            if self.stopping.load(Ordering::SeqCst) {
                break;
            }
            self.live(Life { worker: self.berth.worker, number }).await?;
            let pause = self.chance.up_to(RESTART);
            sleep(pause).await;
        }
        Ok(())
    }

    /// From the start of one process to its end.
    async fn live(&mut self, life: Life) -> Result<(), Failure> {
        let mut command = std::process::Command::new(std::env::current_exe()?);
        command.args(["worker", "--store", &self.store]);
        command.args(["--name", &format!("worker-{}.{}", life.worker, life.number)]);
        command.args(["--ttl-ms", &self.setup.ttl.as_millis().to_string()]);
        let max_ttl = self.setup.max_ttl();
        command.args(["--max-ttl-ms", &max_ttl.as_millis().to_string()]);
        command.args(["--counters", &self.setup.counters.to_string()]);
        command.args(["--seed", &self.chance.seed().to_string()]);
        if self.setup.sabotage == Some(Sabotage::Heedless) {
            command.arg("--heedless");
        }
        with_clock(&mut command, &self.berth.clock)?;
        let mut command = Command::from(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let (inbox, lines) = mpsc::unbounded_channel();
        *self.berth.process() = pid.map(|pid| Process { pid, inbox: inbox.clone() });
        if self.stopping.load(Ordering::SeqCst) {
            self.berth.kill();
        }
        if let Some(stdin) = child.stdin.take() {
            tokio::spawn(write_all(lines, stdin));
        }
        let stdout = child.stdout.take().ok_or("a worker without output")?;
        let mut said = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = said.next_line().await {
            // Whoever is killed may stop in mid-sentence.
            if let Ok(saying) = line.parse() {
                self.hear(life, saying, &inbox);
            }
        }
        *self.berth.process() = None;
        child.wait().await?;
        self.ledger().count("worker processes ended");
        Ok(())
    }

    fn hear(&mut self, life: Life, saying: Saying, inbox: &mpsc::UnboundedSender<String>) {
        let answer = |request: u64, value: Option<u64>| {
            let value = value.map_or_else(|| "refused".to_owned(), |value| value.to_string());
            // One that has ended hears nothing.
            drop(inbox.send(format!("answer {request} {value}")));
        };
        match saying {
            Saying::Obtained { counter, token, asked, held, by } => {
                let (held_from, held_until) = (Some(held), Some(held));
                self.ledger().granted(Grant {
                    counter,
                    token,
                    life,
                    asked,
                    by,
                    held_from,
                    held_until,
                    ended: None,
                });
            }
            Saying::TooLate { counter, token, asked } => {
                let (held_from, held_until) = (None, None);
                let ended = Some((asked, "granted too late".to_owned()));
                let by = "any".to_owned();
                let grant = Grant { counter, token, life, asked, by, held_from, held_until, ended };
                self.ledger().granted(grant);
            }
            Saying::Held { counter, token, at } => self.ledger().held(counter, token, life, at),
            Saying::Ended { counter, token, at, how } => {
                let mut ledger = self.ledger();
                ledger.count(format!("lease {how}"));
                ledger.ended(counter, token, life, (at, how));
            }
            Saying::Open { request, counter, token } => {
                answer(request, self.resource.write(life, counter, token, None, None));
            }
            Saying::Write { request, counter, token, read, sent } => {
                let value = self.resource.write(life, counter, token, Some(read), Some(sent));
                answer(request, value);
            }
            Saying::Offer { counter, text } => {
                // Some are lost on their way.
                if !self.chance.one_in(5)
                    && let Some(berth) = self.berths.get(self.chance.below(self.berths.len()))
                {
                    berth.tell(format!("resume {counter} {text}"));
                }
            }
            Saying::Counted { what } => self.ledger().count(what),
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn write_all(mut lines: mpsc::UnboundedReceiver<String>, mut stdin: ChildStdin) {
    while let Some(line) = lines.recv().await {
        if stdin.write_all(format!("{line}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// How long it takes at most until a process that ended is started again.
const RESTART: Duration = Duration::from_millis(500);
