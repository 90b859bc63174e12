//! `Faulty` injects faults into lists.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use futures_util::StreamExt;
use lease_core::Attributes;
use lease_core::conformance::{Call, Fault, Faulty};
use lease_core::store::LeaseTable;
use lease_memory::MemoryStore;
use tokio::time::{Instant, timeout};

async fn table() -> Faulty<MemoryStore> {
    let table = Faulty::new(MemoryStore::new());
    for number in 0..4 {
        let key = format!("row/{number}").parse().unwrap();
        assert!(table.create(&key, &Attributes::new()).await.unwrap());
    }
    table
}

async fn listed(table: &Faulty<MemoryStore>) -> (usize, bool) {
    let listed: Vec<_> = table.list("row/").collect().await;
    let records = listed.iter().filter(|record| record.is_ok()).count();
    (records, records == listed.len())
}

#[tokio::test(start_paused = true)]
async fn faulty_list_fails_ends_early_or_hangs_as_configured() {
    let table = table().await;
    let hour = Duration::from_secs(3600);

    assert_eq!(listed(&table).await, (4, true));
    table.next(Call::Read, Fault::Fail);
    assert_eq!(listed(&table).await, (0, false));
    table.next(Call::Read, Fault::LoseReply);
    assert_eq!(listed(&table).await, (2, false));
    table.next(Call::Read, Fault::Double(Duration::from_millis(1)));
    assert_eq!(listed(&table).await, (4, true));
    for fault in [Fault::Hang, Fault::HangReply] {
        table.next(Call::Read, fault);
        assert!(timeout(hour, listed(&table)).await.is_err(), "{fault:?}");
    }
    assert_eq!(listed(&table).await, (4, true));
    assert_eq!(table.calls(Call::Read), 7);
}

#[tokio::test(start_paused = true)]
async fn list_has_latency_of_one_request() {
    let latency = Duration::from_millis(30);
    let table = table().await.with_latency(latency);
    #[expect(clippy::disallowed_methods, reason = "no lease depends on it")]
    let begun = Instant::now();

    assert_eq!(listed(&table).await, (4, true));

    assert_eq!(begun.elapsed(), latency);
}
