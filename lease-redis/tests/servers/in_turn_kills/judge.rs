//! Checks the commands of the server: the order of grants, and the gaps between holders.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use lease_test_servers::redis::RedisServer;
use tokio::task::JoinHandle;

use super::TTL;
use super::fleet::{Fleet, Hold};
use crate::batches::Monitor;
use crate::setting::LEASE;

#[derive(Default)]
pub(super) struct Commands {
    joined: HashMap<String, usize>,
    pub(super) granted: Vec<(String, u64)>,
    locks: Vec<Lock>,
    lines: Vec<(u64, String)>,
}

/// The time during which one nonce held the key, in microseconds since 1970.
#[derive(Debug)]
struct Lock {
    nonce: String,
    from: u64,
    until: u64,
}

/// The gap is the longest gap in relation to its bound.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) out_of_order: usize,
    pub(super) gap: Duration,
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) dead_in_gap: u32,
    /// The bound is one ttl, plus one ttl for each dead waiter to which the key was granted.
    pub(super) part_of_bound: f64,
}

impl Commands {
    pub(super) async fn watch(server: &RedisServer) -> JoinHandle<Self> {
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

    pub(super) fn note(&mut self, time: u64, command: &str) {
        self.lines.push((time, command.to_owned()));
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
            // The server refuses a plain claim while the key is held.
            ["SET", LEASE, text, ..] if self.locks.last().is_none_or(|lock| lock.until <= time) => {
                self.held(time, text);
            }
            ["lua", "DEL", ref keys @ ..] | ["DEL", ref keys @ ..] if keys.contains(&LEASE) => {
                self.ended(time);
            }
            _ => (),
        }
    }

    fn held(&mut self, time: u64, text: &str) {
        let nonce = &text[..32];
        let until = time + micros(TTL);
        match self.locks.last_mut() {
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

    pub(super) fn judge(&self, holds: &BTreeMap<u64, Hold>) -> Judged {
        let mut judged = Judged::default();
        let mut last = 0;
        for (nonce, _) in self.granted.iter().filter(|(_, token)| holds.contains_key(token)) {
            let place = self.joined[nonce];
            judged.out_of_order += usize::from(place < last);
            last = last.max(place);
        }
        for (former, hold) in holds.values().zip(holds.values().skip(1)) {
            let (from, until) = (former.released.unwrap_or(former.obtained), hold.obtained);
            let dead = self.granted_to_dead(from, until);
            let gap = Duration::from_micros(until.saturating_sub(from));
            let part_of_bound = gap.as_secs_f64() / (TTL * (1 + dead)).as_secs_f64();
            if part_of_bound > judged.part_of_bound {
                let out_of_order = judged.out_of_order;
                judged =
                    Judged { out_of_order, gap, from, until, dead_in_gap: dead, part_of_bound };
            }
        }
        judged
    }

    /// Counts grants that expired because no client used them.
    fn granted_to_dead(&self, from: u64, until: u64) -> u32 {
        // A lock that was freed at once does not count. A cancelled wait frees a lock at once.
        let dead = self.locks.iter().filter(|lock| {
            from < lock.from && lock.until <= until && lock.until - lock.from > micros(TTL / 2)
        });
        u32::try_from(dead.count()).unwrap()
    }

    /// From a ttl before a gap until half a second after the gap. Times count from the start of the
    /// gap.
    pub(super) fn trace(&self, fleet: &Fleet, from: u64, until: u64) -> String {
        let (start, end) = (from - micros(TTL), until + 500_000);
        let mut lines = fleet.reports(start, end);
        let commands = self.lines.iter().filter(|(time, _)| (start..end).contains(time));
        lines.extend(commands.cloned());
        lines.sort();
        let start_of_gap = i64::try_from(from).unwrap();
        let offset = |time: u64| i64::try_from(time).unwrap() - start_of_gap;
        let lines: Vec<_> =
            lines.iter().map(|(time, line)| format!("{:+} us: {line}", offset(*time))).collect();
        lines.join("\n")
    }
}

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap()
}
