//! The load's part of a run.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use lease_test_servers::sync::lock;
use tokio::task::{AbortHandle, spawn_blocking};

use crate::failure::Failure;
use crate::judge::ledger::Ledger;
use crate::judge::safety::Verdict;
use crate::load::commands::Commands;
use crate::load::log::LoadLog;
use crate::load::rate::{
    LoadProgress, Phase, judge_silence, measure_healthy, measure_recovery, phase_between,
    start_sampling,
};
use crate::load::safety::judge_load;
use crate::load::{Load, SharedLog};
use crate::monotonic::Monotonic;
use crate::setup::Setup;
use crate::store::Store;

#[derive(Debug)]
pub(crate) struct LoadRun {
    pub(crate) log: SharedLog,
    progress: LoadProgress,
    commands: Option<Commands>,
    sampling: AbortHandle,
}

#[derive(Debug)]
pub(crate) struct LoadEnded {
    pub(crate) log: SharedLog,
    pub(crate) progress: LoadProgress,
    pub(crate) verdict: Verdict,
    /// The commands of the first server before the faults. `None` if the store is not Redis.
    pub(crate) commands: Option<Commands>,
}

impl LoadEnded {
    pub(crate) fn is_kept(&self) -> bool {
        self.verdict.violations.is_empty() && self.progress.breaches.is_empty()
    }
}

impl LoadRun {
    pub(crate) fn new(load: Load) -> Self {
        let log = Arc::new(Mutex::new(LoadLog::new(load)));
        let sampling = start_sampling(&log);
        Self { log, progress: LoadProgress::default(), commands: None, sampling }
    }

    pub(crate) async fn before_faults(
        &mut self,
        store: Store,
        server: SocketAddr,
    ) -> Result<Phase, Failure> {
        let ask = || spawn_blocking(move || Commands::of(server));
        let before = ask().await?;
        let healthy = measure_healthy(&self.log).await?;
        let commands = ask().await?.since(before);
        self.commands = (store != Store::Dynamodb).then_some(commands);
        self.progress.healthy = Some(healthy);
        Ok(healthy)
    }

    pub(crate) async fn after_faults(
        &mut self,
        from: Monotonic,
        repaired: Monotonic,
        healthy: Phase,
    ) {
        self.progress.faults = Some(phase_between(&lock(&self.log), from, repaired));
        let (after, slow) = measure_recovery(&self.log, healthy).await;
        self.progress.after = Some(after);
        self.progress.breaches.extend(slow);
        self.sampling.abort();
    }

    pub(crate) fn judge(mut self, setup: &Setup, ledger: &Ledger) -> LoadEnded {
        let log = lock(&self.log);
        let verdict = judge_load(ledger, &log);
        judge_silence(setup, ledger, &log, &mut self.progress);
        drop(log);
        let Self { log, progress, commands, .. } = self;
        LoadEnded { log, progress, verdict, commands }
    }
}
