//! The judge's own writes: one thread per shard writes at a fixed rate over a plain connection.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use lease_test_servers::sync::lock;

use crate::judge::ledger::{Ledger, Promotion};
use crate::judge::observations::Observations;
use crate::monotonic::Monotonic;
use crate::probe::PAUSE;
use crate::servers::plain::PlainConnection;

/// Writes to one shard until dropped, and follows the shard's master.
#[derive(Debug)]
pub(crate) struct Canary {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    shard: usize,
    master: AtomicUsize,
    stopped: AtomicBool,
    key: String,
    counters: Vec<usize>,
    seen: Arc<Mutex<Observations>>,
    ledger: Arc<Mutex<Ledger>>,
}

impl Canary {
    pub(crate) fn start(
        shard: usize,
        members: Vec<SocketAddr>,
        key: String,
        counters: Vec<usize>,
        seen: &Arc<Mutex<Observations>>,
        ledger: &Arc<Mutex<Ledger>>,
    ) -> Self {
        let (seen, ledger) = (Arc::clone(seen), Arc::clone(ledger));
        let (master, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
        let state = Arc::new(State { shard, master, stopped, key, counters, seen, ledger });
        let running = Arc::clone(&state);
        let thread = std::thread::spawn(move || running.write(&members));
        Self { state, thread: Some(thread) }
    }

    pub(crate) fn master(&self) -> usize {
        self.state.master.load(Ordering::SeqCst)
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl State {
    fn write(&self, members: &[SocketAddr]) {
        let mut plain: Vec<_> =
            members.iter().map(|address| PlainConnection::to(*address, TIMEOUT)).collect();
        let mut last: Option<Monotonic> = None;
        while !self.stopped.load(Ordering::SeqCst) {
            let began = Monotonic::now();
            let former = self.master.load(Ordering::SeqCst);
            let others = (0..members.len()).filter(|member| *member != former);
            let order = std::iter::once(former).chain(others);
            let answered = order
                .into_iter()
                .find(|member| plain.get_mut(*member).is_some_and(|plain| self.is_written(plain)));
            if let Some(master) = answered {
                let at = Monotonic::now();
                self.master.store(master, Ordering::SeqCst);
                if master != former
                    && let Some(plain) = plain.get_mut(master)
                {
                    self.note_promotion(at, plain);
                }
                let mut seen = lock(&self.seen);
                if let Some(log) = seen.shards.get_mut(self.shard) {
                    log.beats.push(at);
                    if master != former {
                        log.promoted.push(at);
                    }
                    if master != former || last.is_none_or(|last| at.since(last) > OUTAGE) {
                        log.reached.push(at);
                    }
                }
                drop(seen);
                last = Some(at);
            }
            std::thread::sleep(PAUSE.saturating_sub(Monotonic::now().since(began)));
        }
    }

    fn is_written(&self, plain: &mut PlainConnection) -> bool {
        let answer = plain.first(&format!("SET {} 1", self.key));
        // A master whose memory is full also replies.
        answer == "OK" || answer.starts_with("-OOM")
    }

    /// A promoted server has lost all grants with larger tokens than its last tokens.
    fn note_promotion(&self, at: Monotonic, plain: &mut PlainConnection) {
        for &counter in &self.counters {
            // A Cluster counts tokens per key. One logical server has one stream of tokens for all
            // keys.
            let token = plain.first(&format!("HGET lease:{{counter-{counter}}} token"));
            let known = token.parse().unwrap_or_else(|_| last_of_stream(plain));
            let mut ledger = lock(&self.ledger);
            ledger.promotions.push(Promotion { counter, at, known });
        }
    }
}

/// The last token that one logical server has granted, or 0 without a grant.
fn last_of_stream(plain: &mut PlainConnection) -> u64 {
    let script = "local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1] \
        local millis, number = string.match(last and last[1] or '0-0', '(%d+)-(%d+)') \
        return string.format('%.0f', millis * 1000 + number)";
    plain.first(&format!("EVAL \"{script}\" 1 lease:tokens")).parse().unwrap_or(0)
}

/// Afterwards the canary tries the next host.
const TIMEOUT: Duration = Duration::from_millis(250);

/// If a master is silent for longer than this, clients may have to reconnect.
const OUTAGE: Duration = Duration::from_secs(1);
