//! The heartbeater: one task per locker keeps all its leases alive, or tells that they are lost.
//!
//! It never waits for the store. Heartbeats are sent in batches by tasks of their own, whose
//! answers come back over a channel; so a store that hangs delays no deadline and no other
//! lease's heartbeat.

use std::collections::VecDeque;
use std::error::Error;
use std::future::{poll_fn, ready};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::select;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::consume_budget;
use tracing::{debug, warn};

use crate::alarm::Alarm;
use crate::batch::{Answer, Answered, Batch, Sent};
use crate::clock::{Moment, sleep_until};
use crate::error::StoreError;
use crate::expiry::Observations;
use crate::grant::Heartbeat;
use crate::hold::{Ending, Hold};
use crate::inbox::{Command, Inbox};
use crate::kept::{Kept, Leases};
use crate::lost::LossCause;
use crate::options::LeaseOptions;
use crate::release::Release;
use crate::retry::Pauses;
use crate::settings::Settings;
use crate::timetable::Timetable;

pub(crate) struct Heartbeater {
    settings: Arc<Settings>,
    inbox: Inbox,
    answers: mpsc::UnboundedReceiver<Vec<Answer>>,
    answered: Answered,
    leases: Leases,
    /// When to look at which lease again, by its place.
    due: Timetable,
    /// Batches that may be on their way and not yet slow.
    slots: Arc<Semaphore>,
    /// The places of those whose heartbeat is due while all slots are taken, in the order in which
    /// they came.
    waiting: VecDeque<usize>,
    /// Releases of dropped leases that wait for a slot, in the order in which they came.
    releases: VecDeque<Release>,
    /// Releases that may be on their way and not yet slow. Not the heartbeats' slots: neither kind of
    /// request can starve the other.
    release_slots: Arc<Semaphore>,
    observed: Observations,
    /// How late this turn came for what was due: others keep the runtime busy.
    late: Duration,
}

impl Heartbeater {
    pub(crate) fn new(settings: Arc<Settings>, inbox: Inbox) -> Self {
        let (answered, answers) = mpsc::unbounded_channel();
        let due = Timetable::new(settings.options.heartbeat_period() / 64);
        Self {
            settings,
            inbox,
            answers,
            answered,
            leases: Leases::default(),
            due,
            slots: Arc::new(Semaphore::new(BATCHES_IN_FLIGHT)),
            waiting: VecDeque::new(),
            releases: VecDeque::new(),
            release_slots: Arc::new(Semaphore::new(RELEASES_IN_FLIGHT)),
            observed: Observations::default(),
            late: Duration::ZERO,
        }
    }

    /// Runs until every locker and lease that could ask for something is gone.
    pub(crate) async fn run(mut self) {
        let mut commands = Vec::new();
        let mut answers = Vec::new();
        let mut alarm = pin!(Alarm::default());
        let mut is_open = true;
        // The last locker may be gone before its last releases are sent.
        while is_open || !self.releases.is_empty() {
            let settings = Arc::clone(&self.settings);
            let earliest = self.due.first();
            let (looks_at, is_inbox_empty) = self.inbox.next_look(earliest);
            select! {
                // Every branch only wakes the loop: each turn does the work of all branches. So none
                // starves another, and the order decides nothing.
                biased;
                () = alarm.as_mut().ring_at(looks_at, &settings) => (),
                _ = self.answers.recv_many(&mut answers, BATCH) => (),
                () = one_of(&self.slots), if !self.waiting.is_empty() => (),
                () = one_of(&self.release_slots), if !self.releases.is_empty() => (),
                () = ready(()), if !is_inbox_empty => (),
                is_rung = self.inbox.rung(), if is_open => is_open = is_rung,
            }
            let now = settings.clock.now();
            self.late = looks_at.map_or(Duration::ZERO, |at| now.since(at));
            if self.late > settings.options.heartbeat_period() / 64 {
                self.observed.polled_late(now, self.late, settings.options.ttl());
            }
            // Behind busy tasks a heartbeat is due at every turn, and the alarm always wins. No more
            // than are there now: a store that answers without end must not outrun the deadlines.
            for _ in 0..self.answers.len() {
                answers.extend(self.answers.try_recv());
            }
            self.hear(answers.drain(..).flatten().collect());
            self.inbox.take(&mut commands, BATCH, settings.clock.now());
            for command in commands.drain(..) {
                self.obey(command);
            }
            // An inbox that is never empty leaves others their turn.
            consume_budget().await;
            self.send_releases();
            let has_waited = self.look_at_waiting();
            if self.look_at_due() || has_waited {
                // The batches just spawned run before more are made.
                run_after_ready_tasks().await;
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Keep(hold) => self.keep(hold),
            Command::Leave(hold) => self.stop(hold.id),
            Command::Release(release) => {
                self.stop(release.hold.id);
                self.releases.push_back(release);
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
        let place = self.leases.insert(Kept::new(hold, next));
        self.due.set(place, next);
    }

    fn stop(&mut self, id: u64) {
        if let Some(place) = self.leases.place_of(id) {
            self.part_with(place);
        }
    }

    /// Sends releases, and no more at once than there are slots for.
    fn send_releases(&mut self) {
        while !self.releases.is_empty() {
            let Ok(slot) = Arc::clone(&self.release_slots).try_acquire_owned() else { return };
            if let Some(release) = self.releases.pop_front() {
                tokio::spawn(release.deliver_in(slot, Arc::clone(&self.settings)));
            }
        }
    }

    /// Looks at every lease that is due, and sends the heartbeats that are; says whether any was.
    fn look_at_due(&mut self) -> bool {
        let now = self.settings.clock.now();
        if self.due.first().is_none_or(|moment| moment > now) {
            return false;
        }
        let places = self.due.take(self.horizon(now));
        self.look_at_all(&places, now);
        true
    }

    /// Looks at those whose heartbeat waits for a slot, as many as there are slots for; says whether
    /// any was.
    fn look_at_waiting(&mut self) -> bool {
        let mut is_any = false;
        while !self.waiting.is_empty() && self.slots.available_permits() > 0 {
            let count = self.waiting.len().min(BATCH);
            let places: Vec<_> = self.waiting.drain(..count).collect();
            for place in &places {
                // Another lease may have come there since: then that one is looked at once more.
                if let Some(kept) = self.leases.at(*place) {
                    kept.is_waiting = false;
                }
            }
            let now = self.settings.clock.now();
            self.look_at_all(&places, now);
            is_any = true;
        }
        is_any
    }

    /// What is nearly due goes along: fewer and fuller batches, never a later heartbeat. So does what
    /// would be due before the next turn, where this one came late.
    fn horizon(&self, now: Moment) -> Moment {
        let period = self.settings.options.heartbeat_period();
        now + self.late.clamp(period / 64, period / 2)
    }

    fn look_at_all(&mut self, places: &[usize], now: Moment) {
        let mut batch = Batch::with_capacity(places.len().min(BATCH));
        for some in places.chunks(BATCH) {
            // One that ends meanwhile is asked for once for nothing.
            let deadlines = self.leases.deadlines(some.iter().copied());
            for (place, deadline) in some.iter().zip(deadlines) {
                self.look_at(*place, deadline, now, &mut batch);
                if batch.len() == BATCH {
                    self.send(std::mem::replace(&mut batch, Batch::with_capacity(BATCH)), now);
                }
            }
        }
        if batch.len() > 0 {
            self.send(batch, now);
        }
    }

    fn look_at(&mut self, place: usize, deadline: Option<Moment>, now: Moment, batch: &mut Batch) {
        let horizon = self.horizon(now);
        let settings = &self.settings;
        let Some(kept) = self.leases.at(place) else {
            return;
        };
        let deadline = match deadline {
            // Asking for the ending looks at the clock: a passed deadline is a loss from here on.
            Some(deadline) if now < deadline || kept.hold.ending().is_none() => deadline,
            _ => return self.part_with(place),
        };
        if now >= deadline - settings.options.grace() {
            kept.wind_down();
        }
        let limit = settings.options.request_timeout();
        if kept.sent.is_some_and(|sent| now >= sent + limit) {
            kept.sent = None;
            kept.next = now;
            kept.put_at_risk(settings, now, "heartbeat is late");
        }
        let is_due = kept.sent.is_none() && kept.next <= horizon;
        if is_due && let Some(silence) = settings.silence(now) {
            kept.hold_back(settings, now, silence);
        } else if is_due && self.slots.available_permits() == 0 {
            if !std::mem::replace(&mut kept.is_waiting, true) {
                self.waiting.push_back(place);
            }
        } else if is_due {
            // None comes after the last one, which is the hand-over's.
            let Some(beat) = kept.hold.next_beat() else { return self.part_with(place) };
            kept.beat = beat;
            kept.sent = Some(now);
            kept.unconfirmed.get_or_insert(now);
            kept.is_waiting = false;
            batch.add(Sent { place, id: kept.id, beat }, kept.hold.grant.clone());
        }
        self.due.set(place, kept.look_again(now, &settings.options));
    }

    fn hear(&mut self, answers: Vec<Answer>) {
        if answers.is_empty() {
            return;
        }
        let now = self.settings.clock.now();
        if answers.iter().any(|answer| answer.heartbeat.is_ok()) {
            self.observed.store_answered(now);
        }
        let places = answers.iter().map(|answer| answer.to.place);
        self.due.have_at_hand(places.clone());
        let deadlines = self.leases.deadlines(places);
        for (Answer { to, heartbeat }, deadline) in answers.into_iter().zip(deadlines) {
            let margin = deadline.map_or(Duration::ZERO, |deadline| deadline.since(now));
            self.hear_one(to, heartbeat, now, margin);
        }
    }

    /// Of a lease that had `margin` left.
    fn hear_one(
        &mut self,
        to: Sent,
        heartbeat: Result<Heartbeat, StoreError>,
        now: Moment,
        margin: Duration,
    ) {
        let settings = &self.settings;
        let Some(kept) = self.leases.still_at(to.place, to.id) else {
            return;
        };
        if let Ok(Heartbeat::Lost(cause)) = heartbeat {
            kept.is_lost_at_store = true;
            kept.hold.end(Ending::Lost(cause));
            return self.part_with(to.place);
        }
        if to.beat != kept.beat {
            // Given up as late, and sent again since: the later one will tell.
            return;
        }
        let Some(sent) = kept.sent.take() else { return };
        let grant = &kept.hold.grant;
        match heartbeat {
            Ok(Heartbeat::Extended) => {
                // Counted from before the request, since the store's clock may start anywhere
                // after it.
                let deadline = sent + settings.trusted(grant.ttl);
                if kept.hold.extend(deadline, now).is_err() {
                    return self.part_with(to.place);
                }
                settings.metrics.heartbeat(&grant.key, now.since(sent), margin);
                kept.take_out_of_risk();
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
            Err(_late) if kept.hold.ending().is_some() => return self.part_with(to.place),
            Err(error) => {
                kept.failures += 1;
                let pause = Pauses::after(kept.failures, &settings.options, &settings.random);
                kept.next = now + pause;
                debug!(
                    key = %grant.key, lessee = %grant.lessee, token = %grant.token,
                    error = &error as &dyn Error,
                    "heartbeat failed"
                );
                kept.put_at_risk(settings, now, "heartbeat failed");
                kept.error = Some(error);
            }
        }
        self.due.set(to.place, kept.look_again(now, &settings.options));
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
    fn part_with(&mut self, place: usize) {
        let Some(kept) = self.leases.remove(place) else {
            return;
        };
        self.due.clear(place);
        if let Some(Ending::Lost(cause)) = kept.hold.ending() {
            let (grant, metrics) = (&kept.hold.grant, &self.settings.metrics);
            let now = self.settings.clock.now();
            metrics.lost(&grant.key, now.since(kept.hold.granted_at), cause);
            let is_expired = cause == LossCause::Expired;
            let reason = is_expired.then(|| self.observed.reason_for_expiry(&kept, now));
            let error = kept.error.as_ref().map(|error| error as &(dyn Error + 'static));
            warn!(
                key = %grant.key, lessee = %grant.lessee, token = %grant.token, %cause,
                reason = reason.map(tracing::field::display), error,
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
        for kept in self.leases.iter() {
            kept.hold.end(Ending::Lost(LossCause::Abandoned));
        }
    }
}

/// Puts this task behind those that are ready.
///
/// `yield_now` would wait until the runtime has nothing to do or polls its driver: behind busy tasks,
/// after 61 turns of theirs.
async fn run_after_ready_tasks() {
    let mut is_queued = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_queued, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Until one of them is free.
async fn one_of(slots: &Semaphore) {
    drop(slots.acquire().await);
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
/// Releases of dropped leases on their way at most, not counting slow ones.
const RELEASES_IN_FLIGHT: usize = 1024;
