//! A model of the service: one record, which is replaced on condition of its version.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lease_core::LeaseKey;
use lease_core::conformance::{ClientContext, Ledger, Model, ModelContext};
use lease_core::store::{Claim, Clock, Grant, Moment, ServerClock};
use lease_register::{Record, RegisterStore, Replaced, Version, Versioned, Versions};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Handle;

use crate::remote::Remote;

/// The service behaves as a register should, except for the `breach`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) versions: Versions,
    /// If answers have dates: the largest difference between the clocks of the service's machines.
    pub(crate) dates: Option<Duration>,
    /// The store's setting for this difference.
    pub(crate) margin: Duration,
    /// How old a read may be.
    pub(crate) lag: Duration,
    pub(crate) breach: Option<Breach>,
}

/// A rule that the service, an operator or a store breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breach {
    IgnoresVersions,
    /// The service does not store the number of a heartbeat.
    KeepsTheBeat,
    /// The clocks of the stores run twice as fast.
    HastyStores,
    /// The date of an answer is the time of the client's machine. So stores compare the clocks of two machines.
    ForeignClocks,
    /// An operator deletes the record now and then.
    Deletes,
    /// As `Deletes`, and the versions of a new record start from 1.
    DeletesAndRestarts,
}

/// Clones share one service.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) network: Handle,
    pub(crate) setup: Setup,
    ledger: Ledger,
    inside: Arc<Mutex<Inside>>,
}

#[derive(Debug)]
struct Inside {
    last: u64,
    /// The record at each time. `None`: absent.
    history: Vec<(Duration, Option<(u64, Record)>)>,
    random: StdRng,
}

impl Service {
    pub(crate) fn new(world: ModelContext, setup: Setup) -> Self {
        let random = StdRng::seed_from_u64(world.seed ^ 0xCA5);
        let inside = Inside { last: 0, history: vec![(Duration::ZERO, None)], random };
        let inside = Arc::new(Mutex::new(inside));
        Self { network: world.network, setup, ledger: world.ledger, inside }
    }

    fn is(&self, breach: Breach) -> bool {
        self.setup.breach == Some(breach)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap()
    }

    /// The time of one of the service's machines, in seconds.
    pub(crate) fn date(&self) -> u64 {
        let apart = self.setup.dates.unwrap_or_default();
        let ahead = apart.mul_f64(self.inside().random.random_range(0.0..=1.0));
        1_800_000_000 + (self.ledger.now() + ahead).as_secs()
    }

    pub(crate) fn read(&self) -> Option<Versioned> {
        let mut inside = self.inside();
        let age = self.setup.lag.mul_f64(inside.random.random_range(0.0..=1.0));
        let time = self.ledger.now().saturating_sub(age);
        let before = inside.history.iter().rev().find(|(at, _)| *at <= time);
        let (number, record) = before.and_then(|(_, found)| found.clone())?;
        Some(Versioned { record, version: number.into() })
    }

    pub(crate) fn replace(&self, expected: Option<&Version>, record: &Record) -> Replaced {
        let mut inside = self.inside();
        let (_, found) = inside.history.last().unwrap().clone();
        let version = found.as_ref().map(|(number, _)| Version::from(*number));
        if version.as_ref() != expected && !self.is(Breach::IgnoresVersions) {
            return Replaced::Conflict;
        }
        let mut record = record.clone();
        if self.is(Breach::KeepsTheBeat)
            && let Some(held) = &mut record.holder
        {
            held.beat = lease_core::store::Beat::GRANTED;
        }
        self.note(found.as_ref().map(|(_, record)| record), &record);
        inside.last += 1;
        let number = inside.last;
        inside.history.push((self.ledger.now(), Some((number, record))));
        Replaced::Done(number.into())
    }

    /// Records a grant or a write in the ledger at the moment when it is applied.
    fn note(&self, before: Option<&Record>, after: &Record) {
        let Some(grant) = grant_of(after) else { return };
        if before.and_then(grant_of).map(|before| (before.nonce, before.token))
            != Some((grant.nonce, grant.token))
        {
            self.ledger.granted(&grant);
        }
        if before.is_some_and(|before| before.attributes != after.attributes) {
            self.ledger.written(&grant);
        }
    }

    fn delete(&self) {
        let mut inside = self.inside();
        let now = self.ledger.now();
        inside.history.push((now, None));
        inside.last += 1;
        if self.is(Breach::DeletesAndRestarts) {
            inside.last = 0;
        }
        self.ledger.note("an operator deletes the record");
    }
}

impl Model for Service {
    type Store = RegisterStore<Remote>;

    fn connect(&mut self, client: ClientContext) -> BoxFuture<'static, Self::Store> {
        let clock = server_clock(self.setup, &client);
        let factor = if self.is(Breach::HastyStores) { 2 } else { 1 };
        let hasty = Arc::new(Hasty { clock: Arc::clone(&client.clock), factor });
        let remote = Remote::new(self.clone(), client, clock);
        let seed = self.inside().random.random();
        let store = RegisterStore::builder(remote)
            .with_margin(self.setup.margin)
            .with_clock(hasty)
            .with_seed(seed)
            .build();
        async move { store.unwrap() }.boxed()
    }

    fn strike(&mut self, _random: &mut StdRng) {
        if self.is(Breach::Deletes) || self.is(Breach::DeletesAndRestarts) {
            self.delete();
        }
    }
}

fn server_clock(setup: Setup, client: &ClientContext) -> Option<ServerClock> {
    setup.dates?;
    Some(ServerClock::new(Arc::clone(&client.clock), 0.01))
}

fn grant_of(record: &Record) -> Option<Grant> {
    let held = record.holder.clone()?;
    let key: LeaseKey = "shared".parse().ok()?;
    let claim = Claim::new(key, held.lessee, held.nonce, held.ttl);
    Some(claim.granted_to(Some(held.request), held.token))
}

/// A clock that is `factor` times as fast as it should be.
#[derive(Debug)]
struct Hasty {
    clock: Arc<dyn Clock>,
    factor: u64,
}

impl Clock for Hasty {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.clock.now().as_nanos() * self.factor)
    }
}
