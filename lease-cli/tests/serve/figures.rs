//! Measures the page with many rows: `cargo test --release -p lease-cli --all-features --test serve -- --ignored
//! --nocapture measured`.

use std::time::Duration;

use futures_util::StreamExt;
use lease_core::{Lease, Locker};

use crate::browser::Browser;
use crate::site::Site;

const LEASES: usize = 10_000;
const SHARDS: usize = 1000;
const UPDATES: u32 = 20;

fn obtain_all(site: &Site, locker: &Locker, keys: impl Iterator<Item = String>) -> Vec<Lease> {
    let obtain = |key: String| async move {
        locker.obtain(&key.parse().unwrap()).await.unwrap().into_lease().unwrap()
    };
    let leases = futures_util::stream::iter(keys).map(obtain).buffer_unordered(64).collect();
    site.runtime.block_on(leases)
}

/// Counts the updates, and waits for them.
fn measure_updates(browser: &mut Browser, change: &mut dyn FnMut()) -> (f64, f64) {
    browser.value(
        "window.updates = 0;
        window.rowsChanged = 0;
        if (!window.parse) {
            window.parse = JSON.parse;
            JSON.parse = (text) => {
                const value = window.parse(text);
                if (value.rows) { window.updates += 1; window.rowsChanged += value.rows.length + value.gone.length; }
                return value;
            };
        }",
    );
    let before = browser.busy();
    for _ in 0..UPDATES {
        let former = browser.value("window.updates");
        change();
        // One read may have several changes.
        browser.wait(&format!("window.updates > {former}"));
    }
    let (busy, updates) = (browser.busy() - before, browser.value("window.updates"));
    let rows = browser.value("window.rowsChanged");
    let updates = updates.as_f64().unwrap();
    (busy / updates, rows.as_f64().unwrap() / updates)
}

fn opened(site: &Site, view: &str, count: usize) -> Option<Browser> {
    let mut browser = Browser::open(&format!("{}#view={view}", site.url))?;
    browser.resize(1280, 900);
    browser.wait(&format!("document.getElementById('count').textContent === '{count}'"));
    Some(browser)
}

/// The first paint, and when all rows were there, in milliseconds after the start of the navigation.
fn print_paint(browser: &mut Browser, name: &str) {
    let paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime";
    let rows = "performance.getEntriesByName('rows')[0].startTime";
    let [paint, rows] = [paint, rows].map(|script| browser.value(script).as_f64().unwrap());
    println!("{name}: first paint after {paint:.0} ms, rows after {rows:.0} ms");
}

/// Returns false without Chromium.
fn measure_leases(site: &Site) -> bool {
    let locker = site.locker(Duration::from_secs(30));
    let keys = (0..LEASES).map(|number| format!("team-{}/job-{number:05}", number % 50));
    let mut leases = obtain_all(site, &locker, keys);
    let Some(mut browser) = opened(site, "leases", LEASES) else { return false };
    print_paint(&mut browser, "leases");
    let (busy, rows) = measure_updates(&mut browser, &mut || {
        let lease = leases.pop().unwrap();
        let key = lease.key().clone();
        site.runtime.block_on(lease.release()).unwrap();
        leases.insert(0, site.obtain(&locker, key.as_str()));
    });
    println!("leases: {busy:.1} ms of the main thread per update of {rows:.0} rows");
    true
}

#[cfg(feature = "redis")]
#[test]
#[ignore = "a measurement"]
fn measured_with_many_leases_on_redis() {
    let server = lease_test_servers::redis::RedisServer::start();

    measure_leases(&Site::on_store(&server.url()));
}

#[test]
#[ignore = "a measurement"]
fn measured_with_many_leases_and_shards() {
    let site = Site::start(&["--application", "orders"]);
    let table = site.store().table().unwrap();
    if !measure_leases(&site) {
        return;
    }

    for number in 0..SHARDS {
        site.add_shard(&*table, &format!("shardId-{number:012}"), &[]);
    }
    let workers: Vec<_> = (0..20)
        .map(|worker| {
            site.locker(Duration::from_secs(300))
                .with_lessee(format!("worker-{worker:02}").parse().unwrap())
        })
        .collect();
    let key = |number: usize| format!("orders/shards/shardId-{number:012}");
    let mut held: Vec<_> = workers
        .iter()
        .enumerate()
        .flat_map(|(at, worker)| {
            obtain_all(&site, worker, (0..SHARDS).filter(|number| number % 20 == at).map(key))
        })
        .collect();
    let Some(mut browser) = opened(&site, "shards", SHARDS) else { return };
    print_paint(&mut browser, "shards");
    let mut moved = 0;
    let (busy, rows) = measure_updates(&mut browser, &mut || {
        let lease = held.remove(0);
        let key = lease.key().clone();
        moved += 1;
        site.runtime.block_on(lease.release()).unwrap();
        held.push(site.obtain(&workers[1 + moved % 19], key.as_str()));
    });
    println!("shards: {busy:.1} ms of the main thread per update of {rows:.0} rows");
}
