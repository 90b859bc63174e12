//! Tests of an application. The leases are in memory, and the tests control the time.
//!
//! The application comes first, without test code. The tests simulate hours in milliseconds:
//! `cargo test -p lease-examples --example unit_test`.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use lease_core::fence::{Gate, Stale};
use lease_core::{FencingToken, LeaseKey, Locker, Lost};
use lease_examples::print_line;
use lease_memory::MemoryStore;
use tokio::time::sleep;

/// All machines try to obtain the lease, and the holder writes the report.
struct NightlyReport {
    locker: Locker,
    archive: Arc<Gate<Vec<String>>>,
}

#[derive(Debug, PartialEq)]
enum Night {
    /// This machine wrote the report, or the rest of it.
    Written,
    /// Another machine had written the report before.
    WrittenBefore,
    /// The lease was lost: another machine continues the report.
    Interrupted(Lost),
}

impl NightlyReport {
    fn new(locker: Locker, archive: &Arc<Gate<Vec<String>>>) -> Self {
        Self { locker, archive: Arc::clone(archive) }
    }

    async fn run(&self) -> Result<Night, Box<dyn Error + Send + Sync>> {
        let lease = self.locker.wait_until_obtained(&report_key()?).await?;
        let night = match lease.run_until_lost(self.write(lease.token())).await {
            Ok(written) => written?,
            Err(lost) => return Ok(Night::Interrupted(lost)),
        };
        lease.release().await?;
        Ok(night)
    }

    async fn write(&self, token: FencingToken) -> Result<Night, Stale> {
        let written = self.archive.write(token, |pages| pages.len())?;
        if written == CHAPTERS.len() {
            return Ok(Night::WrittenBefore);
        }
        for chapter in CHAPTERS.iter().skip(written) {
            sleep(TIME_PER_CHAPTER).await;
            let page = format!("{chapter}, by {}", self.locker.lessee());
            self.archive.write(token, |pages| pages.push(page))?;
        }
        Ok(Night::Written)
    }
}

fn report_key() -> Result<LeaseKey, lease_core::InvalidInput> {
    "nightly-report".parse()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let archive = Arc::default();
    let report = NightlyReport::new(Locker::new(MemoryStore::new()), &archive);
    let night = report.run().await?;
    print_line(format_args!("{night:?}: {:?}", archive.read(Vec::clone)));
    print_line("tests: cargo test -p lease-examples --example unit_test");
    Ok(())
}

const CHAPTERS: [&str; 3] = ["sales", "stock", "forecast"];
const TIME_PER_CHAPTER: Duration =
    if cfg!(test) { Duration::from_mins(20) } else { Duration::from_millis(200) };

#[cfg(test)]
mod tests {
    use lease_core::store::{BootClock, Clock, LockStore};
    use lease_core::{Lessee, LossCause};
    use tokio::task::JoinSet;

    use super::*;

    /// All machines share the store.
    fn machine(name: &str, store: &MemoryStore) -> Locker {
        Locker::new(store.clone()).with_lessee(Lessee::new(name).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn crashed_machine_is_replaced_within_a_ttl() {
        let (store, archive, clock) = (MemoryStore::new(), Arc::default(), BootClock::new());
        let first = machine("first", &store);
        let second = NightlyReport::new(machine("second", &store), &archive);
        let ttl = first.options().ttl();

        let lease = first.wait_until_obtained(&report_key().unwrap()).await.unwrap();
        let page = "sales, by first".to_owned();
        archive.write(lease.token(), |pages: &mut Vec<String>| pages.push(page)).unwrap();
        let crashed = clock.now();
        lease.abandon();

        assert_eq!(second.run().await.unwrap(), Night::Written);
        let expected = ["sales, by first", "stock, by second", "forecast, by second"];
        assert_eq!(archive.read(Vec::clone), expected);
        let took = clock.now().since(crashed);
        assert!(took < 2 * TIME_PER_CHAPTER + ttl + Duration::from_secs(1), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn report_stops_when_the_lease_is_lost() {
        let (store, archive) = (MemoryStore::new(), Arc::default());
        let report = NightlyReport::new(machine("first", &store), &archive);
        let (locker, key) = (machine("operator", &store), report_key().unwrap());

        let running = tokio::spawn(async move { report.run().await });
        sleep(TIME_PER_CHAPTER * 3 / 2).await;
        let holder = locker.holder(&key).await.unwrap().unwrap();
        assert!(store.evict(&key, &holder.grant.unwrap()).await.unwrap());

        let Night::Interrupted(lost) = running.await.unwrap().unwrap() else {
            panic!("the report was finished without a lease");
        };
        assert_eq!(lost.cause, LossCause::Revoked);
        sleep(TIME_PER_CHAPTER * 3).await;
        assert_eq!(archive.read(Vec::clone), ["sales, by first"]);
    }

    #[tokio::test(start_paused = true)]
    async fn five_machines_write_one_report() {
        let (store, archive) = (MemoryStore::new(), Arc::default());

        let mut machines = JoinSet::new();
        for number in 0..5 {
            let report = NightlyReport::new(machine(&format!("{number}"), &store), &archive);
            machines.spawn(async move { report.run().await.unwrap() });
        }
        let nights = machines.join_all().await;

        let written = |night: &&Night| **night == Night::Written;
        assert_eq!(nights.iter().filter(written).count(), 1);
        assert_eq!(archive.read(Vec::len), CHAPTERS.len());
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_run_releases_the_lease_at_once() {
        let (store, archive) = (MemoryStore::new(), Arc::default());
        let locker = machine("first", &store);
        let report = NightlyReport::new(locker.clone(), &archive);

        let running = tokio::time::timeout(TIME_PER_CHAPTER / 2, report.run()).await;
        assert!(running.is_err(), "the run ended before it was cancelled");
        locker.close().await;

        assert_eq!(locker.holder(&report_key().unwrap()).await.unwrap(), None);
    }
}
