//! The loop of a running worker: its ticks, and its part of the plan.

mod comparing;
mod leaving;
mod reading;
mod reporting;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use lease_core::{Attempt, Lease, LeaseKey, Lessee, StoreError, StoreErrorKind, Written};
use tokio::select;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::log_throttle::{LogLevel, LogThrottle, LogThrottles};
use crate::plan::decide::{Decision, Surplus, begin, decide};
use crate::plan::fleet::{self, MemberTracker};
use crate::plan::{Member, MemberState, plan_amid};
use crate::processor::ProcessorError;
use crate::status::OpenWorker;
use crate::table::snapshot::Snapshot;
use crate::table::sync::SyncResult;
use crate::time::now;
use crate::worker::coexistence::{Coexistence, SharedTable};
use crate::worker::error::WorkerError;
use crate::worker::expected::Expected;
use crate::worker::missing_shards::MissingShardBackoff;
use crate::worker::parts::{Mode, WorkerParts};
use crate::worker::shard_task::{Order, TaskEnd};
use crate::worker::view::{Listed, Looked, Progress, View};

pub(crate) struct Running {
    worker: WorkerParts,
    coexistence: Option<Box<dyn Coexistence>>,
    /// The lease on the worker's own row.
    row: Option<Lease>,
    row_is_written: bool,
    /// `None` if the worker lists all rows at each tick.
    view: Option<View>,
    /// When the worker writes its notices.
    report_at: Option<Instant>,
    /// When the worker reads further rows that other workers have changed.
    read_at: Option<Instant>,
    /// Whether the last tick had nothing to do. As long as no row changes, the next ticks have nothing to do.
    is_at_rest: bool,
    tracker: MemberTracker,
    /// The workers that counted for the plan at the last tick.
    members: Vec<Member>,
    surplus: Surplus,
    /// Free shards that other workers should claim, each with the time at which this worker first saw the
    /// shard free.
    free: BTreeMap<LeaseKey, Instant>,
    /// The parents that the last listing lacks, for each shard of that listing.
    unlisted_parents: BTreeMap<LeaseKey, Vec<LeaseKey>>,
    missing: MissingShardBackoff,
    tasks: JoinSet<(LeaseKey, Option<TaskEnd>)>,
    reading: BTreeMap<LeaseKey, watch::Sender<Order>>,
    /// The leases of `reading`.
    leases: BTreeMap<LeaseKey, Weak<Lease>>,
    /// The shards whose last check got no answer. They are checked after the others.
    unanswered_checks: BTreeSet<LeaseKey>,
    out_of_time: CancellationToken,
    comparing: JoinSet<(Instant, SyncResult)>,
    synchronised: Option<Instant>,
    is_reshaped: bool,
    expected: Expected,
    unanswered: u32,
    unreadable: LogThrottles,
    namesakes: LogThrottle,
    stopped_by: Option<ProcessorError>,
    /// The end of the time for hand-overs. `None` until the worker leaves.
    deadline: Option<Instant>,
    _open: OpenWorker,
}

impl Running {
    pub(crate) fn new(worker: WorkerParts, coexistence: Option<Box<dyn Coexistence>>) -> Self {
        let view = (worker.mode == Mode::Session).then(View::new);
        Self {
            _open: worker.status.open(),
            worker,
            coexistence,
            row: None,
            row_is_written: false,
            view,
            report_at: None,
            read_at: None,
            is_at_rest: false,
            tracker: MemberTracker::default(),
            members: Vec::new(),
            surplus: Surplus::default(),
            free: BTreeMap::new(),
            unlisted_parents: BTreeMap::new(),
            missing: MissingShardBackoff::default(),
            tasks: JoinSet::new(),
            reading: BTreeMap::new(),
            leases: BTreeMap::new(),
            unanswered_checks: BTreeSet::new(),
            out_of_time: CancellationToken::new(),
            comparing: JoinSet::new(),
            synchronised: None,
            is_reshaped: false,
            expected: Expected::default(),
            unanswered: 0,
            unreadable: LogThrottles::default(),
            namesakes: LogThrottle::default(),
            stopped_by: None,
            deadline: None,
        }
    }

    /// After a stop, continues for at most the grace time.
    pub(crate) async fn run(mut self) -> Result<(), WorkerError> {
        let (stopping, grace) = (self.worker.stopping.clone(), self.worker.settings.grace);
        let out_of_time = async {
            stopping.cancelled().await;
            sleep(grace).await;
        };
        select! {
            biased;
            ended = self.work() => ended?,
            () = out_of_time => warn!("grace time exceeded, worker ended"),
        }
        self.stopped_by.map_or(Ok(()), |cause| Err(WorkerError::Stopped(cause)))
    }

    async fn work(&mut self) -> Result<(), WorkerError> {
        info!("worker started");
        self.begin().await.or_else(only_if_hopeless)?;
        let stopping = self.worker.stopping.clone();
        let mut next_tick = now();
        while self.deadline.is_none() || !self.reading.is_empty() {
            let deadline = self.deadline;
            select! {
                // The branches that stop the worker come first, so that no tick starts work that must end.
                biased;
                () = stopping.cancelled(), if deadline.is_none() => {
                    self.begin_to_leave();
                    next_tick = now();
                }
                () = until(deadline) => {
                    warn!(shards = self.reading.len(), "grace time exceeded");
                    break;
                }
                Some(ended) = self.tasks.join_next() => {
                    if self.has_ended(ended) {
                        next_tick = now();
                    }
                }
                Some(compared) = self.comparing.join_next() => {
                    if let Ok((begun, compared)) = compared
                        && self.has_compared(begun, compared)
                    {
                        next_tick = now();
                    }
                }
                Some(key) = self.expected.next() => self.claim(vec![key]).await,
                () = until(self.report_at) => self.report().await,
                () = sleep_until(next_tick) => {
                    let begun = now();
                    self.worker.status.report_behind();
                    self.worker.status.report_table_use();
                    let looked = self.tick(begun).await;
                    let is_unanswered = looked == Tick::Unanswered;
                    self.unanswered = if is_unanswered { self.unanswered + 1 } else { 0 };
                    next_tick = begun + self.pause(looked);
                }
                () = until(self.read_at) => {
                    if self.catch_up(next_tick).await == Progress::Done {
                        next_tick = now();
                    }
                }
            }
        }
        self.leave().await;
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), StoreError> {
        self.be_there().await?;
        match self.count().await {
            // The others find this worker when it holds a shard, or by an audit.
            Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                warn!(error = &error as &dyn std::error::Error, "changes not counted, retrying");
                Ok(())
            }
            counted => counted,
        }
    }

    /// The pause is short after a failure and while other workers should claim free shards. The pause is also
    /// short while a new worker does not count yet.
    fn pause(&self, looked: Tick) -> Duration {
        let tick = self.worker.settings.tick();
        match looked {
            // Later retries back off, because the store may be overloaded. After at most a ttl, the worker
            // notices the store's recovery.
            Tick::Unanswered if self.deadline.is_none() => {
                let doublings = self.unanswered.saturating_sub(1).min(10);
                let pause = tick.min(BEFORE_LOOKING_AGAIN) * (1 << doublings);
                pause.min(self.worker.settings.options.ttl())
            }
            Tick::Unanswered | Tick::Failed => tick.min(BEFORE_LOOKING_AGAIN),
            _ if !self.tracker.all_count() => self.settling(),
            Tick::Changing => tick.min(BEFORE_LOOKING_AGAIN),
            Tick::Stable => tick.min(self.next_expiry().unwrap_or(tick)),
        }
    }

    fn settling(&self) -> Duration {
        self.worker.settings.tick().min(self.worker.settings.settling)
    }

    async fn tick(&mut self, begun: Instant) -> Tick {
        self.forget_old_notices();
        let (is_there, failed) = self.write_own_row().await;
        // A leaving worker can hand over its shards without its own row.
        if !is_there && self.deadline.is_none() {
            return failed;
        }
        let Some(Looked { snapshot, members: mut seen, disowned, is_listed, is_changed }) =
            self.look().await
        else {
            if self.deadline.is_some() {
                self.act(self.release_all_shards()).await;
            }
            return Tick::Unanswered;
        };
        self.check_leases(disowned).await;
        // The worker's own state is newer than its row.
        let me = &self.worker.me;
        seen.iter_mut().filter(|member| member.name == me.name).for_each(|own| own.clone_from(me));
        let mut members = self.tracker.look(seen, begun, self.settling());
        members.sort_by(|one, other| one.name.cmp(&other.name));
        if is_listed == Listed::All {
            self.synchronise(&snapshot, &members);
        }
        if self.is_at_rest && !is_changed && members == self.members && self.deadline.is_none() {
            return Tick::Stable;
        }
        self.is_at_rest = false;
        let held = match &self.view {
            Some(view) => snapshot.placement(|row| view.is_live(row)),
            None => snapshot.placement(|row| snapshot.is_live(row)),
        };
        self.unlisted_parents = snapshot.unlisted_parents(&self.worker.settings.application);
        self.missing.keep(&held);
        let shards = held.len();
        let (held, taken) = self.share_with_others(&snapshot, held, &members);
        let reading = self.reading.keys().cloned().collect();
        let me = &self.worker.me;
        if me.state == MemberState::Live && !members.iter().any(|member| member.name == me.name) {
            // The plan assigns no shard to this worker yet.
            let decision = begin(me, &reading, &held);
            self.act(decision).await;
            return Tick::Stable;
        }
        let planned = plan_amid(&snapshot.reshaping(), &held, &members);
        let mut decision = decide(&self.worker.me.name, &reading, &held, &planned);
        self.worker.status.planned(shards, &members, &planned, &self.worker.me.name);
        let is_other = members != self.members;
        self.members = members;
        let needs_nothing = decision == Decision::default() && taken.is_empty();
        let wait = if is_other { Duration::ZERO } else { self.worker.settings.tick() };
        decision.give = self.surplus.due_hand_overs(decision.give, now(), wait);
        debug!(?decision, members = self.members.len(), "tick");
        let looked = self.compare_free(&held, &decision);
        let is_settled = self.free.is_empty() && self.tracker.all_count();
        self.is_at_rest = self.view.is_some() && is_settled && needs_nothing;
        self.act(decision).await;
        self.claim(taken).await;
        if is_there { looked } else { failed }
    }

    /// Returns whether the worker holds its own row, and the tick's result if it does not.
    async fn write_own_row(&mut self) -> (bool, Tick) {
        match self.be_there().await {
            Ok(()) => {
                self.count_or_retry().await;
                (self.row.is_some(), Tick::Failed)
            }
            Err(cause) => {
                let cause = &cause as &dyn std::error::Error;
                warn!(error = cause, "worker's own row not written");
                (false, Tick::Unanswered)
            }
        }
    }

    /// Reports `Changing` if another worker should claim a shard that became free a moment ago. That worker
    /// may have an older listing, so the next tick is due soon.
    fn compare_free(
        &mut self,
        held: &BTreeMap<LeaseKey, Option<Lessee>>,
        decision: &Decision,
    ) -> Tick {
        let now = now();
        let before = std::mem::take(&mut self.free);
        let is_free = |(_, holder): &(_, &Option<_>)| holder.is_none();
        for (key, _) in held.iter().filter(is_free) {
            if !decision.claim.contains(key) {
                self.free.insert(key.clone(), before.get(key).copied().unwrap_or(now));
            }
        }
        let is_new = |since: &Instant| now.duration_since(*since) < BEFORE_LOOKING_AGAIN;
        if self.free.values().any(is_new) { Tick::Changing } else { Tick::Stable }
    }

    /// Returns the shards that this library's workers may plan, and the shards to take from another library.
    fn share_with_others(
        &mut self,
        snapshot: &Snapshot,
        held: BTreeMap<LeaseKey, Option<Lessee>>,
        members: &[Member],
    ) -> (BTreeMap<LeaseKey, Option<Lessee>>, Vec<LeaseKey>) {
        let Self { worker, coexistence: Some(coexistence), .. } = self else {
            return (held, Vec::new());
        };
        let (owners, foreign) = (snapshot.owners(), snapshot.foreign());
        let table = SharedTable { held: &held, owners: &owners, foreign: &foreign, members };
        let now = now();
        let plannable = coexistence.plannable(&table, now);
        let me = members.iter().find(|member| member.name == worker.me.name);
        let me = me.filter(|_| worker.me.state == MemberState::Live);
        let taken = me.map(|me| coexistence.take(&table, me, now)).unwrap_or_default();
        (plannable, taken)
    }

    async fn look(&mut self) -> Option<Looked> {
        let listed = if self.must_list() { Listed::All } else { Listed::Changed };
        let Self { worker, view, unreadable, reading, deadline, .. } = self;
        let settings = &worker.settings;
        let reading = reading.keys().cloned().collect();
        let look = async {
            if let Some(view) = view {
                return view.look(worker, &reading, unreadable, listed).await;
            }
            let look = Snapshot::take(&*settings.table, &settings.application, unreadable);
            let snapshot = Arc::new(look.await?);
            worker.status.ticked(snapshot.rows);
            let members = snapshot.members.clone();
            let (is_listed, disowned) = (Listed::All, BTreeSet::new());
            Ok(Looked { snapshot, members, disowned, is_listed, is_changed: true })
        };
        // A slower list is out of date. A leaving worker waits less, because its grace time is running.
        let patience = if deadline.is_some() { settings.tick() } else { settings.options.ttl() };
        let in_time = timeout(patience, look);
        let looked = select! {
            biased;
            // A stopping worker lists the rows again when it leaves.
            () = worker.stopping.cancelled(), if deadline.is_none() => return None,
            () = until(*deadline) => return None,
            looked = in_time => looked,
        };
        self.follow_view();
        match looked {
            Ok(Ok(looked)) => Some(looked),
            Ok(Err(cause)) => {
                let error = &cause as &dyn std::error::Error;
                warn!(error, "rows not listed");
                None
            }
            Err(_elapsed) => {
                warn!("rows not listed in time");
                None
            }
        }
    }

    async fn act(&mut self, decision: Decision) {
        let most = self.worker.settings.most_hand_overs.unwrap_or(usize::MAX);
        let given: BTreeMap<_, _> = decision.give.into_iter().collect();
        let gives = |order: &watch::Sender<Order>| matches!(&*order.borrow(), Order::Give(_));
        let to_be_given = given.keys().filter_map(|key| self.reading.get(key));
        let mut under_way = to_be_given.filter(|order| gives(order)).count();
        for (key, order) in &self.reading {
            let wanted = given.get(key).map_or(Order::Read, |to| Order::Give(to.clone()));
            if wanted != Order::Read && !gives(order) {
                if under_way >= most {
                    continue;
                }
                under_way += 1;
            }
            order.send_if_modified(|order| std::mem::replace(order, wanted.clone()) != wanted);
        }
        self.expected.set(decision.expect, &self.worker.settings.table);
        self.claim(decision.claim).await;
    }

    async fn be_there(&mut self) -> Result<(), StoreError> {
        if self.row.as_ref().is_none_or(|row| !row.is_held()) {
            self.row = None;
            self.row_is_written = false;
            match self.worker.row_locker.obtain(&self.worker.own_key).await? {
                Attempt::Obtained(lease) => {
                    if let Some(view) = &mut self.view {
                        self.worker.locker = self.worker.locker.under(&lease)?;
                        view.start(&lease);
                    }
                    self.row = Some(lease);
                    self.namesakes = LogThrottle::default();
                }
                Attempt::Held(holder) => {
                    let left = holder.expires_in;
                    match self.namesakes.once_more() {
                        LogLevel::Warn => warn!(?left, "{NAMESAKE}"),
                        LogLevel::WarnThenRarely => {
                            warn!(?left, "{NAMESAKE}; further attempts are logged rarely");
                        }
                        LogLevel::Debug => debug!(?left, "{NAMESAKE}"),
                    }
                }
            }
        }
        self.write_row().await
    }

    async fn write_row(&mut self) -> Result<(), StoreError> {
        let Self { worker, row: Some(row), view, row_is_written, .. } = self else { return Ok(()) };
        if view.as_mut().is_some_and(View::take_unwritten) {
            *row_is_written = false;
        }
        if *row_is_written {
            return Ok(());
        }
        let (settings, me) = (&worker.settings, &worker.me);
        let change = fleet::change(me);
        let change = match view {
            Some(view) => view.write(change),
            None => change,
        };
        // `Lease::update` would report a timeout as an error, and the worker would skip this tick.
        let written = settings.table.update(row.grant(), &change);
        let written = timeout(settings.options.request_timeout(), written).await;
        if let (None | Some(Err(_)), Some(view)) = (written.as_ref().ok(), view) {
            view.write_is_unanswered();
        }
        // Without an answer, the next tick writes the row again.
        if let Ok(written) = written {
            *row_is_written = written? == Written::Applied;
        }
        Ok(())
    }
}

/// The store does not distinguish these cases. After half a ttl, the worker may not repeat its own unanswered
/// claim.
const NAMESAKE: &str = "the worker's own row is held: by another worker of this name, by an earlier \
process of this worker, or through a request whose answer was lost";

/// Returns only errors that an operator must correct.
fn only_if_hopeless(error: StoreError) -> Result<(), WorkerError> {
    if error.is_retryable() {
        warn!(error = &error as &dyn std::error::Error, "worker's own row not written yet");
        return Ok(());
    }
    Err(error.into())
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tick {
    /// No other worker should claim a shard soon.
    Stable,
    /// Other workers should soon claim free shards.
    Changing,
    Unanswered,
    /// This worker does not hold its own row.
    Failed,
}

/// During this pause, the worker that should claim a free shard lists the rows.
const BEFORE_LOOKING_AGAIN: Duration = Duration::from_secs(1);
