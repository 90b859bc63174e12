//! Probe processes. A probe obtains free keys in a loop, and reports each grant.
//!
//! This file is the program of a probe. [`process`] starts probes and reads their [`event`]s.

pub(crate) mod event;
pub(crate) mod process;

use std::io::{Write, stdout};
use std::process::exit;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use lease_core::store::LockStore;
use lease_core::{Attempt, Lease, LeaseKey, LeaseOptions, Lessee, Locker};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::failure::Failure;
use crate::monotonic::Monotonic;
use crate::probe::event::{Call, ProbeEvent};
use crate::servers::stores::open;

/// The command line of a probe.
#[derive(Debug, Clone, Args)]
pub(crate) struct ProbeArgs {
    /// The address of the store, as for a worker.
    #[arg(long)]
    pub(crate) store: String,
    #[arg(long)]
    pub(crate) name: String,
    #[arg(long = "shard")]
    pub(crate) shards: Vec<String>,
    #[arg(long, default_value_t = 0)]
    pub(crate) contenders: usize,
}

pub(crate) async fn probe(args: ProbeArgs) -> Result<(), Failure> {
    std::thread::spawn(tick);
    let store = connected(&args.store).await;
    let mut tasks = JoinSet::new();
    for (shard, keys) in args.shards.iter().enumerate() {
        let keys: Vec<LeaseKey> = keys.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let (kept, keys) = keys.split_first().ok_or("a shard needs keys")?;
        let (obtained, waited) = keys.split_at(keys.len() / 2);
        let locker = |ttl: Duration, call: Call| -> Result<Locker, Failure> {
            let lessee = Lessee::new(format!("{}-{call}", args.name))?;
            let options = LeaseOptions::new(ttl)?;
            Ok(Locker::new(Arc::clone(&store)).with_lessee(lessee).with_options(options))
        };
        let task = |call, ttl| -> Result<Task, Failure> {
            Ok(Task { shard, call, locker: locker(ttl, call)? })
        };
        if args.contenders == 0 {
            tasks.spawn(task(Call::Obtain, TTL)?.obtain(obtained.to_vec()));
            tasks.spawn(task(Call::Wait, TTL)?.wait(waited.to_vec()));
            tasks.spawn(task(Call::Keep, KEPT_TTL)?.keep(kept.clone()));
        }
        for contender in 0..args.contenders {
            let (address, key) = (args.store.clone(), kept.clone());
            let lessee = Lessee::new(format!("{}-{contender}", args.name))?;
            let options = LeaseOptions::new(TTL)?;
            tasks.spawn(async move {
                let store = connected(&address).await;
                let locker = Locker::new(store).with_lessee(lessee).with_options(options);
                Task { shard, call: Call::Contend, locker }.contend(key).await;
            });
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    Ok(())
}

struct Task {
    shard: usize,
    call: Call,
    locker: Locker,
}

impl Task {
    async fn obtain(self, keys: Vec<LeaseKey>) {
        for key in keys.iter().cycle() {
            match self.locker.obtain(key).await {
                Ok(Attempt::Obtained(lease)) => self.granted(lease),
                Ok(Attempt::Held(holder)) => self.failed(&format!("held by {}", holder.lessee)),
                Err(error) => self.failed(&sentence(&error)),
            }
            sleep(PAUSE).await;
        }
    }

    async fn wait(self, keys: Vec<LeaseKey>) {
        for key in keys.iter().cycle() {
            // An unanswered release may leave a key held, so each call uses another key.
            match timeout(TTL * 2, self.locker.wait_until_obtained(key)).await {
                Ok(Ok(lease)) => self.granted(lease),
                Ok(Err(error)) => self.failed(&sentence(&error)),
                Err(_elapsed) => self.failed("the wait timed out"),
            }
            sleep(PAUSE).await;
        }
    }

    async fn contend(self, key: LeaseKey) {
        loop {
            match self.locker.wait_until_obtained(&key).await {
                Ok(lease) => {
                    report(&self.event());
                    if let Err(error) = lease.release().await {
                        self.failed(&sentence(&error));
                    }
                }
                Err(error) => self.failed(&sentence(&error)),
            }
        }
    }

    async fn keep(self, key: LeaseKey) {
        let shard = self.shard;
        loop {
            match self.locker.obtain(&key).await {
                Ok(Attempt::Obtained(lease)) => {
                    report(&ProbeEvent::Kept { shard, at: Monotonic::now() });
                    let why = lease.lost().await.to_string();
                    report(&ProbeEvent::Lost { shard, at: Monotonic::now(), why });
                }
                Ok(Attempt::Held(holder)) => self.failed(&format!("held by {}", holder.lessee)),
                Err(error) => self.failed(&sentence(&error)),
            }
            sleep(PAUSE).await;
        }
    }

    fn event(&self) -> ProbeEvent {
        ProbeEvent::Granted { shard: self.shard, call: self.call, at: Monotonic::now() }
    }

    fn granted(&self, lease: Lease) {
        report(&self.event());
        // A release may take long after a failover, so a separate task releases.
        tokio::spawn(async move { drop(lease.release().await) });
    }

    fn failed(&self, why: &str) {
        let (shard, call, at) = (self.shard, self.call, Monotonic::now());
        report(&ProbeEvent::Failed { shard, call, at, why: why.to_owned() });
    }
}

async fn connected(address: &str) -> Arc<dyn LockStore> {
    loop {
        match open(address, KEPT_TTL).await {
            Ok(store) => return store,
            Err(error) => {
                let (shard, call, at) = (0, Call::Obtain, Monotonic::now());
                let why = format!("connecting: {}", sentence(&*error));
                report(&ProbeEvent::Failed { shard, call, at, why });
            }
        }
        sleep(PAUSE).await;
    }
}

fn sentence(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Shows that the operating system schedules this process, even if its runtime is blocked.
fn tick() {
    loop {
        report(&ProbeEvent::Tick { at: Monotonic::now() });
        std::thread::sleep(PAUSE);
    }
}

fn report(event: &ProbeEvent) {
    if stdout().lock().write_all(format!("{event}\n").as_bytes()).is_err() {
        exit(0);
    }
}

const TTL: Duration = Duration::from_secs(2);

/// Long enough for several heartbeats that each skip a silent host.
pub(crate) const KEPT_TTL: Duration = Duration::from_secs(6);

pub(crate) const PAUSE: Duration = Duration::from_millis(50);
