//! The register of the model: requests wait in it until the search treats them.

use std::collections::hash_map::DefaultHasher;
use std::future::poll_fn;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream;
use lease_core::store::{Beat, BoxStream, Clock, Moment, ServerClock};
use lease_core::{FencingToken, LeaseKey, StoreError, StoreErrorKind};
use lease_register::{Record, Register, Replaced, Version, Versioned, Versions};
use uuid::Uuid;

/// What the search explores.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) versions: Versions,
    pub(crate) breach: Option<Breach>,
    /// How many requests may have a fault in one run.
    pub(crate) faults: usize,
    /// How often time may advance by a unit in one run.
    pub(crate) ticks: usize,
    /// How often an operator may delete the record in one run.
    pub(crate) deletions: usize,
}

/// A rule that the register or a machine breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breach {
    IgnoresVersions,
    /// The version is a hash of the record without its mark and its token.
    VersionIsContent,
    VersionsRestart,
    /// The clock of the second contender runs twice as fast.
    HastyClock,
    /// The second contender takes the time of its own machine, which is ahead, for the service's time.
    ForeignClock,
    /// The register does not store the number of a heartbeat.
    KeepsTheBeat,
}

/// Shared by the register, its clients, the clocks, and the search.
#[derive(Debug, Clone)]
pub(crate) struct World(Arc<Mutex<State>>);

#[derive(Debug)]
pub(crate) struct State {
    setup: Setup,
    pub(crate) now: Duration,
    last: u64,
    stored: Option<(u64, Record)>,
    requests: Vec<Request>,
    tokens: Vec<FencingToken>,
    /// What each client has heard, and when. This determines what the client does next.
    heard: [Vec<String>; 3],
    /// Until when each contender holds the key, by its own account.
    pub(crate) held: [Duration; 3],
    pub(crate) violation: Option<String>,
    pub(crate) trace: Vec<String>,
}

#[derive(Debug)]
struct Request {
    client: usize,
    what: What,
    stage: Stage,
}

#[derive(Debug, Clone)]
enum What {
    /// No request: the client goes on at any time.
    Think,
    Read,
    Replace(Option<Version>, Record),
}

#[derive(Debug)]
enum Stage {
    /// The client waits, and the request was not applied.
    Sent,
    /// The client does not wait, and the request will be applied at any time.
    Late,
    Answered(Option<Answer>),
    Done,
}

#[derive(Debug, Clone)]
enum Answer {
    Read(Option<Versioned>),
    Replaced(Replaced),
}

/// One step of the world.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Action {
    Apply(usize),
    Lose(usize),
    LoseAnswer(usize),
    Delay(usize),
    Double(usize),
    ApplyLate(usize),
    Tick,
    Delete,
}

impl World {
    pub(crate) fn new(setup: Setup) -> Self {
        Self(Arc::new(Mutex::new(State {
            setup,
            now: Duration::ZERO,
            last: 0,
            stored: None,
            requests: Vec::new(),
            tokens: Vec::new(),
            heard: [const { Vec::new() }; 3],
            held: [Duration::ZERO; 3],
            violation: None,
            trace: Vec::new(),
        })))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(crate) fn note(&self, what: String) {
        self.state().trace.push(what);
    }

    /// Whether all requests of `client` have been answered.
    pub(crate) fn is_idle(&self, client: usize) -> bool {
        let state = self.state();
        let mut of_client = state.requests.iter().filter(|request| request.client == client);
        !of_client.any(|request| matches!(request.stage, Stage::Sent))
    }
}

impl State {
    /// The possible next steps. Ticks, faults and deletions only while they are left.
    pub(crate) fn actions(&self, left: Setup) -> Vec<Action> {
        let mut actions = Vec::new();
        for (number, request) in self.requests.iter().enumerate() {
            match request.stage {
                Stage::Sent => {
                    actions.push(Action::Apply(number));
                    let has_fault = left.faults > 0;
                    if has_fault && !matches!(request.what, What::Think) {
                        actions.push(Action::Lose(number));
                    }
                    // A read has no effect.
                    if has_fault && matches!(request.what, What::Replace(..)) {
                        actions.push(Action::LoseAnswer(number));
                        actions.push(Action::Delay(number));
                        actions.push(Action::Double(number));
                    }
                }
                Stage::Late => actions.push(Action::ApplyLate(number)),
                Stage::Answered(_) | Stage::Done => (),
            }
        }
        if left.ticks > 0 {
            actions.push(Action::Tick);
        }
        if left.deletions > 0 && self.stored.is_some() {
            actions.push(Action::Delete);
        }
        actions
    }

    /// A hash of all that determines what can still happen.
    pub(crate) fn hash(&self, left: Setup) -> u64 {
        let open = self.requests.iter().filter(|request| !matches!(request.stage, Stage::Done));
        let open: Vec<_> = open.collect();
        let mut hasher = DefaultHasher::new();
        let of_world = (self.now, self.last, &self.stored, open, self.tokens.last());
        format!("{of_world:?} {:?} {:?} {left:?}", self.held, self.heard).hash(&mut hasher);
        hasher.finish()
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.trace.push(format!("{action:?}"));
        match action {
            Action::Apply(number) => {
                let answer = self.apply(number);
                self.requests[number].stage = Stage::Answered(Some(answer));
            }
            Action::Lose(number) => self.requests[number].stage = Stage::Answered(None),
            Action::LoseAnswer(number) => {
                self.apply(number);
                self.requests[number].stage = Stage::Answered(None);
            }
            Action::Delay(number) => {
                self.requests[number].stage = Stage::Answered(None);
                self.again(number);
            }
            Action::Double(number) => {
                let answer = self.apply(number);
                self.requests[number].stage = Stage::Answered(Some(answer));
                self.again(number);
            }
            Action::ApplyLate(number) => {
                self.apply(number);
                self.requests[number].stage = Stage::Done;
            }
            Action::Tick => self.now += UNIT,
            Action::Delete => {
                self.stored = None;
                if self.setup.breach == Some(Breach::VersionsRestart) {
                    self.last = 0;
                }
            }
        }
    }

    /// Adds a copy of a request, which arrives late.
    fn again(&mut self, number: usize) {
        let Request { client, what, .. } = &self.requests[number];
        let (client, what) = (*client, what.clone());
        self.requests.push(Request { client, what, stage: Stage::Late });
    }

    fn apply(&mut self, number: usize) -> Answer {
        let breach = self.setup.breach;
        let found = self.stored.as_ref().map(|(number, record)| Versioned {
            record: record.clone(),
            version: version(breach, *number, record),
        });
        let What::Replace(expected, mut record) = self.requests[number].what.clone() else {
            return Answer::Read(found);
        };
        let is_expected = found.as_ref().map(|found| &found.version) == expected.as_ref();
        if !is_expected && breach != Some(Breach::IgnoresVersions) {
            return Answer::Replaced(Replaced::Conflict);
        }
        if breach == Some(Breach::KeepsTheBeat)
            && let Some(held) = &mut record.holder
        {
            held.beat = Beat::GRANTED;
        }
        self.judge_token(found.map(|found| found.record).as_ref(), &record);
        self.last += 1;
        let version = version(breach, self.last, &record);
        self.stored = Some((self.last, record));
        Answer::Replaced(Replaced::Done(version))
    }

    /// Each new grant must have a larger token than all earlier grants.
    fn judge_token(&mut self, before: Option<&Record>, after: &Record) {
        let grant = |record: &Record| {
            let held = record.holder.as_ref()?;
            Some((held.nonce, held.token))
        };
        let Some((_, token)) = grant(after).filter(|new| before.and_then(grant) != Some(*new))
        else {
            return;
        };
        if let Some(last) = self.tokens.last().filter(|last| **last >= token) {
            self.violation = Some(format!("tokens: {token} was granted after {last}"));
        }
        self.tokens.push(token);
    }

    /// Two contenders must not hold the key at the same time.
    pub(crate) fn judge_holders(&mut self) {
        let holders = self.held.iter().filter(|until| self.now < **until).count();
        // After a deletion by hand, nothing prevents two holders.
        if holders > 1 && self.setup.deletions == 0 {
            self.violation = Some("two holders".to_owned());
        }
    }
}

fn version(breach: Option<Breach>, number: u64, record: &Record) -> Version {
    if breach != Some(Breach::VersionIsContent) {
        return number.into();
    }
    let mut content = Record { mark: Uuid::nil(), former: None, ..record.clone() };
    if let Some(held) = &mut content.holder {
        // Some program gave its record a version of its own, and counts heartbeats by it.
        held.beat = Beat::GRANTED;
    }
    Version::new(String::from_utf8(content.to_json().unwrap()).unwrap())
}

/// The register as one contender sees it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: usize,
    pub(crate) world: World,
    /// Wrong, in one breach.
    pub(crate) clock: Option<ServerClock>,
}

impl Client {
    /// Waits until the search lets the client go on.
    pub(crate) async fn think(&self) {
        drop(self.send(What::Think).await);
    }

    async fn send(&self, what: What) -> Result<Answer, StoreError> {
        if let Some(clock) = &self.clock {
            let now = clock.clock().now();
            clock.add_answer(now, now, AHEAD + now.as_nanos() / 1_000_000_000);
        }
        let request = {
            let mut state = self.world.state();
            state.requests.push(Request { client: self.number, what, stage: Stage::Sent });
            state.requests.len() - 1
        };
        poll_fn(|_context| {
            let mut state = self.world.state();
            let stage = &mut state.requests[request].stage;
            let Stage::Answered(answer) = stage else { return Poll::Pending };
            let answer = answer.take();
            *stage = Stage::Done;
            let heard = format!("{:?} at {:?}", answer, state.now);
            state.heard[self.number].push(heard);
            let lost = || StoreError::new(StoreErrorKind::Unavailable, "lost");
            Poll::Ready(answer.ok_or_else(lost))
        })
        .await
    }
}

#[async_trait]
impl Register for Client {
    async fn read(&self, _key: &LeaseKey) -> Result<Option<Versioned>, StoreError> {
        match self.send(What::Read).await? {
            Answer::Read(found) => Ok(found),
            Answer::Replaced(_) => unreachable!("the request was a read"),
        }
    }

    async fn replace(
        &self,
        _key: &LeaseKey,
        expected: Option<&Version>,
        record: &Record,
    ) -> Result<Replaced, StoreError> {
        match self.send(What::Replace(expected.cloned(), record.clone())).await? {
            Answer::Replaced(replaced) => Ok(replaced),
            Answer::Read(_) => unreachable!("the request was a replacement"),
        }
    }

    fn list(&self, _prefix: &str) -> BoxStream<'_, Result<(LeaseKey, Versioned), StoreError>> {
        stream::empty().boxed()
    }

    fn versions(&self) -> Versions {
        self.world.state().setup.versions
    }

    fn clock(&self) -> Option<&ServerClock> {
        self.clock.as_ref()
    }
}

/// The clock of a contender.
#[derive(Debug, Clone)]
pub(crate) struct ModelClock {
    pub(crate) world: World,
    pub(crate) factor: u32,
}

impl Clock for ModelClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(0) + self.world.state().now * self.factor
    }
}

pub(crate) const UNIT: Duration = Duration::from_secs(10);

/// The ttl of a lease: two units.
pub(crate) const TTL: Duration = Duration::from_secs(20);

/// The time of a machine that is an hour ahead, if the time of others is 3600.
const AHEAD: u64 = 7200;
