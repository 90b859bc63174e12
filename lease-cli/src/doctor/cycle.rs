//! The checks of every store: it is reachable, allows each request, and answers in time.

use std::error::Error;
use std::time::Duration;

use futures_util::TryStreamExt;
use lease_core::store::{Beat, BootClock, Clock, Heartbeat, LockStore};
use lease_core::{Attempt, LeaseKey, LeaseOptions, Locker, StoreError, StoreErrorKind};
use lease_store::AnyStore;

use super::{Finding, Grade};

/// Opens the store at `url`, and obtains, extends, lists and releases a key there.
pub(crate) async fn examine(url: &str) -> Vec<Finding> {
    let clock = BootClock::new();
    let start = clock.now();
    let store = match lease_store::connect(url).await {
        Ok(store) => store,
        Err(error) => return vec![failed("reachable", &error)],
    };
    let taken = clock.now().since(start);
    let mut findings = vec![Finding::ok("reachable", format!("opened in {taken:.1?}"))];
    match cycle(&store).await {
        Ok(beats) => {
            findings.push(Finding::ok("rights", "obtain, extend, read and release are allowed"));
            findings.push(speed(beats));
        }
        Err(error) => findings.push(failed("rights", &error)),
    }
    let listed = store.scan(PREFIX).try_collect::<Vec<_>>().await;
    findings.push(match listed {
        Ok(_) => Finding::ok("listing", "keys can be listed"),
        Err(error) => failed("listing", &error),
    });
    findings
}

/// Obtains a key, extends it several times, and releases it. Returns how long each heartbeat took.
async fn cycle(store: &AnyStore) -> Result<Vec<Duration>, StoreError> {
    let locker = Locker::new(store.clone()).with_options(LeaseOptions::default());
    // No other process has this key.
    let key = LeaseKey::new(format!("{PREFIX}{}", locker.lessee()));
    let key = key.map_err(|error| StoreError::new(StoreErrorKind::Refused, error.to_string()))?;
    let Attempt::Obtained(lease) = locker.obtain(&key).await? else { return Ok(Vec::new()) };
    locker.holder(&key).await?;
    let (clock, mut beat, mut taken) = (BootClock::new(), Beat::GRANTED, Vec::new());
    for _number in 0..HEARTBEATS {
        beat = beat.next();
        let start = clock.now();
        if let Heartbeat::Lost(_) = store.heartbeat(lease.grant(), beat).await? {
            let text = "the store has forgotten a lease at once: another program deletes its keys";
            return Err(StoreError::new(StoreErrorKind::Corrupt, text));
        }
        taken.push(clock.now().since(start));
    }
    lease.release().await?;
    Ok(taken)
}

/// Judges how fast the store answers heartbeats.
fn speed(mut taken: Vec<Duration>) -> Finding {
    taken.sort_unstable();
    let median = taken.get(taken.len() / 2).copied().unwrap_or_default();
    let longest = taken.last().copied().unwrap_or_default();
    let found = format!("a heartbeat takes {median:.1?}, and at most {longest:.1?}");
    if median < SLOW {
        return Finding::ok("speed", found);
    }
    // A request may take a third of the ttl. A tenth leaves room for slower moments.
    let ttl = (longest * 30).as_secs() + 1;
    let remedy = format!("use a store that is nearer, or --ttl {ttl}s or more");
    Finding::bad("speed", Grade::Warning, found, remedy)
}

/// The finding of an error. The source of the error has the remedy.
fn failed(check: &'static str, error: &StoreError) -> Finding {
    let mut causes = Vec::new();
    let mut source = error.source();
    while let Some(cause) = source {
        causes.push(cause.to_string());
        source = cause.source();
    }
    let grade =
        if error.kind() == StoreErrorKind::Unsupported { Grade::Warning } else { Grade::Problem };
    Finding::bad(check, grade, error.to_string(), causes.join(": "))
}

const PREFIX: &str = "lease-doctor/";
const HEARTBEATS: usize = 9;
/// Across a continent, a heartbeat takes less.
const SLOW: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_store_gets_a_longer_ttl() {
        let fast = speed(vec![Duration::from_millis(3); 9]);
        let slow = speed(vec![Duration::from_millis(400); 9]);

        assert_eq!(fast.grade, Grade::Ok);
        assert_eq!(slow.grade, Grade::Warning);
        assert!(slow.remedy.unwrap().contains("--ttl 13s"));
    }
}
