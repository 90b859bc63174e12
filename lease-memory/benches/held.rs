//! Measures 100,000 held leases: the locker's memory per lease, and whether heartbeats are
//! punctual.
//!
//! A counting allocator measures all claims directly on a store, and then all leases of a locker. The
//! difference is the locker's part. The texts of the keys are shared, and are not counted.
#![expect(clippy::unwrap_used, reason = "a bench may fail")]
#![expect(clippy::print_stdout, reason = "the output of the bench")]

use std::alloc::System;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use lease_core::store::{Claim, LockStore, Nonce};
use lease_core::{LeaseKey, LeaseOptions, Lessee, Locker, LossCause, Metrics};
use lease_memory::MemoryStore;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use uuid::Uuid;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[tokio::main]
async fn main() -> ExitCode {
    let keys: Vec<LeaseKey> =
        (0..LEASES).map(|number| format!("orders/{number:06}").parse().unwrap()).collect();
    let store_alone = bytes_of_claims(&keys).await;

    let options = LeaseOptions::new(TTL).unwrap();
    let period = options.heartbeat_period();
    let heard = Arc::new(Heard::new(period));
    let counted: Arc<dyn Metrics> = Arc::clone(&heard) as _;
    let locker = Locker::new(MemoryStore::new()).with_options(options).with_metrics(counted);

    let before = bytes();
    let mut leases = Vec::with_capacity(LEASES);
    for key in &keys {
        leases.push(locker.obtain(key).await.unwrap().into_lease().unwrap());
    }
    let obtained = bytes() - before - store_alone;

    let cpu_before = cpu();
    tokio::time::sleep(period * PERIODS).await;
    let cpu = cpu().saturating_sub(cpu_before);
    let kept = bytes() - before - store_alone;
    let held = leases.iter().filter(|lease| lease.is_held()).count();

    let heartbeats = heard.heartbeats.load(Relaxed);
    let late = heard.late.load(Relaxed);
    let failed = heard.failed.load(Relaxed);
    let lost = heard.lost.load(Relaxed);
    let longest_interval = Duration::from_micros(heard.longest_interval_us.load(Relaxed));
    let least_margin = Duration::from_micros(heard.least_margin_us.load(Relaxed));
    println!("leases held              {held} of {LEASES}");
    println!("ttl, heartbeat period    {TTL:?}, {period:?}");
    println!("store's own record       {} bytes per lease", store_alone / LEASES);
    println!("locker, once obtained    {} bytes per lease", obtained / LEASES);
    println!("locker, {PERIODS} periods later  {} bytes per lease", kept / LEASES);
    println!("heartbeats               {heartbeats} in {:?}", period * PERIODS);
    println!("longest between two      {longest_interval:?}");
    println!("least margin left        {least_margin:?} of {TTL:?}");
    println!("late, failed, lost       {late}, {failed}, {lost}");
    println!("processor time           {cpu:?} in {:?}", period * PERIODS);

    let on_time = held == LEASES && late + failed + lost == 0;
    if on_time && obtained.max(kept) / LEASES <= MOST_BYTES {
        ExitCode::SUCCESS
    } else {
        println!("FAILED: the aim is at most {MOST_BYTES} bytes per lease, and no late heartbeat");
        ExitCode::FAILURE
    }
}

async fn bytes_of_claims(keys: &[LeaseKey]) -> usize {
    let lessee = Lessee::new("holder").unwrap();
    let before = bytes();
    let store = MemoryStore::new();
    for (number, key) in (0..).zip(keys) {
        let nonce = Nonce::new(Uuid::from_u128(number));
        let claim = Claim::new(key.clone(), lessee.clone(), nonce, Duration::from_secs(60));
        drop(store.obtain(&claim).await.unwrap());
    }
    bytes() - before
}

#[derive(Debug)]
struct Heard {
    period: Duration,
    longest_interval_us: AtomicU64,
    least_margin_us: AtomicU64,
    heartbeats: AtomicU64,
    late: AtomicU64,
    failed: AtomicU64,
    lost: AtomicU64,
}

impl Heard {
    fn new(period: Duration) -> Self {
        Self {
            period,
            longest_interval_us: AtomicU64::new(0),
            least_margin_us: AtomicU64::new(u64::MAX),
            heartbeats: AtomicU64::new(0),
            late: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }
}

impl Metrics for Heard {
    fn heartbeat(&self, _key: &LeaseKey, latency: Duration, margin: Duration, _trusted: Duration) {
        // `margin` is the time from the answer to the old deadline. The previous heartbeat had set
        // this deadline: a ttl after its send, less 1 % for clocks and 2 ms for timers.
        let given = TTL.mul_f64(0.99).saturating_sub(Duration::from_millis(2));
        let interval = given.saturating_sub(margin + latency);
        self.longest_interval_us.fetch_max(micros(interval), Relaxed);
        self.least_margin_us.fetch_min(micros(margin), Relaxed);
        self.heartbeats.fetch_add(1, Relaxed);
        // The scheduler may delay a heartbeat by a hundredth of a period.
        if interval > self.period + self.period / 100 {
            self.late.fetch_add(1, Relaxed);
        }
    }

    fn heartbeat_failed(&self, _key: &LeaseKey, _margin: Duration) {
        self.failed.fetch_add(1, Relaxed);
    }

    fn lost(&self, _key: &LeaseKey, _held: Duration, _cause: LossCause) {
        self.lost.fetch_add(1, Relaxed);
    }
}

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

fn bytes() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Returns zero on systems other than Linux.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // proc(5): utime and stime are fields 14 and 15, in hundredths of a second. The second field is a name
    // in brackets, which may contain spaces.
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = after_name.split(' ').skip(11).take(2);
    let hundredths: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(hundredths * 10)
}

const LEASES: usize = 100_000;
const TTL: Duration = Duration::from_secs(6);
const PERIODS: u32 = 5;
const MOST_BYTES: usize = 1536;
