//! A model of DynamoDB: a table in one Region or two, behind front ends that all contenders share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lease_core::conformance::{Call, ClientContext, Ledger, Model, ModelContext, Simulation};
use lease_core::store::{Clock, Moment};
use lease_dynamodb::DynamoDbStore;
use lease_test_servers::simulation::expression::{Condition, Item, Refusal};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::front_end::{FrontEnd, FrontEndFault, WORLD_BEGINS};
use super::request::{Change, KEY, Request, Write};
use super::sdk::{WallClock, client};
use super::setup::{Breach, Setup};
use super::table::Table;
use super::wire::Wire;

/// Clones share one service.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) network: Handle,
    ledger: Ledger,
    inside: Arc<Mutex<Inside>>,
}

/// The number of a replica of the table. A global table has two replicas.
pub(crate) type Region = usize;

struct Inside {
    setup: Setup,
    tables: [Table; 2],
    front_ends: Vec<FrontEnd>,
    /// Whether a refusal contains the item on request, as on AWS. Other servers omit the item.
    shows_refused: bool,
    purges: bool,
    random: StdRng,
    sent: VecDeque<(Arc<Request>, Region)>,
    wall_clocks: Vec<Arc<AtomicI64>>,
    has_lost: bool,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) date: u64,
}

impl Service {
    pub(crate) fn new(world: ModelContext, setup: Setup) -> Self {
        let mut random = StdRng::seed_from_u64(world.seed ^ 0xD1A0);
        let front_ends = (0..3).map(|_| FrontEnd::new(setup.apart, &mut random)).collect();
        let mut tables = [Table::default(), Table::default()];
        if matches!(setup.breach, Some(Breach::LosesItem | Breach::Restores)) {
            // An old item makes a new counter start at a larger token.
            tables[0].set(Duration::ZERO, "shared", Some(old_item()));
        }
        let is_as_on_aws = setup.breach == Some(Breach::StaleHints);
        let inside = Inside {
            setup,
            tables,
            front_ends,
            shows_refused: random.random() || is_as_on_aws,
            purges: random.random(),
            random,
            sent: VecDeque::new(),
            wall_clocks: Vec::new(),
            has_lost: false,
        };
        Self { network: world.network, ledger: world.ledger, inside: Arc::new(Mutex::new(inside)) }
    }

    pub(crate) fn sent(&self, request: &Arc<Request>, region: Region) -> Duration {
        let mut inside = self.inside();
        if let Request::Write(_) = **request {
            inside.sent.push_back((Arc::clone(request), region));
            if inside.sent.len() > REMEMBERED {
                inside.sent.pop_front();
            }
        }
        Simulation::LATENCY.mul_f64(inside.random.random_range(1.0..4.0))
    }

    /// A request that the model does not know is a violation, which ends the trial.
    pub(crate) fn give_up(&self, refusal: &Refusal) {
        self.ledger.violated(format!("the model does not know this: {refusal}"));
    }

    pub(crate) async fn serve(&self, request: &Request, region: Region) -> Option<Reply> {
        let now = self.ledger.now();
        let (fault, date) = {
            let mut inside = self.inside();
            let count = inside.front_ends.len();
            let chosen = inside.random.random_range(0..count);
            let front_end = &inside.front_ends[chosen];
            (front_end.fault(now), front_end.date(now))
        };
        match fault {
            Some(FrontEndFault::Throttles) => return Some(Reply::throttled(date)),
            Some(FrontEndFault::Fails) => return Some(Reply::failed(date)),
            Some(FrontEndFault::Hangs) => return None,
            Some(FrontEndFault::FailsAfterwards) | None => (),
        }
        let answer = match request {
            Request::Write(write) => self.write(write, region).await,
            Request::Get { key, consistent } => Ok((200, self.get(key, *consistent, region))),
            Request::Scan { filter, bound, start } => {
                let (filter, start) = (filter.as_ref(), start.as_deref());
                let page = self.inside().tables[region].page(filter, bound, start);
                page.map(|page| {
                    let last = page.last.map(|key| json!({ KEY: { "S": key } }));
                    (200, json!({ "Items": page.items, "LastEvaluatedKey": last }))
                })
            }
        };
        match answer {
            Ok(_) if fault == Some(FrontEndFault::FailsAfterwards) => Some(Reply::failed(date)),
            Ok((status, body)) => Some(Reply { status, body, date }),
            Err(refusal) => {
                self.give_up(&refusal);
                None
            }
        }
    }

    async fn write(&self, write: &Write, region: Region) -> Result<(u16, Value), Refusal> {
        let allowed = self.inside().allows(write, region)?;
        if self.inside().setup.breach == Some(Breach::ChecksApart) {
            let apart = self.inside().random.random_range(1..30);
            tokio::time::sleep(Duration::from_millis(apart)).await;
        }
        let mut inside = self.inside();
        if !allowed {
            let shows = write.shows_refused && inside.shows_refused;
            let item = inside.tables[region].get(&write.key).filter(|_| shows);
            return Ok((400, error("ConditionalCheckFailedException", item)));
        }
        let before = inside.tables[region].get(&write.key).cloned().unwrap_or_default();
        let after = inside.tables[region].apply(self.ledger.now(), write)?.clone();
        self.note(write, &before, &after);
        if inside.setup.breach == Some(Breach::TwoRegions) {
            let delay = Duration::from_millis(inside.random.random_range(10..500));
            self.replicate(write.key.clone(), after.clone(), 1 - region, delay);
        }
        Ok((200, if write.shows_new { json!({ "Attributes": after }) } else { json!({}) }))
    }

    fn note(&self, write: &Write, before: &Item, after: &Item) {
        let is_new = |column: &str| before.get(column) != after.get(column);
        if let Change::Update(update) = &write.change
            && update.sets("nonce")
            && (is_new("nonce") || is_new("token"))
            && let Some(grant) = write.grant_shown_by(after)
        {
            self.ledger.granted(&grant);
        }
        if let Some(grant) = write.user_write_under() {
            self.ledger.written(&grant);
        }
    }

    fn replicate(&self, key: String, item: Item, to: Region, delay: Duration) {
        let service = self.clone();
        self.network.spawn(async move {
            tokio::time::sleep(delay).await;
            let now = service.ledger.now();
            service.inside().tables[to].set(now, &key, Some(item));
        });
    }

    fn get(&self, key: &str, consistent: bool, region: Region) -> Value {
        let mut inside = self.inside();
        let is_broken =
            matches!(inside.setup.breach, Some(Breach::StaleReads | Breach::StaleHints));
        let stale = !consistent || is_broken;
        let age = inside.random.random_range(0..2000);
        let item = if stale {
            let seen = self.ledger.now().saturating_sub(Duration::from_millis(age));
            inside.tables[region].get_as_of(key, seen)
        } else {
            inside.tables[region].get(key)
        };
        item.map_or_else(|| json!({}), |item| json!({ "Item": item }))
    }

    fn replay(&self, random: &mut StdRng) {
        for _ in 0..random.random_range(1..=3) {
            let inside = self.inside();
            if inside.sent.is_empty() {
                return;
            }
            let (request, region) = &inside.sent[random.random_range(0..inside.sent.len())];
            let (service, request, region) = (self.clone(), Arc::clone(request), *region);
            self.network.spawn(async move { drop(service.serve(&request, region).await) });
        }
    }

    /// Replays an old claim repeatedly, and after each replay a write under the claim's first
    /// grant. Once the key is free, the replayed claim is granted without a holder, and the write
    /// belongs to another grant.
    fn echo(&self, random: &mut StdRng) {
        let (claim, write, region) = {
            let inside = self.inside();
            let mut writes = inside.sent.iter().filter(|(sent, _)| sent.user_write().is_some());
            let count = writes.clone().count();
            if count == 0 {
                return;
            }
            let Some((write, region)) = writes.nth(random.random_range(0..count)) else { return };
            let is_its_claim =
                |sent: &Request| sent.call() == Call::Obtain && sent.nonce() == write.nonce();
            let mut claims = inside.sent.iter().map(|(sent, _)| sent);
            let Some(claim) = claims.find(|sent| is_its_claim(sent)) else { return };
            (Arc::clone(claim), Arc::clone(write), *region)
        };
        let service = self.clone();
        self.network.spawn(async move {
            for _ in 0..40 {
                service.serve(&claim, region).await;
                service.serve(&write, region).await;
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        });
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap()
    }
}

impl Model for Service {
    type Store = DynamoDbStore;

    fn connect(&mut self, context: ClientContext) -> BoxFuture<'static, DynamoDbStore> {
        let mut inside = self.inside();
        let off = Arc::new(AtomicI64::new(inside.random.random_range(-60_000..60_000)));
        inside.wall_clocks.push(Arc::clone(&off));
        let wall = WallClock { time: context.time, off };
        let is_global = inside.setup.breach == Some(Breach::TwoRegions);
        let region = if is_global { inside.random.random_range(0..2) } else { 0 };
        let clock: Arc<dyn Clock> = match inside.setup.breach {
            Some(Breach::HastyStores(rate)) => Arc::new(FastClock { clock: context.clock, rate }),
            _ => context.clock,
        };
        let wire =
            Wire { service: self.clone(), region, faults: context.faults, wall: wall.clone() };
        let client = client(wire, wall, inside.random.random());
        let mut builder = DynamoDbStore::builder(client, "leases")
            .with_clock(clock)
            .with_time_mode(inside.setup.mode)
            .with_margin(inside.setup.margin);
        if !inside.purges {
            builder = builder.without_purging();
        }
        let store = builder.build().unwrap();
        async move { store }.boxed()
    }

    fn strike(&mut self, random: &mut StdRng) {
        let now = self.ledger.now();
        if self.inside().lose(now, random, &self.ledger) {
            return;
        }
        let mut inside = self.inside();
        let (apart, count) = (inside.setup.apart, inside.front_ends.len());
        let chosen = random.random_range(0..count);
        match random.random_range(0..7) {
            6 => {
                drop(inside);
                self.ledger.note("a claim and a write of its grant are replayed again and again");
                self.echo(random);
            }
            0 | 1 => {
                drop(inside);
                self.ledger.note("some requests are replayed");
                self.replay(random);
            }
            2 => {
                inside.front_ends[chosen].set_clock(apart, random);
                self.ledger.note(format!("front end {chosen} sets its clock"));
            }
            3 => {
                for off in &inside.wall_clocks {
                    off.store(random.random_range(-60_000..60_000), Ordering::SeqCst);
                }
                self.ledger.note("wall clocks step");
            }
            _ => {
                let fault = FrontEndFault::any(random);
                let until = now + Duration::from_millis(random.random_range(0..2000));
                inside.front_ends[chosen].inject(fault, until);
                self.ledger.note(format!("front end {chosen}: {fault:?} until {until:?}"));
            }
        }
    }

    fn heal(&mut self) {
        self.inside().front_ends.iter_mut().for_each(FrontEnd::heal);
    }
}

impl Inside {
    fn allows(&self, write: &Write, region: Region) -> Result<bool, Refusal> {
        let parts = match self.setup.breach {
            Some(Breach::Assumes(call, parts)) if write.call() == call => parts,
            Some(Breach::AssumesOfClaim(parts)) if write.claims_under_a_session() => parts,
            _ => return self.tables[region].allows(write),
        };
        let mut lax = write.clone();
        for part in parts {
            let assumed = lax.condition.assume(&Condition::parse(part)?);
            // Some requests have no condition on an observation or on the time.
            if assumed == 0 && !part.contains(":seen") && !part.contains(":over") {
                return Err(format!("{part} is no part of the condition of {:?}", write.call()));
            }
        }
        self.tables[region].allows(&lax)
    }

    fn lose(&mut self, now: Duration, random: &mut StdRng, ledger: &Ledger) -> bool {
        if self.has_lost {
            return false;
        }
        let item = match self.setup.breach {
            Some(Breach::LosesItem) => None,
            Some(Breach::Restores) => {
                let backup = now.mul_f64(random.random_range(0.0..1.0));
                self.tables[0].get_as_of("shared", backup).cloned()
            }
            _ => return false,
        };
        self.has_lost = true;
        ledger.note(if item.is_some() { "the table is restored" } else { "the item is deleted" });
        self.tables[0].set(now, "shared", item);
        true
    }
}

impl Reply {
    fn throttled(date: u64) -> Self {
        let body = error("ProvisionedThroughputExceededException", None);
        Self { status: 400, body, date }
    }

    fn failed(date: u64) -> Self {
        Self { status: 500, body: error("InternalServerError", None), date }
    }
}

fn error(name: &str, item: Option<&Item>) -> Value {
    let mut body = json!({
        "__type": format!("com.amazonaws.dynamodb.v20120810#{name}"),
        "message": "as planned",
    });
    if let Some(item) = item {
        body["Item"] = json!(item);
    }
    body
}

fn old_item() -> Item {
    let hour_ago = WORLD_BEGINS.saturating_sub(Duration::from_hours(1)).as_micros().to_string();
    let item = json!({ KEY: { "S": "shared" }, "token": { "N": hour_ago } });
    item.as_object().cloned().unwrap_or_default()
}

#[derive(Debug)]
struct FastClock {
    clock: Arc<dyn Clock>,
    rate: f64,
}

impl Clock for FastClock {
    fn now(&self) -> Moment {
        let since_boot = Duration::from_nanos(self.clock.now().as_nanos());
        Moment::from_nanos(0) + since_boot.mul_f64(self.rate)
    }
}

const REMEMBERED: usize = 64;
