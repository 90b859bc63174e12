//! Measures the start-up time of a daemon and its memory. Prints the figures and checks nothing.
//!
//! `cargo test --release -p lease-multilang --all-features --test daemon -- --ignored --nocapture --test-threads 1 measured`

use std::time::Duration;

use tokio::time::sleep;

use crate::notes::Notes;
use crate::place::{Place, script};

fn trivial() -> String {
    format!("sh {}", script("trivial.sh"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures, on a machine that has nothing else to do"]
async fn measured_time_from_the_start_to_the_first_record() {
    for settle in [10, 1000] {
        let place = Place::of_shards(1, trivial()).await;
        let place = place.with(&format!("settleMillis = {settle}"));
        let place = place.with_variable("RUST_LOG", "info");
        let mut times = Vec::new();
        // The first run creates the table, so it does not count.
        for run in 0..6 {
            let producer = place.stream.produce();
            producer.has_put_more(1).await;
            producer.end().await;
            let begun = millis();
            let daemon = place.start("one");
            let since = |notes: &Notes, event| {
                let times = notes.of(event).into_iter().map(|note| note.time() - begun);
                times.filter(|time| *time >= 0).min()
            };
            let has_arrived = |notes: &Notes| since(notes, "record").is_some();
            let notes = place.until("a record arrives", &[&daemon], has_arrived).await;
            if run > 0 {
                times.push((since(&notes, "started").unwrap(), since(&notes, "record").unwrap()));
            }
            daemon.stop().await;
        }
        times.sort_unstable();
        println!("settleMillis {settle}: child runs, first record, after ms: {times:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures, on a machine that has nothing else to do"]
async fn measured_memory_with_a_hundred_idle_shards() {
    let place = Place::of_shards(100, trivial()).await.with_variable("RUST_LOG", "info");
    let daemon = place.start("one");
    place.until("all shards have a child", &[&daemon], |notes| notes.readers().len() == 100).await;
    for seconds in [0, 10, 20] {
        println!("after {seconds} s: {} kB, at most {} kB", daemon.memory(), daemon.most_memory());
        sleep(Duration::from_secs(10)).await;
    }
    daemon.stop().await;
}

#[expect(clippy::disallowed_methods, reason = "compared with the times that children record")]
fn millis() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}
