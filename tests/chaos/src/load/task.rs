//! One task of a load: claims a random key, holds the key for a short time, and ends the lease.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use lease_core::{Attempt, Lease, LeaseKey, Locker, Released};
use tokio::select;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::chance::Chance;
use crate::monotonic::Monotonic;
use crate::worker::message::Message;
use crate::worker::worker_io::WorkerIo;

pub(crate) struct LoadTask {
    pub(crate) keys: Arc<[LeaseKey]>,
    pub(crate) locker: Locker,
    pub(crate) io: Arc<WorkerIo>,
    pub(crate) chance: Chance,
    pub(crate) ttl: Duration,
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Obtain,
    Cancelled,
    Wait,
}

#[derive(Debug, Clone, Copy)]
enum Ending {
    Release,
    Drop,
    Abandon,
}

impl LoadTask {
    pub(crate) async fn run(mut self) {
        let keys = Arc::clone(&self.keys);
        loop {
            let number = self.chance.below(keys.len());
            let Some(key) = keys.get(number) else { return };
            let asked = Monotonic::now();
            if let Some(lease) = self.claim(number, key, asked).await {
                self.hold(number, lease, asked).await;
            }
        }
    }

    async fn claim(&mut self, number: usize, key: &LeaseKey, asked: Monotonic) -> Option<Lease> {
        let way = self.chance.weighted(&WAYS).unwrap_or(Way::Obtain);
        let answer = match way {
            Way::Obtain => Ok(self.locker.obtain(key).await),
            Way::Cancelled => {
                let turns = self.chance.below(MOST_TURNS);
                select! {
                    // Polls the claim first, since a claim that has its answer is not cancelled.
                    biased;
                    answer = self.locker.obtain(key) => Ok(answer),
                    () = pass(turns) => Err("claim cancelled"),
                }
            }
            Way::Wait => {
                let limit = self.chance.up_to(self.ttl);
                let wait = timeout(limit, self.locker.wait_until_obtained(key)).await;
                let wait = wait.map(|answer| answer.map(Attempt::Obtained));
                wait.map_err(|_elapsed| "wait dropped at its time limit")
            }
        };
        match answer {
            Ok(Ok(Attempt::Obtained(lease))) => return Some(lease),
            Ok(Ok(Attempt::Held(_))) => self.count("claim refused: held"),
            Ok(Err(error)) => {
                self.report(number, asked, &error);
                // Without a pause, the task would claim continuously while the server is
                // unreachable.
                sleep(self.chance.up_to(PAUSE)).await;
            }
            Err(dropped) => self.count(dropped),
        }
        None
    }

    fn report(&self, number: usize, asked: Monotonic, error: &(dyn Error + 'static)) {
        let mut source = Some(error);
        while let Some(error) = source {
            let text = error.to_string();
            if text.contains("WRONGTYPE") {
                let (counter, at, error) = (number, Monotonic::now(), text.replace('\n', " "));
                return self.io.send(&Message::WrongType { counter, asked, at, error });
            }
            source = error.source();
        }
        self.count("claim failed");
    }

    async fn hold(&mut self, counter: usize, lease: Lease, asked: Monotonic) {
        let token = lease.token().get();
        if !lease.is_held() {
            return self.io.send(&Message::TooLate { counter, token, asked });
        }
        let (held, by) = (Monotonic::now(), "claim".to_owned());
        self.io.send(&Message::Obtained { counter, token, asked, held, by });

        // A few tenures are so long that they need heartbeats.
        let longest = if self.chance.one_in(LONG_TENURES) { self.ttl * 3 / 2 } else { SHORT };
        let mut left = self.chance.up_to(longest);
        loop {
            let step = left.min(GLANCE);
            sleep(step).await;
            left -= step;
            let at = Monotonic::now();
            if !lease.is_held() {
                break;
            }
            self.io.send(&Message::Held { counter, token, at });
            if left.is_zero() {
                break;
            }
        }
        let ending = self.chance.weighted(&ENDINGS).unwrap_or(Ending::Release);
        let at = Monotonic::now();
        let how = end(lease, ending).await;
        self.io.send(&Message::Ended { counter, token, at, how });
    }

    fn count(&self, what: &str) {
        self.io.send(&Message::Counted { what: what.to_owned() });
    }
}

async fn pass(turns: usize) {
    for _ in 0..turns {
        yield_now().await;
    }
}

async fn end(lease: Lease, ending: Ending) -> String {
    match ending {
        Ending::Drop => {
            drop(lease);
            "dropped".to_owned()
        }
        Ending::Abandon => {
            lease.abandon();
            "abandoned".to_owned()
        }
        Ending::Release => match lease.release().await {
            Ok(Released::Freed) => "released".to_owned(),
            Ok(Released::AlreadyLost(cause)) => format!("lost: {cause}"),
            Err(_unknown) => "released, without an answer".to_owned(),
        },
    }
}

const WAYS: [(u32, Way); 3] = [(7, Way::Obtain), (1, Way::Cancelled), (2, Way::Wait)];

const ENDINGS: [(u32, Ending); 3] =
    [(70, Ending::Release), (28, Ending::Drop), (2, Ending::Abandon)];

/// A cancelled claim is dropped after fewer turns of the runtime. A batch is written after two
/// turns.
const MOST_TURNS: usize = 16;

const PAUSE: Duration = Duration::from_millis(20);

/// On average, one tenure of this many may last longer than a ttl.
const LONG_TENURES: u32 = 200;

const SHORT: Duration = Duration::from_millis(10);

const GLANCE: Duration = Duration::from_millis(50);
