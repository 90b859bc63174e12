//! Compares the store in memory with a mutex.

use std::sync::Arc;

use futures_util::future::join_all;
use lease_core::store::{BootClock, Claim, Clock, LockStore, Nonce, Obtained};
use lease_core::{LeaseKey, Lessee};
use lease_memory::MemoryStore;
use tokio::sync::Mutex;

use crate::TTL;
use crate::race::Race;
use crate::report::{Better, Table};

pub(crate) async fn beside_a_mutex(rounds: usize) -> Vec<Table> {
    let mut tables = Vec::new();
    for tasks in [1_u32, 64] {
        let mut race = Race::default();
        let mutex = Arc::new(Mutex::new(0_u64));
        race.enter("tokio's Mutex", move || {
            let mutex = Arc::clone(&mutex);
            nanoseconds(tasks, move || {
                let mutex = Arc::clone(&mutex);
                async move { *mutex.lock().await += 1 }
            })
        });
        let store = MemoryStore::new();
        race.enter("this library's store", move || {
            let store = store.clone();
            nanoseconds(tasks, move || {
                let store = store.clone();
                async move {
                    let lessee = Lessee::new("bench").unwrap();
                    // Tries again while another task holds the key. A mutex waits by itself.
                    loop {
                        let key = LeaseKey::new("key").unwrap();
                        let claim = Claim::new(key, lessee.clone(), Nonce::random(), TTL);
                        if let Obtained::Granted(grant, _) = store.obtain(&claim).await.unwrap() {
                            store.release(&grant, None).await.unwrap();
                            return;
                        }
                        tokio::task::yield_now().await;
                    }
                }
            })
        });
        let of = if tasks == 1 { "1 task" } else { "64 tasks" };
        tables.push(Table {
            name: format!("memory-{tasks}"),
            title: format!("One key in memory is taken and freed by {of}"),
            unit: "ns",
            better: Better::Less,
            scores: race.run(rounds).await,
        });
    }
    tables
}

async fn nanoseconds<F>(tasks: u32, work: impl Fn() -> F + Clone + Send + 'static) -> Option<f64>
where
    F: Future<Output = ()> + Send,
{
    const CYCLES: u32 = 200_000;
    let clock = BootClock::new();
    let start = clock.now();
    let all = (0..tasks).map(|_| {
        let work = work.clone();
        tokio::spawn(async move {
            for _ in 0..CYCLES / tasks {
                work().await;
            }
        })
    });
    join_all(all).await;
    Some(clock.now().since(start).as_secs_f64() * 1e9 / f64::from(CYCLES))
}
