//! The judge's own writes: one thread for each shard, over a plain connection, at a fixed rate.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::ledger::{Ledger, Promotion};
use crate::observations::Observations;
use crate::plain::Plain;
use crate::probe::PAUSE;
use crate::stamp::Stamp;

/// Writes to one shard until it is dropped, and follows its master.
#[derive(Debug)]
pub(crate) struct Canary {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    shard: usize,
    /// The member that answered last.
    master: AtomicUsize,
    stopped: AtomicBool,
    key: String,
    /// The counters whose keys are on this shard.
    counters: Vec<usize>,
    seen: Arc<Mutex<Observations>>,
    ledger: Arc<Mutex<Ledger>>,
}

impl Canary {
    /// Writes `key` on whichever of `members` is the master, the first one to begin with.
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

    /// The place of the master among the members.
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
            members.iter().map(|address| Plain::to(*address, TIMEOUT)).collect();
        let mut last: Option<Stamp> = None;
        while !self.stopped.load(Ordering::SeqCst) {
            let began = Stamp::now();
            let former = self.master.load(Ordering::SeqCst);
            let others = (0..members.len()).filter(|member| *member != former);
            let order = std::iter::once(former).chain(others);
            let answered = order
                .into_iter()
                .find(|member| plain.get_mut(*member).is_some_and(|plain| self.is_written(plain)));
            if let Some(master) = answered {
                let at = Stamp::now();
                self.master.store(master, Ordering::SeqCst);
                if master != former
                    && let Some(plain) = plain.get_mut(master)
                {
                    self.note_promotion(at, plain);
                }
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
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
            std::thread::sleep(PAUSE.saturating_sub(Stamp::now().since(began)));
        }
    }

    fn is_written(&self, plain: &mut Plain) -> bool {
        let answer = plain.first(&format!("SET {} 1", self.key));
        // A server whose memory is full is a master that answers.
        answer == "OK" || answer.starts_with("-OOM")
    }

    /// Notes which tokens a promoted server knows: what it does not know was lost.
    fn note_promotion(&self, at: Stamp, plain: &mut Plain) {
        for &counter in &self.counters {
            let token = plain.first(&format!("HGET lease:{{counter-{counter}}} token"));
            let known = token.parse().unwrap_or(0);
            let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
            ledger.promotions.push(Promotion { counter, at, known });
        }
    }
}

/// A host that does not answer a write within this long is passed over.
const TIMEOUT: Duration = Duration::from_millis(250);

/// A master that was silent for longer has to be reached again: by whoever uses it, too.
const OUTAGE: Duration = Duration::from_secs(1);
