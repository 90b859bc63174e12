//! Hands a key from waiter to waiter, over a network with a round trip of 10 ms.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use lease_core::store::{BootClock, Clock, Moment};
use lease_core::{LeaseKey, Locker};
use lease_postgres::PostgresStore;
use lease_test_servers::postgres::{PATIENT, PostgresServer};
use lease_test_servers::proxy::Link;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, NoTls};

use crate::contestants::create_tables;

pub(crate) async fn measure(server: &PostgresServer, waiters: usize) {
    let near = server.address();
    let link = Link::with_latency(near, ROUND_TRIP).await.unwrap();
    let url = server.url().replace(&near.to_string(), &link.address().to_string());
    PostgresStore::builder(server.url()).create_table().await.unwrap();
    let gaps = Arc::new(Gaps::default());
    let mut tasks = JoinSet::new();
    for _ in 0..waiters {
        // Each waiter has its own connections, as in another process.
        let store = PostgresStore::builder(&url).with_connections(2).with_timeout(PATIENT);
        let locker = Locker::new(store.connect().await.unwrap());
        tasks.spawn(take_turns(locker, Arc::clone(&gaps)));
    }
    tasks.join_all().await;
    let gaps = gaps.all.lock().await.clone();
    println!("\nhand-off to one of {waiters} waiters, in round trips of {ROUND_TRIP:?}:");
    print_trips("this library", &gaps);
    print_trips("bare UPDATE with a notification", &bare(server, &url).await);
}

fn print_trips(name: &str, gaps: &[Duration]) {
    let mut trips: Vec<_> = gaps.iter().map(|gap| gap.div_duration_f64(ROUND_TRIP)).collect();
    trips.sort_by(f64::total_cmp);
    let quartile = |part: usize| trips.get(trips.len() * part / 4).unwrap();
    let [low, middle, high] = [quartile(1), quartile(2), quartile(3)];
    println!("| {name} | {middle:.2} ({low:.2} to {high:.2}) | {} times |", trips.len());
}

/// The floor: the time from an UPDATE to its notification at another connection.
async fn bare(server: &PostgresServer, url: &str) -> Vec<Duration> {
    create_tables(server, 1);
    let (sender, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let (listener, mut connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let (notices, mut notified) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            if matches!(message, Ok(AsyncMessage::Notification(_))) {
                notices.send(()).unwrap();
            }
        }
    });
    listener.batch_execute("LISTEN turns").await.unwrap();
    let (clock, mut gaps) = (BootClock::new(), Vec::new());
    for _ in 0..TURNS * 8 {
        let sent = clock.now();
        let update = "UPDATE bare SET token = token + 1 WHERE key = $1 RETURNING pg_notify('turns', '')::text";
        let answered = sender.query_typed(update, &[(&"key-0", Type::TEXT)]);
        let (answered, received) = tokio::join!(answered, async {
            notified.recv().await.unwrap();
            clock.now()
        });
        answered.unwrap();
        gaps.push(received.since(sent));
    }
    gaps
}

#[derive(Default)]
struct Gaps {
    released: Mutex<Option<Moment>>,
    all: Mutex<Vec<Duration>>,
}

async fn take_turns(locker: Locker, gaps: Arc<Gaps>) {
    let (clock, key): (_, LeaseKey) = (BootClock::new(), "turns".parse().unwrap());
    for turn in 0..TURNS {
        let lease = locker.wait_until_obtained(&key).await.unwrap();
        let now = clock.now();
        if let Some(released) = gaps.released.lock().await.take()
            && turn > 0
            && turn + 1 < TURNS
        {
            gaps.all.lock().await.push(now.since(released));
        }
        // The former holder is back in the queue by then.
        sleep(ROUND_TRIP * 4).await;
        *gaps.released.lock().await = Some(clock.now());
        lease.release().await.unwrap();
    }
}

const ROUND_TRIP: Duration = Duration::from_millis(10);
const TURNS: usize = 25;
