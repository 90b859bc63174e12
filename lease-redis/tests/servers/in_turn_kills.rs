//! Processes that wait in turn are killed and cancel their waits at random moments.

use std::collections::{BTreeMap, HashMap};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use lease_core::Lease;
use lease_core::store::{BootClock, Clock, LockStore, Moment, Nonce, micros_since_1970};
use lease_test_servers::claims::soon;
use lease_test_servers::redis::RedisServer;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::batches::Monitor;
use crate::setting::{LEASE, eventually, key, locker, one, one_at, servers};

const PROCESSES: usize = 20;

const KILLS: usize = 200;

const CANCELLATIONS: usize = 200;

const TTL: Duration = Duration::from_secs(2);

/// `cargo test --release -p lease-redis --all-features --test servers -- --ignored --nocapture two_hundred_kills`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes, and its longest gap needs a machine that answers in time"]
async fn two_hundred_kills_and_cancellations_keep_the_order() {
    let Some([server]) = servers() else { return };
    let watching = Commands::watch(&server).await;
    let mut fleet = Fleet::start(&server);

    let mut kills = 0;
    while kills < KILLS || fleet.count(is_cancelled) < CANCELLATIONS {
        sleep(part_of(Duration::from_millis(400))).await;
        // Each process has obtained its connections by now, or is killed while it starts.
        fleet.replace(kills % PROCESSES).await;
        kills += 1;
    }
    let cancelled = fleet.count(is_cancelled);
    fleet.stop().await;
    server.command("SET last no-more-commands");
    let commands = soon(watching).await.unwrap();

    let holds = fleet.holds();
    let offset = micros_since_1970() - BootClock::new().now().as_nanos() / 1_000;
    let judged = commands.judge(&holds, offset);
    println!(
        "{kills} kills, {cancelled} cancellations, {} holds, {} grants to waiters in the queue",
        holds.len(),
        commands.granted.len(),
    );
    println!(
        "longest gap {:?} with {} grants to dead processes: {:.2} of its bound",
        judged.gap, judged.dead_in_gap, judged.part_of_bound
    );
    assert_eq!(judged.out_of_order, 0, "grants that are not in the order of arrival");
    assert!(holds.len() > KILLS, "{}", holds.len());
    assert!(judged.part_of_bound <= 1.1, "a gap is too long: {judged:?}");
    let store = one(&server).await;
    eventually("the key is free", async || {
        store.holder(&key()).await.unwrap().is_none().then_some(())
    })
    .await;
}

/// A random part of `length`.
fn part_of(length: Duration) -> Duration {
    let [first, ..] = Nonce::random().get().into_bytes();
    length.mul_f64(f64::from(first) / 255.0)
}

/// Processes that obtain the key again and again, and what they report.
struct Fleet {
    url: String,
    processes: Vec<Child>,
    reports: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
}

/// One lease of a process that reported it.
#[derive(Clone, Copy)]
struct Hold {
    obtained: Moment,
    /// When the release was sent. `None` if the process was killed before.
    released: Option<Moment>,
}

impl Fleet {
    fn start(server: &RedisServer) -> Self {
        let (processes, readers) = (Vec::new(), Vec::new());
        let mut fleet = Self { url: server.url(), processes, reports: Arc::default(), readers };
        for _ in 0..PROCESSES {
            let process = fleet.spawn();
            fleet.processes.push(process);
        }
        fleet
    }

    fn spawn(&mut self) -> Child {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "in_turn_kills::obtains_the_key_again_and_again", "--ignored"])
            .arg("--nocapture")
            .env(URL, &self.url)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let reports = Arc::clone(&self.reports);
        self.readers.push(tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                reports.lock().push(line);
            }
        }));
        process
    }

    /// Kills a process by SIGKILL, and starts another.
    async fn replace(&mut self, place: usize) {
        let new = self.spawn();
        let mut old = std::mem::replace(&mut self.processes[place], new);
        old.kill().await.unwrap();
    }

    async fn stop(&mut self) {
        for process in &mut self.processes {
            process.kill().await.unwrap();
        }
        for reader in self.readers.drain(..) {
            soon(reader).await.unwrap();
        }
    }

    fn count(&self, is_meant: impl Fn(&str) -> bool) -> usize {
        self.reports.lock().iter().filter(|line| is_meant(line)).count()
    }

    /// The leases that processes have reported, by their tokens.
    fn holds(&self) -> BTreeMap<u64, Hold> {
        let mut holds = BTreeMap::<u64, Hold>::new();
        for line in self.reports.lock().iter() {
            let words: Vec<_> = line.split(' ').collect();
            let number = |place: usize| words[place].parse::<u64>().unwrap();
            match words[..] {
                ["obtained", ..] => {
                    let obtained = Moment::from_nanos(number(2));
                    holds.insert(number(1), Hold { obtained, released: None });
                }
                ["released", ..] => {
                    let hold = holds.get_mut(&number(1)).unwrap();
                    hold.released = Some(Moment::from_nanos(number(2)));
                }
                _ => (),
            }
        }
        holds
    }
}

fn is_cancelled(line: &str) -> bool {
    line == "cancelled"
}

#[ignore = "the child process of another test"]
#[tokio::test]
async fn obtains_the_key_again_and_again() {
    let Ok(url) = std::env::var(URL) else { return };
    let (locker, clock, key) = (locker(one_at(url).await, TTL), BootClock::new(), key());
    loop {
        let wait = locker.wait_until_obtained(&key);
        // One in four waits ends early.
        let lease: Lease = if part_of(Duration::from_secs(1)) < Duration::from_millis(250) {
            match timeout(part_of(Duration::from_millis(200)), wait).await {
                Ok(lease) => lease.unwrap(),
                Err(_elapsed) => {
                    println!("cancelled");
                    continue;
                }
            }
        } else {
            wait.await.unwrap()
        };
        println!("obtained {} {}", lease.token(), clock.now().as_nanos());
        sleep(part_of(Duration::from_millis(20))).await;
        println!("released {} {}", lease.token(), clock.now().as_nanos());
        lease.release().await.unwrap();
    }
}

/// What the server did, in the order of its commands.
#[derive(Default)]
struct Commands {
    /// The places of nonces in the order in which they joined the queue.
    joined: HashMap<String, usize>,
    /// The nonces and tokens of the grants that were published.
    granted: Vec<(String, u64)>,
    locks: Vec<Lock>,
}

/// The time during which one nonce held the key, in microseconds since 1970.
#[derive(Debug)]
struct Lock {
    nonce: String,
    from: u64,
    /// When the key was freed, granted again, or expires.
    until: u64,
}

#[derive(Debug, Default)]
struct Judged {
    out_of_order: usize,
    gap: Duration,
    dead_in_gap: u32,
    /// The longest gap, divided by a ttl for the last holder and one for each dead waiter that was granted.
    part_of_bound: f64,
}

impl Commands {
    async fn watch(server: &RedisServer) -> JoinHandle<Self> {
        let mut monitor = Monitor::start(server).await;
        tokio::spawn(async move {
            let mut commands = Self::default();
            loop {
                let (time, command) = monitor.next_with_time().await;
                if command.contains("no-more-commands") {
                    return commands;
                }
                commands.note(time, &command);
            }
        })
    }

    fn note(&mut self, time: u64, command: &str) {
        let words: Vec<_> = command.split(' ').map(|word| word.trim_matches('"')).collect();
        match words[..] {
            ["lua", "RPUSH", _, nonce] => {
                let place = self.joined.len();
                self.joined.insert(nonce.to_owned(), place);
            }
            ["lua", "PUBLISH", channel, nonce, request, token, ..]
                if channel.contains(":grants:") && request != "0" =>
            {
                self.granted.push((nonce.to_owned(), token.parse().unwrap()));
            }
            ["lua", "SET", LEASE, text, ..] => self.held(time, text),
            // A plain claim: refused while the key is held.
            ["SET", LEASE, text, ..] if self.locks.last().is_none_or(|lock| lock.until <= time) => {
                self.held(time, text);
            }
            ["lua", "DEL", LEASE] | ["DEL", LEASE] => self.ended(time),
            _ => (),
        }
    }

    fn held(&mut self, time: u64, text: &str) {
        let nonce = &text[..32];
        let until = time + u64::try_from(TTL.as_micros()).unwrap();
        match self.locks.last_mut() {
            // A heartbeat.
            Some(lock) if lock.nonce == nonce && time < lock.until => lock.until = until,
            _ => {
                self.ended(time);
                self.locks.push(Lock { nonce: nonce.to_owned(), from: time, until });
            }
        }
    }

    fn ended(&mut self, time: u64) {
        if let Some(lock) = self.locks.last_mut() {
            lock.until = lock.until.min(time);
        }
    }

    /// `offset` is the time since 1970 at the start of the processes' clock, in microseconds.
    fn judge(&self, holds: &BTreeMap<u64, Hold>, offset: u64) -> Judged {
        let mut judged = Judged::default();
        let mut last = 0;
        for (nonce, _) in self.granted.iter().filter(|(_, token)| holds.contains_key(token)) {
            let place = self.joined[nonce];
            judged.out_of_order += usize::from(place < last);
            last = last.max(place);
        }
        let on_server = |moment: Moment| moment.as_nanos() / 1_000 + offset;
        for (former, hold) in holds.values().zip(holds.values().skip(1)) {
            let began = former.released.unwrap_or(former.obtained);
            let gap = hold.obtained.since(began);
            let (from, until) = (on_server(began), on_server(hold.obtained));
            let half = u64::try_from(TTL.as_micros() / 2).unwrap();
            // Not those that were passed on at once, as after a cancelled wait.
            let dead = self.locks.iter().filter(|lock| {
                from < lock.from && lock.until <= until && lock.until - lock.from > half
            });
            let dead = u32::try_from(dead.count()).unwrap();
            let part = gap.as_secs_f64() / (TTL * (1 + dead)).as_secs_f64();
            if part > judged.part_of_bound {
                (judged.gap, judged.dead_in_gap, judged.part_of_bound) = (gap, dead, part);
            }
        }
        judged
    }
}

const URL: &str = "LEASE_TEST_KILLED_WAITER_ON";
