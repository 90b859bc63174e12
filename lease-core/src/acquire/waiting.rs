//! Waiting for a key: in the queue of the store, or else in the queue of the locker and with a watch.

use std::error::Error;
use std::time::Duration;

use tokio::select;
use tracing::debug;

use crate::acquire::attempt::Attempt;
use crate::acquire::contest::Contest;
use crate::acquire::in_turn::wait_in_turn;
use crate::acquire::pending_attempt::{Request, attempt};
use crate::acquire::slots::Slots;
use crate::clock::Moment;
use crate::error::StoreError;
use crate::key::LeaseKey;
use crate::lease::Lease;
use crate::options::Waiting;
use crate::settings::Settings;
use crate::settings::backoff::Pauses;
use crate::store::grant::{GrantId, Holder};
use crate::store::in_turn::InTurn;
use crate::store::lock_store::{Change, Freed};
use crate::store::time_limit::within;

pub(crate) async fn contend(contest: Contest<'_>, key: &LeaseKey) -> Result<Lease, StoreError> {
    let settings = contest.settings;
    // A claim under a session cannot wait in a queue.
    let is_in_turn = settings.options.waiting() == Waiting::InTurn && settings.session.is_none();
    let queues = settings.store.in_turn().filter(|_| is_in_turn);
    if let Some(queues) = queues
        && let Some(lease) = Box::pin(wait_in_turn(contest, queues, key)).await?
    {
        return Ok(lease);
    }
    race(contest, queues, key).await
}

/// If the store keeps no queue for the key now, the waiter asks for a queue again after a ttl: racing waiters never
/// obtain a key with a queue.
async fn race(
    contest: Contest<'_>,
    queues: Option<&dyn InTurn>,
    key: &LeaseKey,
) -> Result<Lease, StoreError> {
    let Contest { settings, runtime, queue, unsettled, one_at_a_time, contended, .. } = contest;
    let turn = queue.turn(key).await;
    let mut pauses = Pauses::new(&settings.options, &settings.random);
    let mut race = Race::new(contest, queues, key);
    let mut watch = race.is_first.then(Freed::never);
    loop {
        // The watch is registered before the attempt: a release in between wakes the watch.
        let freed = match watch.take() {
            Some(freed) => freed,
            None => watch_or_poll(settings, key).await,
        };
        let alone = one_at_a_time.lock().await;
        let began = settings.clock.now();
        let ask = Request::Obtain(key.clone());
        let outcome = attempt(settings, runtime, unsettled, ask, began).await;
        match outcome {
            Ok(Attempt::Obtained(lease)) => {
                if !race.is_refused {
                    contended.remove(key);
                }
                lease.keep_turn(turn);
                return Ok(lease);
            }
            Ok(Attempt::Held(holder)) => {
                drop(alone);
                pauses = Pauses::new(&settings.options, &settings.random);
                match race.refused(freed, holder, began).await? {
                    Refused::ObtainedInTurn(lease) => return Ok(lease),
                    Refused::Repeat(next) => watch = next,
                }
            }
            Err(error) if error.is_retryable() => {
                drop(alone);
                watch = Some(freed);
                settings.sleep(pauses.next()).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// What a waiter without a queue knows of its earlier attempts.
struct Race<'a> {
    contest: Contest<'a>,
    queues: Option<&'a dyn InTurn>,
    key: &'a LeaseKey,
    wake_backoff: WakeBackoff,
    slots: Slots,
    /// Most keys are free, so the first attempt is made without a watch. After a refusal without a watch, a second
    /// attempt follows at once.
    is_first: bool,
    is_refused: bool,
    asked_for_queue: Moment,
}

enum Refused {
    /// The waiter asked for a queue again, and the queue granted the key.
    ObtainedInTurn(Lease),
    /// The next attempt follows, with this watch if it can still wake.
    Repeat(Option<Freed>),
}

impl<'a> Race<'a> {
    fn new(contest: Contest<'a>, queues: Option<&'a dyn InTurn>, key: &'a LeaseKey) -> Self {
        let now = contest.settings.clock.now();
        Self {
            contest,
            queues,
            key,
            wake_backoff: WakeBackoff::default(),
            slots: Slots::new(),
            is_first: !contest.contended.contains(key, now),
            is_refused: false,
            asked_for_queue: now,
        }
    }

    /// Waits after an attempt that was refused. The attempt began at `began`.
    async fn refused(
        &mut self,
        mut freed: Freed,
        holder: Holder,
        began: Moment,
    ) -> Result<Refused, StoreError> {
        let Contest { settings, contended, .. } = self.contest;
        let now = settings.clock.now();
        self.slots.note_attempt(now.since(began));
        self.is_refused = true;
        contended.note(self.key, now, settings.options.ttl());
        if std::mem::take(&mut self.is_first) {
            freed = watch_or_poll(settings, self.key).await;
            if freed.can_wake() {
                // The watch misses a release before its registration.
                return Ok(Refused::Repeat(Some(freed)));
            }
        }
        if let Some(queues) = self.queues
            && settings.clock.now().since(self.asked_for_queue) >= settings.options.ttl()
        {
            let lease = Box::pin(wait_in_turn(self.contest, queues, self.key)).await?;
            self.asked_for_queue = settings.clock.now();
            return Ok(lease.map_or(Refused::Repeat(Some(freed)), Refused::ObtainedInTurn));
        }
        let watch = wait_for_change(settings, freed, &holder, &mut self.slots).await;
        let waited = settings.clock.now().since(began);
        settings.sleep(self.wake_backoff.pause_after(waited, holder.grant, settings)).await;
        Ok(Refused::Repeat(watch))
    }
}

async fn watch_or_poll(settings: &Settings, key: &LeaseKey) -> Freed {
    let limit = settings.options.request_timeout().min(LONGEST_WAIT_FOR_A_WATCH);
    match within(limit, settings.store.watch(key)).await {
        Ok(freed) => freed,
        Err(error) => {
            debug!(%key, error = &error as &dyn Error, "watch failed, waiter polls");
            Freed::never()
        }
    }
}

/// Returns the watch if the watch can still wake.
async fn wait_for_change(
    settings: &Settings,
    mut freed: Freed,
    holder: &Holder,
    slots: &mut Slots,
) -> Option<Freed> {
    let (options, random) = (&settings.options, &settings.random);
    let poll = random.part_of(options.poll_interval() * 3 / 2, 1.0 / 3.0);
    let backstop = if freed.can_wake() { options.ttl() } else { poll };
    let wait = match holder.expires_in {
        // The lease has expired, but the store still refuses the key: polls until the store grants the key.
        Some(Duration::ZERO) => poll,
        Some(left) => left.saturating_add(random.part_of(JITTER, 0.0)).min(backstop),
        None => backstop,
    };
    let now = settings.clock.now();
    // A waiter that always loses its slot makes an attempt after this time.
    let latest = now + backstop;
    let mut until = now + wait;
    loop {
        let change = select! {
            // Polls the watch first: after a wake, the key is more likely to be free.
            biased;
            change = freed.next() => change,
            () = settings.sleep(until.since(settings.clock.now())) => break,
        };
        let Change::Freed { watches } = change else { continue };
        // The holder has released the key, so the expiry of its lease no longer matters.
        until = latest;
        let woken_at = settings.clock.now();
        let slot = slots.draw(watches, random).min(until.since(woken_at));
        select! {
            // Polls the watch first: if the key was taken, an attempt would be refused.
            biased;
            () = taken(&mut freed) => (),
            () = settings.sleep(slot) => break,
        }
        slots.note_hand_over(settings.clock.now().since(woken_at));
    }
    freed.can_wake().then_some(freed)
}

/// Never completes if the watch does not report [`Change::Taken`].
async fn taken(freed: &mut Freed) {
    while freed.next().await != Change::Taken {}
}

/// Makes a waiter back off if the store wakes the waiter while the same grant still holds the key.
#[derive(Debug, Default)]
struct WakeBackoff {
    grant: Option<GrantId>,
    wakes_without_change: u32,
}

impl WakeBackoff {
    fn pause_after(
        &mut self,
        waited: Duration,
        grant: Option<GrantId>,
        settings: &Settings,
    ) -> Duration {
        let is_new_grant = self.grant != grant;
        self.grant = grant;
        if is_new_grant || waited >= Duration::from_millis(5) {
            self.wakes_without_change = 0;
            return Duration::ZERO;
        }
        self.wakes_without_change += 1;
        let pause = Duration::from_millis(1 << self.wakes_without_change.min(12));
        settings.random.part_of(pause.min(settings.options.poll_interval()), 0.5)
    }
}

/// Waiters of different processes spread their attempts over this time after a lease expires.
const JITTER: Duration = Duration::from_millis(20);
const LONGEST_WAIT_FOR_A_WATCH: Duration = Duration::from_secs(1);
