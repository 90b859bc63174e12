//! The heartbeater: one task per locker, which extends all leases of the locker and reports lost leases.
//!
//! The heartbeater never waits for the store: spawned tasks send the heartbeats in batches. So a
//! store that hangs delays no deadline. See docs/design/005-heartbeats-at-scale.md.

use std::collections::VecDeque;
use std::error::Error;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::consume_budget;
use tracing::{debug, warn};

use crate::clock::{Moment, sleep_until};
use crate::error::StoreError;
use crate::heartbeat::batch::{Answer, AnswerSender, Batch, Sent};
use crate::heartbeat::command_queue::{Command, CommandReceiver};
use crate::heartbeat::ending::Ending;
use crate::heartbeat::entry::{HeartbeatEntries, HeartbeatEntry};
use crate::heartbeat::expiry_reason::Observations;
use crate::heartbeat::lease_cell::LeaseCell;
use crate::heartbeat::poll_delay::PollDelay;
use crate::heartbeat::release::Release;
use crate::heartbeat::timer_queue::TimerQueue;
use crate::heartbeat::wake_timer::WakeTimer;
use crate::lost::LossCause;
use crate::options::LeaseOptions;
use crate::settings::Settings;
use crate::settings::backoff::Pauses;
use crate::store::grant::Heartbeat;

pub(crate) struct Heartbeater {
    settings: Arc<Settings>,
    command_queue: CommandReceiver,
    answers: mpsc::UnboundedReceiver<Vec<Answer>>,
    answered: AnswerSender,
    entries: HeartbeatEntries,
    due: TimerQueue,
    /// Slots for unanswered batches that are not yet slow.
    slots: Arc<Semaphore>,
    /// Indices of leases whose heartbeat is due while all slots are taken, the oldest first.
    waiting: VecDeque<usize>,
    releases: VecDeque<Release>,
    /// Slots for unanswered releases that are not yet slow. Separate slots ensure that neither kind
    /// of request can starve the other.
    release_slots: Arc<Semaphore>,
    observed: Observations,
    /// How late the runtime last polled this task. Busy tasks delay polls.
    late: Duration,
}

impl Heartbeater {
    pub(crate) fn new(settings: Arc<Settings>, command_queue: CommandReceiver) -> Self {
        let (answered, answers) = mpsc::unbounded_channel();
        let due = TimerQueue::new(settings.options.heartbeat_period() / 64);
        let observed = Observations::new(settings.options.ttl());
        Self {
            settings,
            command_queue,
            answers,
            answered,
            entries: HeartbeatEntries::default(),
            due,
            slots: Arc::new(Semaphore::new(BATCHES_IN_FLIGHT)),
            waiting: VecDeque::new(),
            releases: VecDeque::new(),
            release_slots: Arc::new(Semaphore::new(RELEASES_IN_FLIGHT)),
            observed,
            late: Duration::ZERO,
        }
    }

    pub(crate) async fn run(mut self) {
        let mut commands = Vec::new();
        let mut answers = Vec::new();
        let mut wake_timer = pin!(WakeTimer::default());
        let mut is_open = true;
        let mut poll_delay = PollDelay::new(self.settings.options.heartbeat_period());
        // The last locker may be dropped before its last releases are sent.
        while is_open || !self.releases.is_empty() {
            let settings = Arc::clone(&self.settings);
            let earliest = self.due.first();
            let (polled_at, has_no_commands) = self.command_queue.announce_poll(earliest);
            select! {
                // Every branch only wakes the loop, and each pass does the work of all branches. So
                // no branch starves another branch.
                biased;
                () = wake_timer.as_mut().wait_until(polled_at, &settings) => (),
                _ = self.answers.recv_many(&mut answers, BATCH) => (),
                () = one_of(&self.slots), if !self.waiting.is_empty() => (),
                () = one_of(&self.release_slots), if !self.releases.is_empty() => (),
                () = ready(()), if !has_no_commands => (),
                is_woken = self.command_queue.woken(), if is_open => is_open = is_woken,
                // This branch is last, because its poll makes the task ready. The branch replaces a late
                // timer.
                () = poll_delay.yield_and_measure(&*settings.clock), if poll_delay.is_late() && polled_at.is_some() => (),
            }
            let now = settings.clock.now();
            self.late = polled_at.map_or(Duration::ZERO, |at| now.since(at));
            if self.late > settings.options.heartbeat_period() / 64 {
                self.observed.polled_late(now, self.late);
            }
            // Reads answers on every pass: if tasks are busy, the timer always ends `select!`. Reads only
            // the answers that are here now, because an endless stream of answers would delay deadlines.
            for _ in 0..self.answers.len() {
                answers.extend(self.answers.try_recv());
            }
            self.handle_answers(answers.drain(..).flatten().collect());
            self.command_queue.take(&mut commands, BATCH, settings.clock.now());
            for command in commands.drain(..) {
                self.execute(command);
            }
            // A queue that is never empty must not starve other tasks.
            consume_budget().await;
            self.send_releases();
            let has_waited = self.look_at_waiting();
            if self.look_at_due() || has_waited {
                poll_delay.yield_and_measure(&*settings.clock).await;
            }
        }
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Add(cell) => self.add(cell),
            Command::Remove(cell) if cell.standing().is_some() => self.report_child(&cell),
            Command::Remove(cell) => self.remove_by_id(cell.id),
            Command::Release(release) => {
                self.remove_by_id(release.cell.id);
                self.releases.push_back(release);
            }
        }
    }

    fn add(&mut self, cell: Arc<LeaseCell>) {
        if cell.ending() == Some(Ending::Released) {
            return;
        }
        let longest = longest_pause(&self.settings.options);
        let next = cell.granted_at + self.settings.random.part_of(longest, FIRST_SPREAD);
        let index = self.entries.insert(HeartbeatEntry::new(cell, next));
        self.due.set(index, next);
    }

    /// Only the loss of the session itself is logged as a warning.
    fn report_child(&self, cell: &LeaseCell) {
        let Some(Ending::Lost(cause)) = cell.ending() else { return };
        let (grant, now) = (&cell.grant, self.settings.clock.now());
        self.settings.metrics.lost(&grant.key, now.since(cell.granted_at), cause);
        debug!(key = %grant.key, lessee = %grant.lessee, token = %grant.token, %cause, "lease lost");
    }

    fn remove_by_id(&mut self, id: u64) {
        if let Some(index) = self.entries.index_of(id) {
            self.remove(index);
        }
    }

    fn send_releases(&mut self) {
        while !self.releases.is_empty() {
            let Ok(slot) = Arc::clone(&self.release_slots).try_acquire_owned() else { return };
            if let Some(release) = self.releases.pop_front() {
                tokio::spawn(release.send_in_slot(slot, Arc::clone(&self.settings)));
            }
        }
    }

    fn look_at_due(&mut self) -> bool {
        let now = self.settings.clock.now();
        if self.due.first().is_none_or(|moment| moment > now) {
            return false;
        }
        let indices = self.due.take(self.horizon(now));
        self.look_at_all(&indices, now);
        true
    }

    /// Returns whether a lease was waiting.
    fn look_at_waiting(&mut self) -> bool {
        let mut is_any = false;
        while !self.waiting.is_empty() && self.slots.available_permits() > 0 {
            let count = self.waiting.len().min(BATCH);
            let indices: Vec<_> = self.waiting.drain(..count).collect();
            for index in &indices {
                // Another lease may have this index by now. An extra look does no harm.
                if let Some(entry) = self.entries.at(*index) {
                    entry.is_waiting = false;
                }
            }
            let now = self.settings.clock.now();
            self.look_at_all(&indices, now);
            is_any = true;
        }
        is_any
    }

    /// Every heartbeat that is due before the horizon is sent now, which makes fewer and fuller batches.
    /// After a late poll, the horizon includes the heartbeats that are due before the next poll.
    fn horizon(&self, now: Moment) -> Moment {
        let period = self.settings.options.heartbeat_period();
        now + self.late.clamp(period / 64, period / 2)
    }

    fn look_at_all(&mut self, indices: &[usize], now: Moment) {
        let mut batch = Batch::with_capacity(indices.len().min(BATCH));
        for some in indices.chunks(BATCH) {
            // A lease that ends after this read may get one useless heartbeat.
            let deadlines = self.entries.deadlines(some.iter().copied());
            for (index, deadline) in some.iter().zip(deadlines) {
                self.look_at(*index, deadline, now, &mut batch);
                if batch.len() == BATCH {
                    self.send(std::mem::replace(&mut batch, Batch::with_capacity(BATCH)), now);
                }
            }
        }
        if batch.len() > 0 {
            self.send(batch, now);
        }
    }

    fn look_at(&mut self, index: usize, deadline: Option<Moment>, now: Moment, batch: &mut Batch) {
        let horizon = self.horizon(now);
        let settings = &self.settings;
        let Some(entry) = self.entries.at(index) else {
            return;
        };
        let deadline = match deadline {
            // `ending` checks the clock, so a passed deadline counts as a loss from here on.
            Some(deadline) if now < deadline || entry.cell.ending().is_none() => deadline,
            _ => return self.remove(index),
        };
        if now >= deadline - settings.options.grace() {
            entry.wind_down();
        }
        let limit = settings.options.request_timeout();
        if entry.sent.is_some_and(|sent| now >= sent + limit) {
            entry.sent = None;
            entry.next = now;
            entry.put_at_risk(settings, now, "heartbeat is late");
        }
        let is_due = entry.sent.is_none() && entry.next <= horizon;
        if is_due && let Some(silence) = settings.silence(now) {
            entry.hold_back(settings, now, silence);
        } else if is_due && self.slots.available_permits() == 0 {
            if !std::mem::replace(&mut entry.is_waiting, true) {
                self.waiting.push_back(index);
            }
        } else if is_due {
            // If there is no next heartbeat, a hand-over has sent the last heartbeat.
            let Some(beat) = entry.cell.next_beat() else { return self.remove(index) };
            entry.beat = beat;
            entry.sent = Some(now);
            entry.unconfirmed.get_or_insert(now);
            entry.is_waiting = false;
            batch.add(Sent { index, id: entry.id, beat }, entry.cell.grant.clone());
        }
        self.due.set(index, entry.next_look(now, &settings.options));
    }

    fn handle_answers(&mut self, answers: Vec<Answer>) {
        if answers.is_empty() {
            return;
        }
        let now = self.settings.clock.now();
        if answers.iter().any(|answer| answer.heartbeat.is_ok()) {
            self.observed.store_answered(now);
        }
        let indices = answers.iter().map(|answer| answer.to.index);
        self.due.prefetch(indices.clone());
        let deadlines = self.entries.deadlines(indices);
        for (Answer { to, heartbeat }, deadline) in answers.into_iter().zip(deadlines) {
            let margin = deadline.map_or(Duration::ZERO, |deadline| deadline.since(now));
            self.handle_answer(to, heartbeat, now, margin);
        }
    }

    fn handle_answer(
        &mut self,
        to: Sent,
        heartbeat: Result<Heartbeat, StoreError>,
        now: Moment,
        margin: Duration,
    ) {
        let settings = &self.settings;
        let Some(entry) = self.entries.still_at(to.index, to.id) else {
            return;
        };
        if let Ok(Heartbeat::Lost(cause)) = heartbeat {
            entry.is_lost_at_store = true;
            entry.cell.end(Ending::Lost(cause));
            return self.remove(to.index);
        }
        if to.beat != entry.beat {
            return;
        }
        let Some(sent) = entry.sent.take() else { return };
        let grant = &entry.cell.grant;
        match heartbeat {
            Ok(Heartbeat::Extended) => {
                // Counted from before the request: the store may apply it at any time after.
                let trusted = settings.trusted(grant.ttl);
                let deadline = sent + trusted;
                if entry.cell.extend(deadline, now).is_err() {
                    return self.remove(to.index);
                }
                settings.metrics.heartbeat(&grant.key, now.since(sent), margin, trusted);
                entry.take_out_of_risk();
                // The pause is random, so the heartbeats of many leases spread further each time.
                let longest = longest_pause(&settings.options);
                entry.next = sent + settings.random.part_of(longest, 0.9);
            }
            // A later heartbeat of this lease was applied first. The answer to that heartbeat counts.
            Ok(Heartbeat::Overtaken | Heartbeat::Lost(_)) => {
                entry.next = now + Pauses::after(1, &settings.options, &settings.random);
            }
            // The lease was released meanwhile, so nothing is at risk.
            Err(_late) if entry.cell.ending().is_some() => return self.remove(to.index),
            Err(error) => {
                entry.failures += 1;
                let pause = Pauses::after(entry.failures, &settings.options, &settings.random);
                entry.next = now + pause;
                debug!(
                    key = %grant.key, lessee = %grant.lessee, token = %grant.token,
                    error = &error as &dyn Error,
                    "heartbeat failed"
                );
                entry.put_at_risk(settings, now, "heartbeat failed");
                entry.error = Some(error);
            }
        }
        self.due.set(to.index, entry.next_look(now, &settings.options));
    }

    fn send(&self, batch: Batch, now: Moment) {
        let settings = Arc::clone(&self.settings);
        let answered = self.answered.clone();
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok();
        tokio::spawn(async move {
            let period = settings.options.heartbeat_period();
            let limit = settings.options.request_timeout();
            // A slow batch frees its slot before the answer. A batch that hangs is dropped.
            let slow = sleep_until(&*settings.clock, now + period / 16, period);
            let give_up = sleep_until(&*settings.clock, now + limit, limit);
            let unanswered = batch.send(&settings, &answered);
            let (mut slow, mut slot) = (pin!(slow), slot);
            let (mut give_up, mut unanswered) = (pin!(give_up), pin!(unanswered));
            loop {
                select! {
                    // Polls the answers first: if this poll is late, all answers may have arrived.
                    biased;
                    () = &mut unanswered => return,
                    () = &mut give_up => return,
                    () = &mut slow, if slot.is_some() => slot = None,
                }
            }
        });
    }

    fn remove(&mut self, index: usize) {
        let Some(entry) = self.entries.remove(index) else {
            return;
        };
        self.due.clear(index);
        if let Some(Ending::Lost(cause)) = entry.cell.ending() {
            let (grant, metrics) = (&entry.cell.grant, &self.settings.metrics);
            let now = self.settings.clock.now();
            metrics.lost(&grant.key, now.since(entry.cell.granted_at), cause);
            let is_expired = cause == LossCause::Expired;
            let reason = is_expired.then(|| self.observed.reason_for_expiry(&entry, now));
            let error = entry.error.as_ref().map(|error| error as &(dyn Error + 'static));
            warn!(
                key = %grant.key, lessee = %grant.lessee, token = %grant.token, %cause,
                reason = reason.map(tracing::field::display), error,
                "lease lost"
            );
        }
    }
}

impl Drop for Heartbeater {
    /// The remaining leases outlive their heartbeater only if its runtime has ended.
    fn drop(&mut self) {
        // A lease that is granted later finds the queue closed, and ends itself.
        for command in self.command_queue.close() {
            if let Command::Add(cell) = command {
                cell.end(Ending::Lost(LossCause::Abandoned));
            }
        }
        for entry in self.entries.iter() {
            entry.cell.end(Ending::Lost(LossCause::Abandoned));
        }
    }
}

async fn one_of(slots: &Semaphore) {
    drop(slots.acquire().await);
}

fn longest_pause(options: &LeaseOptions) -> Duration {
    options.heartbeat_period() * 19 / 20
}

pub(crate) fn first_look(options: &LeaseOptions) -> Duration {
    longest_pause(options).mul_f64(FIRST_SPREAD)
}

const FIRST_SPREAD: f64 = 0.5;
const BATCH: usize = 256;
/// Slow batches do not count. The limit is 4,096 unanswered heartbeats.
const BATCHES_IN_FLIGHT: usize = 16;
/// Slow releases do not count.
const RELEASES_IN_FLIGHT: usize = 1024;
