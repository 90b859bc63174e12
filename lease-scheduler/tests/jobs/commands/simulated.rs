//! Two fleets whose clocks are a minute apart, for a hundred hours, with triggers, pauses and crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use lease_core::conformance::{Call, Fault, Faulty};
use lease_memory::MemoryStore;
use lease_scheduler::{
    Concurrency, Ending, Job, JobControl, PastRun, RunQuery, Schedule, Trigger, TriggerAnswer,
    TriggerNumber, TriggerState, Triggered,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use crate::commands::operator_on;
use crate::forgetful::{Forgetful, MARKS_OF_TICKS, MARKS_OF_TRIGGERS};
use crate::harness::{Log, Machine, SchedulerHarness, key, secs};

/// The clocks of one fleet are 30 s ahead. The clocks of the other fleet are 30 s behind.
const SKEWS: [(&str, i64); 4] = [("fast-1", 30), ("fast-2", 30), ("slow-1", -30), ("slow-2", -30)];

const JOBS: [(&str, Concurrency); 2] =
    [("forbids", Concurrency::Forbid), ("queues", Concurrency::QueueOne)];

fn schedule() -> Schedule {
    Schedule::cron("*/5 * * * *", "UTC").unwrap()
}

/// The machines, the operator, and what the operator has seen.
struct Simulation {
    harness: SchedulerHarness,
    forgets: &'static [&'static str],
    random: StdRng,
    machines: BTreeMap<&'static str, Option<Machine>>,
    /// The operator's connection, which loses requests and replies.
    connection: Faulty<MemoryStore>,
    control: JobControl,
    jobs: BTreeMap<&'static str, SeenJob>,
    crashes: usize,
}

/// What the operator has done to a job, and has seen of it.
#[derive(Default)]
struct SeenJob {
    log: Log,
    waiting: Option<TriggerNumber>,
    answers: BTreeMap<TriggerNumber, TriggerState>,
    paused: Option<Timestamp>,
    pauses: Vec<(Timestamp, Timestamp)>,
    /// The runs in all histories, by token and tick.
    runs: BTreeMap<(u64, Timestamp), PastRun>,
}

/// Faults that the judge has found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdict {
    ticks: usize,
    triggers: usize,
    ticks_twice: usize,
    /// Ticks that were neither run nor reported as missed, outside of pauses.
    ticks_lost: usize,
    /// Ticks that ran in the middle of a pause.
    ticks_in_pauses: usize,
    triggers_twice: usize,
    /// Triggers that were refused, and ran.
    refused_and_run: usize,
    /// Triggers without an answer, or started without a run in the history.
    triggers_lost: usize,
    overlaps: usize,
}

impl Simulation {
    fn new(seed: u64, forgets: &'static [&'static str]) -> Self {
        let harness = SchedulerHarness::new();
        let connection = Faulty::new(harness.store.clone()).with_latency(secs(0));
        let control = operator_on(&harness, connection.clone());
        let jobs = JOBS.map(|(name, _)| (name, SeenJob::default())).into();
        let (random, machines) = (StdRng::seed_from_u64(seed), BTreeMap::new());
        let mut simulation =
            Self { harness, forgets, random, machines, connection, control, jobs, crashes: 0 };
        for (name, _) in SKEWS {
            simulation.start(name);
        }
        simulation
    }

    fn start(&mut self, name: &'static str) {
        let ahead = SKEWS.iter().find(|(other, _)| *other == name).unwrap().1;
        let jobs = JOBS.map(|(job, concurrency)| {
            // A run takes 5 s to 105 s, depending on its tick.
            let length =
                |tick: Timestamp| secs(5 + tick.as_second().unsigned_abs() / 60 * 37 % 101);
            let body = self.jobs[job].log.body_of_lengths(name, length);
            let job = Job::new(key(job), body).on(schedule()).concurrency(concurrency);
            job.history_length(60).unwrap()
        });
        let connection = Faulty::new(self.harness.store.clone())
            .with_latency(std::time::Duration::from_millis(2));
        let ahead = SignedDuration::from_secs(ahead);
        let machine = if self.forgets.is_empty() {
            self.harness.start_on(name, ahead, connection.clone(), connection, jobs)
        } else {
            let table = Forgetful { store: Arc::new(connection.clone()), forgets: self.forgets };
            self.harness.start_on(name, ahead, connection, table, jobs)
        };
        self.machines.insert(name, Some(machine));
    }

    async fn run(&mut self, hours: u64) {
        let end = self.harness.now() + SignedDuration::from_secs((hours * 3600).cast_signed());
        let mut steps = 0_u64;
        sleep(secs(60)).await;
        while self.harness.now() < end {
            sleep(std::time::Duration::from_millis(self.random.random_range(1000..240_000))).await;
            let (job, _) = JOBS[self.random.random_range(0..JOBS.len())];
            match self.random.random_range(0..100) {
                0..50 => self.trigger(job).await,
                50..62 => self.pause_or_resume(job).await,
                62..80 => self.crash_or_start(),
                _ => (),
            }
            steps += 1;
            if steps.is_multiple_of(20) {
                self.observe().await;
            }
        }
        self.finish().await;
    }

    /// Sends a trigger, after the answer to the last one. Requests and replies of the operator may be lost.
    async fn trigger(&mut self, job: &'static str) {
        self.see_answer(job).await;
        if self.random.random_bool(0.3) {
            let fault = [Fault::Fail, Fault::LoseReply][self.random.random_range(0..2)];
            // While a trigger waits, nothing is written, and the fault would meet a later command.
            if self.jobs[job].waiting.is_none() {
                self.connection.next(Call::Write, fault);
            }
        }
        let seen = self.jobs.get_mut(job).unwrap();
        match self.control.trigger(job, &Trigger::new()).await.unwrap() {
            Triggered::Accepted(number) => {
                assert_eq!(seen.waiting.replace(number), None, "the last one was answered");
            }
            Triggered::OtherWaits(number) => assert_eq!(seen.waiting, Some(number)),
            other => panic!("{other:?}"),
        }
    }

    async fn see_answer(&mut self, job: &str) {
        let seen = self.jobs.get_mut(job).unwrap();
        let Some(number) = seen.waiting else { return };
        let state = self.control.trigger_state(job, number).await.unwrap();
        if state != TriggerState::Waiting {
            seen.waiting = None;
            seen.answers.insert(number, state);
        }
    }

    async fn pause_or_resume(&mut self, job: &str) {
        let seen = self.jobs.get_mut(job).unwrap();
        if let Some(since) = seen.paused.take() {
            self.control.resume(job).await.unwrap();
            seen.pauses.push((since, self.harness.now()));
        } else {
            self.control.pause(job, "simulated").await.unwrap();
            seen.paused = Some(self.harness.now());
        }
    }

    /// Crashes a machine that runs, unless it is the last one, or starts one that has crashed.
    fn crash_or_start(&mut self) {
        let (name, _) = SKEWS[self.random.random_range(0..SKEWS.len())];
        let up = self.machines.values().flatten().count();
        match self.machines.get_mut(name).unwrap().take() {
            Some(machine) if up > 1 => {
                machine.crash();
                self.crashes += 1;
            }
            Some(machine) => drop(self.machines.insert(name, Some(machine))),
            None => self.start(name),
        }
    }

    /// Reads the histories. They keep 60 runs. Between two calls are at most 80 minutes, 16 ticks and 20 triggers.
    async fn observe(&mut self) {
        for (job, seen) in &mut self.jobs {
            let runs = self.control.history(job, &RunQuery::new()).await.unwrap();
            let runs = runs.into_iter().filter(|run| run.ending != Ending::Running);
            seen.runs.extend(runs.map(|run| ((run.token.get(), run.scheduled), run)));
        }
    }

    /// Resumes the jobs, starts all machines, and waits until the last runs have ended.
    async fn finish(&mut self) {
        for (job, _) in JOBS {
            if self.jobs[job].paused.is_some() {
                self.pause_or_resume(job).await;
            }
        }
        let down: Vec<_> = SKEWS.iter().filter(|(name, _)| self.machines[name].is_none()).collect();
        for (name, _) in down {
            self.start(name);
        }
        sleep(secs(900)).await;
        for (job, _) in JOBS {
            self.see_answer(job).await;
            let waiting = self.jobs[job].waiting;
            let answers = &mut self.jobs.get_mut(job).unwrap().answers;
            answers.extend(waiting.map(|number| (number, TriggerState::Waiting)));
        }
        self.observe().await;
    }

    fn judge(&self, from: Timestamp) -> Verdict {
        let mut verdict = Verdict::default();
        for seen in self.jobs.values() {
            seen.judge_ticks(from, self.harness.now(), &mut verdict);
            seen.judge_triggers(&mut verdict);
            verdict.overlaps += seen.log.overlaps();
        }
        verdict
    }
}

impl SeenJob {
    fn judge_ticks(&self, from: Timestamp, now: Timestamp, verdict: &mut Verdict) {
        let schedule = schedule();
        let mut started = BTreeMap::<Timestamp, usize>::new();
        for body in self.log.bodies().iter().filter(|body| body.trigger.is_none()) {
            *started.entry(body.scheduled).or_default() += 1;
        }
        let mut known = BTreeSet::new();
        for run in self.runs.values().filter(|run| run.trigger.is_none()) {
            known.insert(run.scheduled);
            if run.ending == Ending::Missed {
                known.extend(missed_ticks(&run.note, &schedule));
            }
        }
        let end = now - SignedDuration::from_secs(600);
        let ticks = std::iter::successors(schedule.next(from), |tick| schedule.next(*tick));
        for tick in ticks.skip(1).take_while(|tick| *tick < end) {
            verdict.ticks += 1;
            let starts = started.get(&tick).copied().unwrap_or_default();
            verdict.ticks_twice += usize::from(starts > 1);
            // A clock may be 30 s wrong, and a tick may start a minute late.
            let near = self.pauses.iter().any(|(a, b)| within(tick, *a, *b, 120));
            let inside = self.pauses.iter().any(|(a, b)| within(tick, *a, *b, -120));
            verdict.ticks_lost += usize::from(!known.contains(&tick) && !near);
            verdict.ticks_in_pauses += usize::from(starts > 0 && inside);
        }
    }

    fn judge_triggers(&self, verdict: &mut Verdict) {
        let mut starts = BTreeMap::<TriggerNumber, usize>::new();
        for number in self.log.bodies().iter().filter_map(|body| body.trigger) {
            *starts.entry(number).or_default() += 1;
        }
        let in_history: BTreeSet<_> = self.runs.values().filter_map(|run| run.trigger).collect();
        verdict.triggers_twice += starts.values().filter(|starts| **starts > 1).count();
        for (number, state) in &self.answers {
            verdict.triggers += 1;
            let is_started = *state == TriggerState::Answered(TriggerAnswer::Started);
            let is_refused = matches!(state, TriggerState::Answered(_)) && !is_started;
            verdict.refused_and_run += usize::from(is_refused && starts.contains_key(number));
            verdict.triggers_lost +=
                usize::from(!(is_refused || is_started && in_history.contains(number)));
        }
    }
}

/// Returns the ticks that the note of missed ticks names: `… started A`, or `… N ticks, A to B`.
fn missed_ticks(note: &str, schedule: &Schedule) -> Vec<Timestamp> {
    let mut times = note.split([' ', ',']).filter_map(|word| word.parse::<Timestamp>().ok());
    let first = times.next().unwrap();
    let last = times.next().unwrap_or(first);
    let ticks = std::iter::successors(Some(first), |tick| schedule.next(*tick));
    ticks.take_while(|tick| *tick <= last).collect()
}

/// Whether `tick` is in the time from `from` to `until`, which begins and ends `more` seconds farther out.
fn within(tick: Timestamp, from: Timestamp, until: Timestamp, more: i64) -> bool {
    let more = SignedDuration::from_secs(more);
    (from - more..until + more).contains(&tick)
}

async fn simulate(seed: u64, hours: u64, forgets: &'static [&'static str]) -> Verdict {
    let mut simulation = Simulation::new(seed, forgets);
    let from = simulation.harness.now();
    simulation.run(hours).await;
    let verdict = simulation.judge(from);
    let pauses: usize = simulation.jobs.values().map(|seen| seen.pauses.len()).sum();
    println!("{hours} h, {} crashes, {pauses} pauses: {verdict:?}", simulation.crashes);
    verdict
}

#[tokio::test(start_paused = true)]
async fn hundred_hours_lose_and_repeat_no_tick_and_no_trigger() {
    let verdict = simulate(1, 100, &[]).await;

    let Verdict { ticks, triggers, .. } = verdict;
    assert_eq!(verdict, Verdict { ticks, triggers, ..Verdict::default() });
    assert!(ticks > 2300 && triggers > 500, "{ticks} ticks, {triggers} triggers");
}

#[tokio::test(start_paused = true)]
async fn control_without_marks_of_ticks_is_found() {
    assert!(simulate(2, 5, MARKS_OF_TICKS).await.ticks_twice > 0);
}

#[tokio::test(start_paused = true)]
async fn control_without_marks_of_triggers_is_found() {
    assert!(simulate(3, 1, MARKS_OF_TRIGGERS).await.triggers_twice > 0);
}

#[tokio::test(start_paused = true)]
async fn control_without_history_is_found() {
    let verdict = simulate(4, 5, &["job_history"]).await;

    assert!(verdict.ticks_lost > 0 && verdict.triggers_lost > 0);
}

#[tokio::test(start_paused = true)]
async fn control_without_pauses_is_found() {
    assert!(simulate(5, 5, &["job_paused"]).await.ticks_in_pauses > 0);
}
