//! Measures the rate of a load, and judges its progress.

use std::time::Duration;

use lease_test_servers::sync::lock;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::failure::Failure;
use crate::judge::ledger::{Ledger, Part};
use crate::load::SharedLog;
use crate::load::log::LoadLog;
use crate::monotonic::Monotonic;
use crate::setup::Setup;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Phase {
    pub(crate) from: Monotonic,
    pub(crate) until: Monotonic,
    pub(crate) cycles: u64,
}

#[derive(Debug, Default)]
pub(crate) struct LoadProgress {
    pub(crate) healthy: Option<Phase>,
    pub(crate) faults: Option<Phase>,
    /// After the last repair: the first phase with half of the healthy rate, or else the last
    /// measured phase.
    pub(crate) after: Option<Phase>,
    /// The time in which the store and a process of the load could work.
    pub(crate) open: Duration,
    pub(crate) longest_silence: Duration,
    pub(crate) breaches: Vec<String>,
}

impl Phase {
    pub(crate) fn rate(&self) -> f64 {
        // No run has 2^52 cycles.
        #[expect(clippy::cast_precision_loss, reason = "a rate is printed with one digit")]
        let cycles = self.cycles as f64;
        cycles / self.until.since(self.from).as_secs_f64().max(0.001)
    }
}

pub(crate) fn start_sampling(log: &SharedLog) -> AbortHandle {
    let log = SharedLog::clone(log);
    let sampling = tokio::spawn(async move {
        let mut ticks = interval(SAMPLE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            lock(&log).sample(Monotonic::now());
        }
    });
    sampling.abort_handle()
}

/// Waits until the load runs at full size, and measures its rate without faults. Fails if the load
/// does not start.
pub(crate) async fn measure_healthy(log: &SharedLog) -> Result<Phase, Failure> {
    let began = Monotonic::now();
    let tasks = u64::try_from(lock(log).load.tasks)?;
    while lock(log).cycles < tasks * WARM_UP {
        if Monotonic::now().since(began) > PATIENCE {
            return Err("the load makes no cycles, although no fault was injected".into());
        }
        sleep(SAMPLE).await;
    }
    Ok(measure(log, HEALTHY).await)
}

/// Measures the rate after the last repair, until it is half of the healthy rate.
pub(crate) async fn measure_recovery(log: &SharedLog, healthy: Phase) -> (Phase, Option<String>) {
    let began = Monotonic::now();
    loop {
        let phase = measure(log, RECOVERED).await;
        if has_recovered(&phase, &healthy) {
            return (phase, None);
        }
        if Monotonic::now().since(began) > PATIENCE {
            let what = format!(
                "{:.1} cycles per second {PATIENCE:?} after the last fault, and {:.1} before the first",
                phase.rate(),
                healthy.rate(),
            );
            return (phase, Some(what));
        }
    }
}

fn has_recovered(phase: &Phase, healthy: &Phase) -> bool {
    phase.rate() >= healthy.rate() * LEAST_SHARE
}

async fn measure(log: &SharedLog, length: Duration) -> Phase {
    let (from, before) = (Monotonic::now(), lock(log).cycles);
    sleep(length).await;
    let (until, after) = (Monotonic::now(), lock(log).cycles);
    Phase { from, until, cycles: after - before }
}

pub(crate) fn phase_between(log: &LoadLog, from: Monotonic, until: Monotonic) -> Phase {
    Phase { from, until, cycles: log.cycles_at(until) - log.cycles_at(from) }
}

pub(crate) fn judge_silence(
    setup: &Setup,
    ledger: &Ledger,
    log: &LoadLog,
    progress: &mut LoadProgress,
) {
    let counted = log.counted();
    let Some(&(mut since, mut cycles)) = log.samples().first() else { return };
    let (mut silence, mut last, mut is_reported) = (Duration::ZERO, since, false);
    for &(at, made) in log.samples() {
        let is_open = is_open(setup, ledger, at);
        if made != cycles || !is_open {
            (since, cycles, silence, is_reported) = (at, made, Duration::ZERO, false);
        }
        let step = counted.within(last, at);
        last = at;
        if !is_open {
            continue;
        }
        progress.open += step;
        if since < at {
            silence += step;
        }
        progress.longest_silence = progress.longest_silence.max(silence);
        if silence > LONGEST_SILENCE && !is_reported {
            is_reported = true;
            let from = since.since(ledger.began).as_secs_f64();
            progress.breaches.push(format!(
                "{from:.3} s: no cycle for {LONGEST_SILENCE:?}, although the store and a process worked"
            ));
        }
    }
}

fn is_open(setup: &Setup, ledger: &Ledger, at: Monotonic) -> bool {
    let out: Vec<Part> = ledger
        .outages
        .iter()
        .filter(|outage| outage.from <= at && at < outage.until + GRACE)
        .map(|outage| outage.part)
        .collect();
    let servers = setup.store.servers();
    (setup.workers..setup.processes()).any(|process| {
        let reached = (0..servers).filter(|&server| {
            !out.contains(&Part::Server(server)) && !out.contains(&Part::Link(process, server))
        });
        !out.contains(&Part::Process(process)) && reached.count() > servers / 2
    })
}

const SAMPLE: Duration = Duration::from_millis(50);

/// The load runs at full size after this many cycles per task.
const WARM_UP: u64 = 4;

const HEALTHY: Duration = Duration::from_secs(5);

const RECOVERED: Duration = Duration::from_secs(1);

pub(crate) const LEAST_SHARE: f64 = 0.5;

const PATIENCE: Duration = Duration::from_mins(2);

/// Clients need this time to reconnect after an outage, and abandoned leases need the time to
/// expire.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

pub(crate) const LONGEST_SILENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::ledger::Outage;
    use crate::load::Load;
    use crate::store::{Clocks, Store};

    fn setup(store: Store) -> Setup {
        Setup {
            store,
            length: Duration::from_secs(1),
            seed: 1,
            workers: 1,
            counters: 1,
            ttl: Duration::from_secs(2),
            pause: crate::setup::FREQUENT,
            load: Some(Load { tasks: 2, keys: 2 }),
            sabotage: None,
            faults: crate::setup::Faults::Overlapping,
            clocks: Clocks::InStep,
            kinds: Vec::new(),
        }
    }

    fn open_with(store: Store, parts: &[Part]) -> bool {
        let from = Monotonic::now();
        let mut ledger = Ledger::new(from, Clocks::InStep);
        let outage = |&part| Outage { part, from, until: from + Duration::from_secs(1) };
        ledger.outages.extend(parts.iter().map(outage));
        is_open(&setup(store), &ledger, from)
    }

    #[test]
    fn store_without_a_majority_need_not_work() {
        let server = Part::Server;
        assert!(open_with(Store::Redis, &[]));
        assert!(!open_with(Store::Redis, &[server(0)]));
        assert!(open_with(Store::Quorum, &[server(0), server(1)]));
        assert!(!open_with(Store::Quorum, &[server(0), server(1), server(2)]));
    }

    #[test]
    fn one_process_that_works_is_enough() {
        let (first, second) = (Part::Process(1), Part::Process(2));
        assert!(open_with(Store::Redis, &[first, Part::Process(0)]));
        assert!(open_with(Store::Redis, &[Part::Link(2, 0)]));
        assert!(!open_with(Store::Redis, &[first, second]));
        assert!(!open_with(Store::Redis, &[first, Part::Link(2, 0)]));
    }

    /// The load makes a cycle in each sample, but none from 2 s to 9 s.
    fn silent_with(parts: &[Part]) -> LoadProgress {
        let start = Monotonic::now();
        let mut ledger = Ledger::new(start, Clocks::InStep);
        let outage = |&part| Outage { part, from: start, until: start + Duration::from_secs(9) };
        ledger.outages.extend(parts.iter().map(outage));
        let mut log = LoadLog::new(Load { tasks: 2, keys: 2 });
        for number in 0..240 {
            log.cycles += u64::from(!(40..180).contains(&number));
            log.sample(start + SAMPLE * number);
        }
        let mut progress = LoadProgress::default();
        judge_silence(&setup(Store::Redis), &ledger, &log, &mut progress);
        progress
    }

    #[test]
    fn silence_while_the_store_works_is_found() {
        let progress = silent_with(&[Part::Process(1)]);

        assert_eq!(progress.breaches.len(), 1);
        assert!(progress.longest_silence > Duration::from_secs(6));
    }

    #[test]
    fn silence_during_an_outage_is_no_breach() {
        let progress = silent_with(&[Part::Server(0)]);

        assert_eq!(progress.breaches, [""; 0]);
        assert_eq!(progress.longest_silence, Duration::ZERO);
    }

    #[test]
    fn half_of_the_healthy_rate_is_a_recovery() {
        let from = Monotonic::now();
        let phase = |cycles| Phase { from, until: from + Duration::from_secs(1), cycles };

        assert!(has_recovered(&phase(50), &phase(100)));
        assert!(!has_recovered(&phase(49), &phase(100)));
    }
}
