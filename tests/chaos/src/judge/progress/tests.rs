//! Tests each rule of progress by a healthy run and a small change.

use super::*;
use crate::judge::observations::{CallFailure, Loss, Slice};

const SECOND: Duration = Duration::from_secs(1);

/// 60 s on one shard: the judge writes and the probe runs throughout, and each call is granted once
/// a second.
struct Run {
    seen: Observations,
    start: Monotonic,
}

impl Run {
    fn healthy() -> Self {
        let start = Monotonic::now();
        let mut seen = Observations::new(1);
        seen.shards[0].beats = every(start, Duration::from_millis(50), 0..60);
        let mut probe = ProbeLog { ticks: every(start, PERIOD, 0..60), ..ProbeLog::default() };
        for call in [Call::Obtain, Call::Wait] {
            probe.grants.insert((0, call), every(start, SECOND, 0..60));
        }
        seen.probes.push(probe);
        Self { seen, start }
    }

    fn at(&self, seconds: u32) -> Monotonic {
        self.start + SECOND * seconds
    }

    fn without_grants(mut self, from: u32, until: u32) -> Self {
        let gap = self.at(from)..self.at(until);
        for grants in self.seen.probes[0].grants.values_mut() {
            grants.retain(|at| !gap.contains(at));
        }
        self
    }

    fn without_writes(mut self, from: u32, until: u32) -> Self {
        let gap = self.at(from)..self.at(until);
        self.seen.shards[0].beats.retain(|at| !gap.contains(at));
        self
    }

    fn without_ticks(mut self, from: u32, until: u32) -> Self {
        let gap = self.at(from)..self.at(until);
        self.seen.probes[0].ticks.retain(|at| !gap.contains(at));
        self
    }

    fn reached(mut self, at: u32) -> Self {
        let at = self.at(at);
        self.seen.shards[0].reached.push(at);
        self.seen.shards[0].promoted.push(at);
        self
    }

    fn episode(&self, fault: SingleFault, from: u32, settled: u32) -> Episode {
        let (from, settled) = (self.at(from), self.at(settled));
        let (to, hit) = (String::new(), [].into());
        Episode { fault, to, from, settled, hit, full: None, slices: Vec::new() }
    }

    fn with(mut self, episode: Episode) -> Self {
        self.seen.episodes.push(episode);
        self
    }

    fn lost(mut self, at: u32) -> Self {
        let (at, why) = (self.at(at), "no heartbeat succeeded in time".to_owned());
        self.seen.probes[0].losses.push(Loss { shard: 0, at, why });
        self
    }

    fn newcomer(mut self, from: u32, granted: Option<u32>, until: u32) -> Self {
        let mut probe = ProbeLog { is_newcomer: true, ..ProbeLog::default() };
        probe.ticks = every(self.start, PERIOD, from..until);
        if let Some(granted) = granted {
            for call in [Call::Obtain, Call::Wait] {
                probe.grants.insert((0, call), every(self.start, SECOND, granted..until));
            }
        }
        self.seen.probes.push(probe);
        self
    }

    fn with_full_memory(self, why: &str) -> Self {
        let mut episode = self.episode(SingleFault::FillMemory, 10, 30);
        episode.full = Some((0, self.at(10), self.at(20)));
        let (shard, call, at, why) = (0, Call::Obtain, self.at(15), why.to_owned());
        let mut run = self.with(episode);
        run.seen.probes[0].failures.push(CallFailure { shard, call, at, why });
        run
    }

    /// Adds five slices of ten seconds. While a minority hangs, a key is granted every `pause`.
    fn with_hung_minority(self, pause: Duration) -> Self {
        let mut episode = self.episode(SingleFault::HangMinority, 5, 55);
        let slice = |number: u32| {
            let from = self.at(5 + number * 10);
            Slice { hung: number % 2 == 1, from, until: from + SECOND * 10 }
        };
        episode.slices = (0..5).map(slice).collect();
        let mut contention = ProbeLog { contends: true, ..ProbeLog::default() };
        contention.ticks = every(self.start, PERIOD, 0..60);
        let mut grants = Vec::new();
        for slice in &episode.slices {
            let pause = if slice.hung { pause } else { Duration::from_millis(20) };
            let count = slice.until.since(slice.from).as_millis() / pause.as_millis();
            grants.extend((0..u32::try_from(count).unwrap()).map(|one| slice.from + pause * one));
        }
        contention.grants.insert((0, Call::Contend), grants);
        let mut run = self.with(episode);
        run.seen.probes.push(contention);
        run
    }

    fn broken(&self) -> Vec<ProgressRule> {
        judge_progress(&self.seen).breaches.iter().map(|breach| breach.rule).collect()
    }
}

const PERIOD: Duration = Duration::from_millis(50);

fn every(start: Monotonic, period: Duration, seconds: std::ops::Range<u32>) -> Vec<Monotonic> {
    let count = u32::try_from(SECOND.as_nanos() / period.as_nanos()).unwrap();
    (seconds.start * count..seconds.end * count).map(|beat| start + period * beat).collect()
}

#[test]
fn healthy_run_breaks_no_rule() {
    let progress = judge_progress(&Run::healthy().seen);

    assert_eq!(progress.breaches, []);
    assert!(progress.least_counted.unwrap() > 0.99);
}

#[test]
fn six_seconds_without_a_grant_of_one_call_are_found() {
    let run = Run::healthy().without_grants(20, 26);

    assert_eq!(run.broken(), [ProgressRule::NoGrant; 2]);
    assert_eq!(Run::healthy().without_grants(20, 24).broken(), []);
}

#[test]
fn time_without_processor_does_not_count() {
    let store_stood = Run::healthy().without_grants(20, 40).without_writes(20, 39);
    let probe_stood = Run::healthy().without_grants(20, 40).without_ticks(20, 39);

    assert_eq!(store_stood.broken(), []);
    assert_eq!(probe_stood.broken(), []);
}

#[test]
fn bound_counts_from_the_promoted_master() {
    let outage = |granted| {
        let run = Run::healthy().without_grants(20, granted).without_writes(20, 30).reached(30);
        let mut episode = run.episode(SingleFault::KillMaster, 20, 50);
        episode.hit = [0].into();
        run.with(episode)
    };

    let in_time = outage(34);
    assert_eq!(in_time.broken(), []);
    let progress = judge_progress(&in_time.seen);
    let row = &progress.faults[&SingleFault::KillMaster];
    assert_eq!(row.longest, SECOND * 15, "from the last grant before to the first after");
    assert_eq!(row.promoted, Some(SECOND * 10));
    assert!((SECOND * 3..SECOND * 5).contains(&row.longest_counted), "{row:?}");

    assert_eq!(outage(36).broken(), [ProgressRule::NoGrant; 2]);
}

#[test]
fn new_process_that_is_never_granted_is_found() {
    let episode = |run: Run| {
        let episode = run.episode(SingleFault::HangFirst, 10, 40);
        run.with(episode)
    };

    assert_eq!(episode(Run::healthy().newcomer(20, Some(23), 30)).broken(), []);
    let never = episode(Run::healthy().newcomer(20, None, 30));
    assert_eq!(never.broken(), [ProgressRule::NoGrant; 2]);
    let late = episode(Run::healthy().newcomer(20, Some(27), 35));
    assert_eq!(late.broken(), [ProgressRule::NoGrant; 2]);
}

#[test]
fn lost_lease_is_found_unless_fault_hit_its_master() {
    assert_eq!(Run::healthy().lost(30).broken(), [ProgressRule::LeaseLost]);

    let hurt = |hit: &[usize]| {
        let run = Run::healthy().lost(30);
        let mut episode = run.episode(SingleFault::HangMaster, 20, 40);
        episode.hit = hit.iter().copied().collect();
        run.with(episode)
    };
    assert_eq!(hurt(&[0]).broken(), []);
    assert_eq!(hurt(&[1]).broken(), [ProgressRule::LeaseLost]);
    assert_eq!(judge_progress(&hurt(&[0]).seen).faults[&SingleFault::HangMaster].lost_where_hit, 1);
}

#[test]
fn lease_lost_while_the_machine_is_stopped_is_no_breach() {
    let run = Run::healthy().lost(30).without_ticks(25, 30);

    assert_eq!(run.broken(), []);
}

#[test]
fn full_memory_is_named_and_ends_with_a_grant() {
    let named = || Run::healthy().with_full_memory("out of memory: raise maxmemory");

    assert_eq!(named().without_grants(10, 23).broken(), []);
    assert_eq!(named().without_grants(10, 27).broken(), [ProgressRule::NoGrant; 2]);
    let unnamed = Run::healthy().with_full_memory("no answer").without_grants(10, 23);
    assert_eq!(unnamed.broken(), [ProgressRule::MemoryUnnamed]);
    assert_eq!(named().lost(18).broken(), [ProgressRule::LeaseLost]);
}

#[test]
fn hung_minority_that_slows_grants_is_found() {
    let every_pause = |millis| Run::healthy().with_hung_minority(Duration::from_millis(millis));

    assert_eq!(every_pause(25).broken(), []);
    assert_eq!(every_pause(40).broken(), [ProgressRule::Slow]);
    assert_eq!(judge_progress(&every_pause(40).seen).ratios.len(), 2);
}
