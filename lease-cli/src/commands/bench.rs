//! `lease bench`: measures a store.

use std::time::Duration;

use lease_core::store::{BootClock, Clock, Moment};
use lease_core::{Attempt, LeaseKey, LeaseOptions, Locker, StoreError};
use tokio::task::JoinSet;

use crate::commands::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::Record;
use crate::store;

/// Measures how many leases `tasks` tasks obtain and release per second, and how long a heartbeat takes.
pub(crate) async fn bench(context: &Context, tasks: u16, time: Duration) -> Result<Exit, Failure> {
    let store = store::open(context.url.as_deref()).await?;
    let locker = store::locker(store.clone(), LeaseOptions::default())?;
    let start = now();
    let mut running = JoinSet::new();
    for number in 0..tasks {
        let key = LeaseKey::new(format!("lease-bench/{}/{number}", std::process::id()))?;
        running.spawn(cycles(locker.clone(), key, start + time));
    }
    let mut cycles = Vec::new();
    while let Some(ended) = running.join_next().await {
        cycles.extend(ended.map_err(|error| Failure::own("a task failed", error))??);
    }
    let spent = now().since(start);
    let beats = heartbeats(&locker, &store).await?;
    let per_second =
        f64::from(u32::try_from(cycles.len()).unwrap_or(u32::MAX)) / spent.as_secs_f64();
    let rounded = (per_second * 10.0).round() / 10.0;
    let record = Record::new().with("tasks", tasks).with("leases_per_second", rounded);
    let record = with_latency(record, ["cycle_p50_ms", "cycle_p99_ms"], cycles);
    let record = with_latency(record, ["heartbeat_p50_ms", "heartbeat_p99_ms"], beats);
    context.output.list(&[record])?;
    Ok(Exit::SUCCESS)
}

/// Obtains and releases `key` until `end`. Returns how long each cycle took.
async fn cycles(locker: Locker, key: LeaseKey, end: Moment) -> Result<Vec<Duration>, StoreError> {
    let mut taken = Vec::new();
    while now() < end {
        let start = now();
        if let Attempt::Obtained(lease) = locker.obtain(&key).await? {
            lease.release().await?;
        }
        taken.push(now().since(start));
    }
    Ok(taken)
}

/// Measures single heartbeats, one after another.
async fn heartbeats(
    locker: &Locker,
    store: &dyn lease_core::store::LockStore,
) -> Result<Vec<Duration>, StoreError> {
    let key = LeaseKey::new(format!("lease-bench/{}/beat", std::process::id()));
    let Ok(key) = key else { return Ok(Vec::new()) };
    let Attempt::Obtained(lease) = locker.obtain(&key).await? else { return Ok(Vec::new()) };
    let mut taken = Vec::new();
    let mut beat = lease_core::store::Beat::GRANTED;
    for _number in 0..HEARTBEATS {
        beat = beat.next();
        let start = now();
        store.heartbeat(lease.grant(), beat).await?;
        taken.push(now().since(start));
    }
    lease.release().await?;
    Ok(taken)
}

fn with_latency(record: Record, names: [&'static str; 2], mut taken: Vec<Duration>) -> Record {
    taken.sort_unstable();
    let at = |part: usize| taken.get(taken.len() * part / 100).map(|time| millis(*time));
    let [half, most] = names;
    record.with(half, at(50)).with(most, at(99))
}

/// Milliseconds with two places.
fn millis(time: Duration) -> f64 {
    let hundredths = u32::try_from(time.as_micros() / 10).unwrap_or(u32::MAX);
    f64::from(hundredths) / 100.0
}

fn now() -> Moment {
    BootClock::new().now()
}

const HEARTBEATS: usize = 200;
