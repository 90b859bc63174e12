//! Waiting for a key: in line within this process, then watching the store.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::sync::Mutex;
use tracing::debug;

use crate::acquire::attempt::{Attempt, Request, attempt};
use crate::acquire::queue::Queue;
use crate::acquire::unsettled::UnsettledClaims;
use crate::clock::sleep_until;
use crate::error::StoreError;
use crate::key::LeaseKey;
use crate::lease::Lease;
use crate::runtime::locker_runtime::LockerRuntime;
use crate::settings::Settings;
use crate::settings::backoff::{Pauses, within};
use crate::store::grant::Holder;
use crate::store::lock_store::Freed;
use crate::token::FencingToken;

/// Waits for `key`, for as long as it takes.
///
/// `one_at_a_time` is shared by contenders for several keys that want only one of them: while
/// one attempts, the others hold still, and once it has obtained its key they are dropped.
pub(crate) async fn contend(
    settings: &Arc<Settings>,
    runtime: &LockerRuntime,
    queue: &Arc<Queue>,
    unsettled: &Arc<UnsettledClaims>,
    key: &LeaseKey,
    one_at_a_time: &Mutex<()>,
) -> Result<Lease, StoreError> {
    let turn = queue.turn(key).await;
    let mut pauses = Pauses::new(&settings.options, &settings.random);
    let mut haste = WakeBackoff::default();
    let mut watch = None;
    loop {
        // Watched first, and attempted then: a release in between wakes the watch.
        let freed = match watch.take() {
            Some(freed) => freed,
            None => watch_or_poll(settings, key).await,
        };
        let alone = one_at_a_time.lock().await;
        let began = settings.clock.now();
        let outcome = attempt(settings, runtime, unsettled, Request::Obtain(key.clone())).await;
        match outcome {
            Ok(Attempt::Obtained(lease)) => {
                lease.keep_turn(turn);
                return Ok(lease);
            }
            Ok(Attempt::Held(holder)) => {
                drop(alone);
                pauses = Pauses::new(&settings.options, &settings.random);
                watch = wait_for_change(settings, freed, &holder).await;
                let waited = settings.clock.now().since(began);
                sleep(settings, haste.pause_after(waited, holder.token, settings)).await;
            }
            Err(error) if error.is_retryable() => {
                drop(alone);
                watch = Some(freed);
                sleep(settings, pauses.next()).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// A store that cannot watch can still be asked again.
async fn watch_or_poll(settings: &Settings, key: &LeaseKey) -> Freed {
    let limit = settings.options.request_timeout().min(LONGEST_WAIT_FOR_A_WATCH);
    match within(limit, settings.store.watch(key)).await {
        Ok(freed) => freed,
        Err(error) => {
            debug!(%key, error = &error as &dyn Error, "no watch: polling instead");
            Freed::never()
        }
    }
}

/// Waits until the key may be free; gives the watch back if it can still wake.
async fn wait_for_change(settings: &Settings, mut freed: Freed, holder: &Holder) -> Option<Freed> {
    let (options, random) = (&settings.options, &settings.random);
    // More or less by half, so that many waiters do not ask at once.
    let poll = random.part_of(options.poll_interval() * 3 / 2, 1.0 / 3.0);
    let backstop = if freed.can_wake() { options.ttl() } else { poll };
    let wait = match holder.expires_in {
        // It has run out and was not granted all the same: the store waits for something else.
        Some(Duration::ZERO) => poll,
        Some(left) => left.saturating_add(random.part_of(JITTER, 0.0)).min(backstop),
        None => backstop,
    };
    select! {
        // The watch first: it is the more likely to come with the key free.
        biased;
        () = &mut freed => None,
        () = sleep(settings, wait) => freed.can_wake().then_some(freed),
    }
}

/// Makes a waiter back off if its store wakes it although the key is still held.
///
/// Losing a race for a key that changes hands quickly does not count: each refusal then names another
/// grant.
#[derive(Debug, Default)]
struct WakeBackoff {
    token: Option<FencingToken>,
    in_vain: u32,
}

impl WakeBackoff {
    fn pause_after(
        &mut self,
        waited: Duration,
        token: FencingToken,
        settings: &Settings,
    ) -> Duration {
        let is_news = self.token.replace(token) != Some(token);
        if is_news || waited >= Duration::from_millis(5) {
            self.in_vain = 0;
            return Duration::ZERO;
        }
        self.in_vain += 1;
        let pause = Duration::from_millis(1 << self.in_vain.min(12));
        settings.random.part_of(pause.min(settings.options.poll_interval()), 0.5)
    }
}

async fn sleep(settings: &Settings, length: Duration) {
    if length.is_zero() {
        return;
    }
    let until = settings.clock.now() + length;
    sleep_until(&*settings.clock, until, settings.options.heartbeat_period()).await;
}

/// How far waiters of different processes spread when a lease runs out.
const JITTER: Duration = Duration::from_millis(20);
const LONGEST_WAIT_FOR_A_WATCH: Duration = Duration::from_secs(1);
