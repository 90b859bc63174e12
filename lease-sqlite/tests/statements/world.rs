//! A file, and a machine whose clocks a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lease_core::store::{Beat, Claim, Grant, Heartbeat, LeaseTable, LockStore, Nonce, Obtained};
use lease_core::{Attributes, Holder, LeaseKey, Lessee, Value};
use lease_sqlite::{Machine, SqliteStore};
use tempfile::TempDir;

use crate::Sabotage;

/// The machine booted an hour ago, on 2026-01-01.
#[derive(Debug)]
pub(crate) struct SimulatedMachine {
    boot: AtomicU64,
    boot_micros: AtomicU64,
    wall_micros: AtomicU64,
}

impl SimulatedMachine {
    pub(crate) fn new() -> Self {
        Self {
            boot: 1.into(),
            boot_micros: 3_600_000_000.into(),
            wall_micros: 1_767_225_600_000_000.into(),
        }
    }

    pub(crate) fn pass(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap();
        self.boot_micros.fetch_add(micros, Ordering::SeqCst);
    }

    pub(crate) fn reboot(&self, boot_time: Duration) {
        self.boot.fetch_add(1, Ordering::SeqCst);
        self.boot_micros.store(u64::try_from(boot_time.as_micros()).unwrap(), Ordering::SeqCst);
    }

    pub(crate) fn step_wall_clock(&self, hours: i64) {
        self.wall_micros
            .fetch_add(hours.wrapping_mul(3_600_000_000).cast_unsigned(), Ordering::SeqCst);
    }
}

impl Machine for SimulatedMachine {
    fn boot_time(&self) -> Duration {
        Duration::from_micros(self.boot_micros.load(Ordering::SeqCst))
    }

    fn boot_id(&self) -> String {
        format!("boot-{}", self.boot.load(Ordering::SeqCst))
    }

    fn wall_time(&self) -> u64 {
        self.wall_micros.load(Ordering::SeqCst)
    }
}

pub(crate) struct World {
    folder: TempDir,
    pub(crate) machine: Arc<SimulatedMachine>,
    sabotages: &'static [Sabotage],
}

impl World {
    pub(crate) fn new(sabotages: &'static [Sabotage]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, machine: Arc::new(SimulatedMachine::new()), sabotages }
    }

    pub(crate) async fn open(&self) -> Handle {
        let mut builder = SqliteStore::builder(self.folder.path().join("leases.db"))
            .with_machine(Arc::clone(&self.machine) as Arc<dyn Machine>);
        for (statement, old, new) in self.sabotages {
            builder = builder.with_sabotage(statement, old, new);
        }
        Handle(builder.open().await.unwrap())
    }

    pub(crate) fn connect(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.folder.path().join("leases.db")).unwrap()
    }

    pub(crate) fn run_sql(&self, sql: &str) {
        self.connect().execute_batch(sql).unwrap();
    }

    pub(crate) fn has_row(&self, name: &str) -> bool {
        let other = self.connect();
        let sql = "SELECT count(*) FROM lease WHERE key = ?";
        other.query_row(sql, [name], |row| row.get::<_, i64>(0)).unwrap() > 0
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.machine.pass(time);
    }
}

/// The methods panic if the answer is not the expected answer.
pub(crate) struct Handle(pub(crate) SqliteStore);

impl Handle {
    pub(crate) async fn ask(&self, claim: &Claim) -> Obtained {
        self.0.obtain(claim).await.unwrap()
    }

    pub(crate) async fn granted(&self, claim: &Claim) -> Grant {
        match self.ask(claim).await {
            Obtained::Granted(grant, _) => grant,
            Obtained::Held(holder) => panic!("{} is held by {holder:?}", claim.key),
        }
    }

    pub(crate) async fn refused(&self, claim: &Claim) -> Holder {
        match self.ask(claim).await {
            Obtained::Held(holder) => holder,
            Obtained::Granted(grant, _) => panic!("{grant:?} was granted"),
        }
    }

    pub(crate) async fn beat(&self, grant: &Grant, number: u64) -> Heartbeat {
        self.0.heartbeat(grant, Beat::new(number)).await.unwrap()
    }

    pub(crate) async fn release(&self, grant: &Grant) {
        self.0.release(grant, None).await.unwrap();
    }

    pub(crate) async fn holder(&self) -> Option<Holder> {
        self.0.holder(&key("job")).await.unwrap()
    }

    pub(crate) async fn attributes(&self) -> Option<Attributes> {
        Some(self.0.read(&key("job")).await.unwrap()?.attributes)
    }
}

pub(crate) fn key(name: &str) -> LeaseKey {
    name.parse().unwrap()
}

pub(crate) fn lessee(name: &str) -> Lessee {
    name.parse().unwrap()
}

pub(crate) fn claim(by: &str) -> Claim {
    Claim::new(key("job"), lessee(by), Nonce::random(), TTL)
}

pub(crate) fn attribute(name: &str, value: &str) -> Attributes {
    Attributes::from([(name.to_owned(), Value::from(value))])
}

pub(crate) const TTL: Duration = Duration::from_secs(30);
/// A microsecond less than the ttl.
pub(crate) const ALMOST_TTL: Duration = Duration::from_micros(29_999_999);
