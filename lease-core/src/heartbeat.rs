//! The heartbeater: one task per locker keeps all its leases alive, or tells that they are lost.
//!
//! It never waits for the store. Heartbeats are sent in batches by tasks of their own, whose
//! answers come back over a channel; so a store that hangs delays no deadline and no other
//! lease's heartbeat.

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{consume_budget, yield_now};
use tracing::{debug, warn};

use crate::alarm::Alarm;
use crate::batch::{Answer, Batch};
use crate::clock::{Moment, sleep_until};
use crate::grant::{Beat, Heartbeat};
use crate::hold::{Ending, Hold};
use crate::inbox::{Command, Inbox};
use crate::lost::LossCause;
use crate::options::LeaseOptions;
use crate::retry::Pauses;
use crate::settings::Settings;

pub(crate) struct Heartbeater {
    settings: Arc<Settings>,
    inbox: Inbox,
    answers: mpsc::UnboundedReceiver<Answer>,
    answered: mpsc::UnboundedSender<Answer>,
    kept: HashMap<u64, Kept>,
    /// When to look at which lease again, the earliest first.
    due: BTreeSet<(Moment, u64)>,
    /// Batches that may be on their way and not yet slow.
    slots: Arc<Semaphore>,
}

/// A lease that is kept alive.
struct Kept {
    hold: Arc<Hold>,
    /// The number of the last heartbeat that was sent.
    beat: Beat,
    /// When it was sent, while it is unanswered.
    sent: Option<Moment>,
    /// When the next one is to be sent.
    next: Moment,
    failures: u32,
    /// Its place in `due`.
    look_again: Moment,
}

impl Heartbeater {
    pub(crate) fn new(settings: Arc<Settings>, inbox: Inbox) -> Self {
        let (answered, answers) = mpsc::unbounded_channel();
        Self {
            settings,
            inbox,
            answers,
            answered,
            kept: HashMap::new(),
            due: BTreeSet::new(),
            slots: Arc::new(Semaphore::new(BATCHES_IN_FLIGHT)),
        }
    }

    /// Runs until every locker and lease that could ask for something is gone.
    pub(crate) async fn run(mut self) {
        let mut commands = Vec::new();
        let mut answers = Vec::new();
        let mut alarm = pin!(Alarm::default());
        loop {
            let settings = Arc::clone(&self.settings);
            let earliest = self.due.first().map(|(moment, _)| *moment);
            let (looks_at, is_inbox_empty) = self.inbox.next_look(earliest);
            select! {
                // Deadlines come first: a store that answers without end must not outrun them.
                // Then answers, which move deadlines; new leases can wait a moment.
                biased;
                () = alarm.as_mut().ring_at(looks_at, &settings) => (),
                _ = self.answers.recv_many(&mut answers, BATCH) => (),
                () = ready(()), if !is_inbox_empty => (),
                is_open = self.inbox.rung() => {
                    if !is_open {
                        return;
                    }
                }
            }
            for answer in answers.drain(..) {
                self.hear(answer);
            }
            self.inbox.take(&mut commands, BATCH, settings.clock.now());
            for command in commands.drain(..) {
                self.obey(command);
            }
            // An inbox that is never empty leaves others their turn.
            consume_budget().await;
            if self.look_at_due() {
                // What was sent gets a chance to go before more is.
                yield_now().await;
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Keep(hold) => self.keep(hold),
            Command::Leave(hold) => self.part_with(hold.id),
            Command::Release(release) => {
                self.part_with(release.hold.id);
                tokio::spawn(release.deliver(Arc::clone(&self.settings)));
            }
        }
    }

    fn keep(&mut self, hold: Arc<Hold>) {
        if hold.ending() == Some(Ending::Released) {
            return;
        }
        // Leases obtained together must not beat together: the first beat spreads them.
        let longest = longest_pause(&self.settings.options);
        let next = hold.granted_at + self.settings.random.part_of(longest, FIRST_SPREAD);
        let id = hold.id;
        let kept =
            Kept { hold, beat: Beat::GRANTED, sent: None, next, failures: 0, look_again: next };
        self.due.insert((next, id));
        self.kept.insert(id, kept);
    }

    /// Looks at every lease that is due, and sends the heartbeats that are; says whether any was.
    fn look_at_due(&mut self) -> bool {
        let now = self.settings.clock.now();
        if self.due.first().is_none_or(|(moment, _)| *moment > now) {
            return false;
        }
        // What is nearly due goes along: fewer and fuller batches, never a later heartbeat.
        let horizon = now + self.settings.options.heartbeat_period() / 64;
        let due: Vec<u64> = self.due.range(..=(horizon, u64::MAX)).map(|(_, id)| *id).collect();
        let mut batch = Batch::with_capacity(due.len().min(BATCH));
        for id in due {
            self.look_at(id, now, horizon, &mut batch);
            if batch.len() == BATCH {
                self.send(std::mem::replace(&mut batch, Batch::with_capacity(BATCH)), now);
            }
        }
        if batch.len() > 0 {
            self.send(batch, now);
        }
        true
    }

    fn look_at(&mut self, id: u64, now: Moment, horizon: Moment, batch: &mut Batch) {
        let settings = &self.settings;
        let Some(kept) = self.kept.get_mut(&id) else {
            return;
        };
        // Asking for the ending looks at the clock: a passed deadline is a loss from here on.
        let (None, Some(deadline)) = (kept.hold.ending(), kept.hold.deadline()) else {
            self.part_with(id);
            return;
        };
        if now >= deadline - settings.options.grace() {
            kept.hold.wind_down();
        }
        let limit = settings.options.request_timeout();
        if kept.sent.is_some_and(|sent| now >= sent + limit) {
            kept.sent = None;
            kept.next = now;
            kept.put_at_risk(settings, now, "heartbeat is late");
        }
        let is_due = kept.sent.is_none() && kept.next <= horizon;
        if is_due && self.slots.available_permits() > 0 {
            // None comes after the last one, which is the hand-over's.
            let Some(beat) = kept.hold.next_beat() else { return self.part_with(id) };
            kept.beat = beat;
            kept.sent = Some(now);
            batch.add(id, kept.hold.grant.clone(), kept.beat);
        }
        self.come_back(id, now);
    }

    /// Sets the time at which to look at a lease again: whatever happens to it next.
    fn come_back(&mut self, id: u64, now: Moment) {
        let options = &self.settings.options;
        let Some(kept) = self.kept.get_mut(&id) else {
            return;
        };
        let deadline = kept.hold.deadline().unwrap_or(now);
        let mut moment = match kept.sent {
            Some(sent) => sent + options.request_timeout(),
            // All slots are taken: one is free again before long.
            None if kept.next <= now => now + options.heartbeat_period() / 64,
            None => kept.next,
        };
        if !kept.hold.is_winding_down() {
            moment = moment.min(deadline - options.grace());
        }
        let moment = moment.min(deadline);
        self.due.remove(&(kept.look_again, id));
        self.due.insert((moment, id));
        kept.look_again = moment;
    }

    fn hear(&mut self, Answer { id, beat, heartbeat }: Answer) {
        let settings = Arc::clone(&self.settings);
        let now = settings.clock.now();
        let Some(kept) = self.kept.get_mut(&id) else {
            return;
        };
        if let Ok(Heartbeat::Lost(cause)) = heartbeat {
            kept.hold.end(Ending::Lost(cause));
            self.part_with(id);
            return;
        }
        if beat != kept.beat {
            // Given up as late, and sent again since: the later one will tell.
            return;
        }
        let Some(sent) = kept.sent.take() else { return };
        let grant = &kept.hold.grant;
        match heartbeat {
            Ok(Heartbeat::Extended) => {
                let margin = kept.hold.remaining();
                // Counted from before the request, since the store's clock may start anywhere
                // after it.
                let deadline = sent + settings.trusted(grant.ttl);
                if kept.hold.extend(deadline).is_err() {
                    self.part_with(id);
                    return;
                }
                settings.metrics.heartbeat(&grant.key, now.since(sent), margin);
                kept.failures = 0;
                // Spread a little more each time, and early enough to be on time all the same.
                let longest = longest_pause(&settings.options);
                kept.next = sent + settings.random.part_of(longest, 0.9);
            }
            // A later heartbeat of ours came first. It was counted when it was answered, or
            // will be: this one says nothing.
            Ok(Heartbeat::Overtaken | Heartbeat::Lost(_)) => {
                kept.next = now + Pauses::after(1, &settings.options, &settings.random);
            }
            // It was released meanwhile, and nothing is at risk.
            Err(_late) if kept.hold.ending().is_some() => return self.part_with(id),
            Err(error) => {
                kept.failures += 1;
                let pause = Pauses::after(kept.failures, &settings.options, &settings.random);
                kept.next = now + pause;
                debug!(
                    key = %grant.key, lessee = %grant.lessee, token = %grant.token,
                    error = &error as &dyn Error,
                    "heartbeat failed"
                );
                kept.put_at_risk(&settings, now, "heartbeat failed");
            }
        }
        self.come_back(id, now);
    }

    /// Sends heartbeats, all counted as sent at `now`.
    fn send(&self, batch: Batch, now: Moment) {
        let settings = Arc::clone(&self.settings);
        let answered = self.answered.clone();
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok();
        tokio::spawn(async move {
            let period = settings.options.heartbeat_period();
            let limit = settings.options.request_timeout();
            // A batch that hangs gives its slot to others, and has no say in the end.
            let slow = sleep_until(&*settings.clock, now + period / 16, period);
            let give_up = sleep_until(&*settings.clock, now + limit, limit);
            let unanswered = batch.deliver(&settings, &answered);
            let (mut slow, mut slot) = (pin!(slow), slot);
            let (mut give_up, mut unanswered) = (pin!(give_up), pin!(unanswered));
            loop {
                select! {
                    // Answers first: they may all be there although it is late.
                    biased;
                    () = &mut unanswered => return,
                    () = &mut give_up => return,
                    () = &mut slow, if slot.is_some() => slot = None,
                }
            }
        });
    }

    /// Lets go of a lease that has ended, and says so if it was lost.
    fn part_with(&mut self, id: u64) {
        let Some(kept) = self.kept.remove(&id) else {
            return;
        };
        self.due.remove(&(kept.look_again, id));
        if let Some(Ending::Lost(cause)) = kept.hold.ending() {
            let (grant, metrics) = (&kept.hold.grant, &self.settings.metrics);
            let held = self.settings.clock.now().since(kept.hold.granted_at);
            metrics.lost(&grant.key, held, cause);
            warn!(
                key = %grant.key, lessee = %grant.lessee, token = %grant.token, %cause,
                "lease lost"
            );
        }
    }
}

impl Drop for Heartbeater {
    /// Leases outlive their heartbeater only if its runtime has ended: nobody keeps them now.
    fn drop(&mut self) {
        // A lease that comes later finds nobody home, and ends by itself.
        for command in self.inbox.close() {
            if let Command::Keep(hold) = command {
                hold.end(Ending::Lost(LossCause::Abandoned));
            }
        }
        for kept in self.kept.values() {
            kept.hold.end(Ending::Lost(LossCause::Abandoned));
        }
    }
}

impl Kept {
    fn put_at_risk(&mut self, settings: &Settings, now: Moment, why: &str) {
        let margin = self.hold.deadline().map_or(Duration::ZERO, |at| at.since(now));
        settings.metrics.heartbeat_failed(&self.hold.grant.key, margin);
        self.hold.put_at_risk();
        let grant = &self.hold.grant;
        debug!(
            key = %grant.key, lessee = %grant.lessee, token = %grant.token, ?margin,
            "lease at risk: {why}"
        );
    }
}

/// The longest time from a grant or a heartbeat to the next heartbeat.
fn longest_pause(options: &LeaseOptions) -> Duration {
    options.heartbeat_period() * 19 / 20
}

/// The shortest time from a grant to the first look at its lease.
pub(crate) fn first_look(options: &LeaseOptions) -> Duration {
    longest_pause(options).mul_f64(FIRST_SPREAD)
}

/// The first heartbeat comes after this part of the longest pause, at least.
const FIRST_SPREAD: f64 = 0.5;
/// Heartbeats sent together at most.
const BATCH: usize = 256;
/// Batches on their way at most, not counting slow ones: 4,096 heartbeats.
const BATCHES_IN_FLIGHT: usize = 16;
