//! Worker processes. A worker obtains leases, increments counters, and ends each lease in a random way.
//!
//! This file is the program of a worker. It writes [`message`]s through [`worker_io`]. [`fleet`] starts the
//! processes and reads their messages; [`resource`] has the counters.

pub(crate) mod fleet;
pub(crate) mod message;
pub(crate) mod resource;
pub(crate) mod worker_io;

use std::pin::pin;
use std::process::exit;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use lease_core::{
    Attempt, HandOver, Handed, Lease, LeaseKey, LeaseOptions, Lessee, Locker, Released, StoreError,
    Ttl, WaitInTurn, Waiting,
};
use tokio::select;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::chance::Chance;
use crate::failure::Failure;
use crate::load;
use crate::load::swapped::Swapped;
use crate::load::task::LoadTask;
use crate::monotonic::Monotonic;
use crate::servers::stores::open;
use crate::worker::message::Message;
use crate::worker::worker_io::WorkerIo;

#[derive(Debug, Clone, Args)]
pub(crate) struct WorkerArgs {
    /// `redis://HOST:PORT`, several separated by commas, or `dynamodb://HOST:PORT/TABLE`.
    #[arg(long)]
    pub(crate) store: String,
    #[arg(long)]
    pub(crate) name: String,
    #[arg(long)]
    pub(crate) ttl_ms: u64,
    #[arg(long)]
    pub(crate) max_ttl_ms: u64,
    /// With `tasks`, the number of keys that these tasks claim.
    #[arg(long)]
    pub(crate) counters: usize,
    /// The tasks of a load. If absent, the worker increments counters.
    #[arg(long)]
    pub(crate) tasks: Option<usize>,
    #[arg(long)]
    pub(crate) seed: u64,
    /// A sabotage: sends no heartbeats, and writes after the lease has expired.
    #[arg(long)]
    pub(crate) heedless: bool,
    /// A sabotage: races for keys, but reports a place in a queue for each wait.
    #[arg(long)]
    pub(crate) racing: bool,
    /// A sabotage: swaps the answers of two claims of a load.
    #[arg(long)]
    pub(crate) swapped: bool,
}

pub(crate) fn key_of(counter: usize) -> Result<LeaseKey, Failure> {
    Ok(format!("counter-{counter}").parse()?)
}

/// Ends with the standard input, or by a kill.
pub(crate) async fn work(args: WorkerArgs) -> Result<(), Failure> {
    let mut chance = Chance::from_seed(args.seed);
    let ttl = Duration::from_millis(args.ttl_ms);
    let mut options = LeaseOptions::new(ttl)?.with_poll_interval(ttl / 10)?;
    if args.racing {
        options = options.with_waiting(Waiting::Racing);
    }
    let (io, mut offers) = WorkerIo::open();
    let mut store = loop {
        match open(&args.store, Duration::from_millis(args.max_ttl_ms)).await {
            Ok(store) => break store,
            // A worker may start while its servers are unreachable.
            Err(_unreachable) => io.send(&Message::Counted { what: "connect failed".to_owned() }),
        }
        sleep(ttl / 10).await;
    };
    if args.swapped {
        store = Arc::new(Swapped::new(store));
    }
    let locker =
        Locker::new(store).with_lessee(Lessee::new(args.name.as_str())?).with_options(options);
    if let Some(tasks) = args.tasks {
        return work_on_load(tasks, args.counters, &locker, &io, &mut chance, ttl).await;
    }

    let mut tasks = JoinSet::new();
    let mut inboxes = Vec::new();
    for counter in 0..args.counters {
        let (inbox, handed) = mpsc::unbounded_channel();
        inboxes.push(inbox);
        let task = Task {
            counter,
            key: key_of(counter)?,
            locker: locker.clone(),
            io: Arc::clone(&io),
            handed,
            chance: Chance::from_seed(chance.seed()),
            ttl,
            heedless: args.heedless,
        };
        tasks.spawn(task.run());
    }
    while let Some((counter, handed)) = offers.recv().await {
        if let Some(inbox) = inboxes.get(counter) {
            drop(inbox.send(handed));
        }
    }
    Ok(())
}

async fn work_on_load(
    tasks: usize,
    keys: usize,
    locker: &Locker,
    io: &Arc<WorkerIo>,
    chance: &mut Chance,
    ttl: Duration,
) -> Result<(), Failure> {
    let keys: Arc<[LeaseKey]> = (0..keys).map(load::key_of).collect::<Result<_, _>>()?;
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let task = LoadTask {
            keys: Arc::clone(&keys),
            locker: locker.clone(),
            io: Arc::clone(io),
            chance: Chance::from_seed(chance.seed()),
            ttl,
        };
        running.spawn(task.run());
    }
    while let Some(ended) = running.join_next().await {
        ended?;
    }
    Ok(())
}

struct Task {
    counter: usize,
    key: LeaseKey,
    locker: Locker,
    io: Arc<WorkerIo>,
    handed: mpsc::UnboundedReceiver<HandOver>,
    chance: Chance,
    ttl: Duration,
    heedless: bool,
}

#[derive(Debug, Clone, Copy)]
enum Ending {
    Release,
    Drop,
    HandOver,
    Abandon,
    LateWrite,
    Crash,
    /// The blocked thread stops the heartbeats.
    Block,
}

impl Task {
    async fn run(mut self) {
        loop {
            let asked = Monotonic::now();
            match self.obtain(asked).await {
                Some((lease, by)) => self.tenure(lease, asked, by).await,
                None => sleep(self.chance.up_to(self.ttl / 5)).await,
            }
        }
    }

    /// Returns the lease with the name of the successful call.
    async fn obtain(&mut self, asked: Monotonic) -> Option<(Lease, &'static str)> {
        if let Ok(handed) = self.handed.try_recv() {
            return Some((self.resume(handed).await?, "resume"));
        }
        if self.chance.one_in(2) {
            return match self.locker.obtain(&self.key).await {
                Ok(Attempt::Obtained(lease)) => Some((lease, "obtain")),
                Ok(Attempt::Held(_)) => None,
                Err(_unknown) => self.failed("obtain"),
            };
        }
        let patience = self.chance.up_to(self.ttl * 3);
        let wait = self.locker.wait_in_turn(&self.key);
        let wait = reporting_its_place(wait, &self.locker, &self.io, self.counter, asked);
        select! {
            // Resumes a hand-over first, since a hand-over expires after a ttl.
            biased;
            Some(handed) = self.handed.recv() => Some((self.resume(handed).await?, "resume")),
            // The timeout drops the wait. A dropped wait must not leave the key held.
            waited = timeout(patience, wait) => {
                match waited.ok()? {
                    Ok(lease) => Some((lease, "wait")),
                    Err(_failed) => self.failed("wait"),
                }
            }
        }
    }

    async fn resume(&self, handed: HandOver) -> Option<Lease> {
        for _ in 0..3 {
            match self.locker.resume(handed.clone()).await {
                Ok(Some(lease)) => {
                    self.io.send(&Message::Counted { what: "resumed".to_owned() });
                    return Some(lease);
                }
                Ok(None) => return None,
                Err(_unknown) => drop(self.failed::<Lease>("resume")),
            }
        }
        None
    }

    async fn tenure(&mut self, lease: Lease, asked: Monotonic, by: &str) {
        let (counter, token) = (self.counter, lease.token().get());
        if !lease.is_held() {
            return self.io.send(&Message::TooLate { counter, token, asked });
        }
        let by = by.to_owned();
        self.io.send(&Message::Obtained { counter, token, asked, held: Monotonic::now(), by });

        let pace = self.chance.length(Duration::from_millis(2), Duration::from_millis(20));
        let mut value = None;
        if self.heedless {
            // Without heartbeats the lease expires, but the worker continues.
            lease.abandon();
            let on = async {
                tokio::join!(
                    self.watch(token, || true),
                    self.count(token, pace, &mut value, || true)
                )
            };
            drop(timeout(self.ttl * 2, on).await);
            return;
        }
        // Most tenures are short, so that keys often pass to another process. Some tenures are long
        // enough for heartbeats.
        let longest = if self.chance.one_in(4) { self.ttl * 3 / 2 } else { self.ttl / 5 };
        let length = self.chance.up_to(longest);
        select! {
            biased;
            // Polls the loss first: after a loss, the worker makes no further write.
            () = self.watch(token, || lease.is_held()) => (),
            _ = timeout(length, self.count(token, pace, &mut value, || lease.is_held())) => (),
        }
        self.end(lease, value).await;
    }

    async fn watch(&self, token: u64, is_held: impl Fn() -> bool + Send + Sync) {
        let counter = self.counter;
        loop {
            let at = Monotonic::now();
            if !is_held() {
                return;
            }
            self.io.send(&Message::Held { counter, token, at });
            sleep(GLANCE).await;
        }
    }

    /// `value` is the counter's value, or `None` during a write, since a dropped write may or may
    /// not arrive.
    async fn count(
        &self,
        token: u64,
        pace: Duration,
        value: &mut Option<u64>,
        is_held: impl Fn() -> bool + Send + Sync,
    ) {
        *value = self.io.open_counter(self.counter, token).await;
        while let Some(read) = *value {
            sleep(pace).await;
            if !is_held() {
                return;
            }
            *value = None;
            *value = self.io.write(self.counter, token, read).await;
        }
    }

    async fn end(&mut self, lease: Lease, value: Option<u64>) {
        let (counter, token) = (self.counter, lease.token().get());
        let ending = self.chance.weighted(&ENDINGS).unwrap_or(Ending::Release);
        let at = Monotonic::now();
        let how = match ending {
            Ending::Drop => {
                drop(lease);
                "dropped".to_owned()
            }
            Ending::Abandon => {
                lease.abandon();
                "abandoned".to_owned()
            }
            Ending::HandOver => self.hand_over(lease).await,
            Ending::Crash => exit(1),
            Ending::Block => {
                std::thread::sleep(self.chance.up_to(self.ttl * 2));
                let at = Monotonic::now();
                if lease.is_held() {
                    self.io.send(&Message::Held { counter, token, at });
                }
                drop(lease);
                "blocked its thread, then dropped".to_owned()
            }
            Ending::LateWrite => {
                if let Some(read) = value {
                    let (io, late) = (Arc::clone(&self.io), self.chance.up_to(self.ttl * 2));
                    tokio::spawn(async move {
                        let sent = Monotonic::now();
                        sleep(late).await;
                        io.write_late(counter, token, read, sent).await;
                    });
                }
                self.release(lease).await
            }
            Ending::Release => self.release(lease).await,
        };
        self.io.send(&Message::Ended { counter, token, at, how });
    }

    async fn release(&self, lease: Lease) -> String {
        match lease.release().await {
            Ok(Released::Freed) => "released".to_owned(),
            Ok(Released::AlreadyLost(cause)) => format!("lost: {cause}"),
            Err(_unknown) => "released, without an answer".to_owned(),
        }
    }

    async fn hand_over(&self, lease: Lease) -> String {
        match lease.hand_over(Ttl::clamped(self.ttl)).await {
            Ok(Handed::Over(handed)) => {
                let (counter, text) = (self.counter, handed.to_string());
                self.io.send(&Message::Offer { counter, text });
                "handed over".to_owned()
            }
            Ok(Handed::AlreadyLost(cause)) => format!("lost: {cause}"),
            Err(_unknown) => "handed over, without an answer".to_owned(),
        }
    }

    fn failed<T>(&self, call: &str) -> Option<T> {
        self.io.send(&Message::Counted { what: format!("{call} failed") });
        None
    }
}

async fn reporting_its_place(
    wait: WaitInTurn,
    locker: &Locker,
    io: &WorkerIo,
    counter: usize,
    asked: Monotonic,
) -> Result<Lease, StoreError> {
    let mut positions = wait.positions();
    let placed = async {
        if locker.options().waiting() == Waiting::Racing {
            // The sabotage `racing` reports a place, although the wait has none.
            sleep(locker.options().ttl() / 20).await;
        } else if positions.wait_for(Option::is_some).await.is_err() {
            return;
        }
        io.send(&Message::Queued { counter, asked, at: Monotonic::now() });
    };
    let mut wait = pin!(wait);
    select! {
        // Polls the lease first: a wait that is granted at once needs no place.
        biased;
        lease = &mut wait => return lease,
        () = placed => (),
    }
    wait.await
}

const GLANCE: Duration = Duration::from_millis(2);

const ENDINGS: [(u32, Ending); 7] = [
    (24, Ending::Release),
    (8, Ending::Drop),
    (10, Ending::HandOver),
    (3, Ending::Abandon),
    (8, Ending::LateWrite),
    (1, Ending::Crash),
    (1, Ending::Block),
];
