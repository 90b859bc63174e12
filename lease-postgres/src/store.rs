//! `PostgresStore`, and its lock operations.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::store::{
    Beat, Claim, Freed, Grant, Heartbeat, HeldKey, InTurn, LockStore, Obtained, Sessions,
};
use lease_core::{GrantId, Holder, LeaseKey, LossCause, StoreError};
use tokio::select;
use tokio::time::sleep;

use crate::attributes::{MAX_LEVELS, write};
use crate::connection::batches::Batches;
use crate::connection::database::{Database, Lane};
use crate::connection::listener::Listener;
use crate::error::ServerFault;
use crate::free_claim::FreeClaim;
use crate::hand_on::hand_on;
use crate::plain_release::PlainRelease;
use crate::recent_keys::RecentKeys;
use crate::reply::{Reply, column};
use crate::statements::{self, micros, number};

/// Keeps leases in a table of PostgreSQL.
///
/// Clones share connections. Each call is one statement, and takes one round trip. Claims, and also releases, that
/// wait for a connection at the same time share a statement. A claim may take two round trips: its first statement
/// grants the key only if the last lease was released. If the key is new, held or expired, a second statement decides.
/// After this store has found a key held, its next claims of the key send only the second statement. A release may
/// take two, too, if claims are queued for its key or its row is locked. A call fails after [a time-out](crate::PostgresStoreBuilder::with_timeout) and can be
/// repeated safely. The [crate's table](crate#what-happens-when) lists what a server forgets when it crashes or
/// fails over.
///
/// # Examples
///
/// ```
/// use lease_core::{Attempt, Locker};
/// use lease_postgres::PostgresStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let Some(server) = lease_test_servers::postgres::PostgresServer::start() else { return Ok(()) };
/// let url = "postgres://leases:secret@localhost/billing";
/// # let url = server.url();
/// # PostgresStore::builder(&url).create_table().await?;
/// let store = PostgresStore::builder(url)
/// #   .with_timeout(lease_test_servers::postgres::PATIENT)
///     .connect()
///     .await?;
/// let locker = Locker::new(store);
/// match locker.obtain(&"payroll".parse()?).await? {
///     Attempt::Obtained(lease) => {
///         println!("obtained with token {}", lease.token());
///         lease.release().await?;
///     }
///     Attempt::Held(holder) => println!("held by {}", holder.lessee),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct PostgresStore {
    pub(crate) database: Arc<Database>,
    pub(crate) listener: Arc<Listener>,
    pub(crate) free_claims: Arc<Batches<FreeClaim>>,
    pub(crate) releases: Arc<Batches<PlainRelease>>,
    /// The keys whose last claim was refused. Their next claims skip the statement for released keys.
    pub(crate) refusals: Arc<RecentKeys>,
    /// The keys with a queue. Their releases skip the statement for keys without a queue.
    pub(crate) queued: Arc<RecentKeys>,
}

#[async_trait]
impl LockStore for PostgresStore {
    /// Sends one statement if the last lease of the key was released, or if this store's last claim found the
    /// key held.
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        refuse_child(claim)?;
        let is_usual = claim.attributes.is_empty() && !self.refusals.contains(&claim.key);
        if is_usual && let Some(granted) = self.obtain_released(claim).await? {
            return Ok(granted);
        }
        let obtained = self.obtain_in_any_state(claim).await?;
        match obtained {
            Obtained::Held(_) => self.refusals.insert(&claim.key),
            Obtained::Granted(..) => self.refusals.remove(&claim.key),
        }
        Ok(obtained)
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        let answers = self.beat(statements::HEARTBEAT, &[(grant.clone(), beat)]).await?;
        let unanswered = || ServerFault::unavailable("the heartbeat's row was locked");
        let answer = answers.into_iter().next().and_then(|(_, answer)| answer);
        Ok(answer.ok_or_else(unanswered)?)
    }

    /// Sends one statement if no claim was queued for the key, or if this store knows of the queue and a claim is
    /// still queued.
    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        if reserved.is_some() {
            let call = PlainRelease::reserving(grant, reserved, &self.database);
            self.database.run(Lane::Holders, call).await?;
            return Ok(());
        }
        let may_be_plain = !self.queued.contains(&grant.key);
        if may_be_plain && self.releases.send(PlainRelease(grant.clone())).await?.is_some() {
            return Ok(());
        }
        let token = number(grant.token.get());
        if hand_on(&self.database, &grant.key, grant.nonce, Some(token)).await? {
            self.queued.insert(&grant.key);
        } else {
            self.queued.remove(&grant.key);
        }
        Ok(())
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        let call = self.under(statements::ADOPT, grant).nonce(claim.nonce);
        let call = call.text(claim.lessee.as_str()).number(micros(claim.ttl));
        let call = call.number(number(claim.request.get())).optional_text(claimed(claim)?);
        let call = call.parent(claim.parent.as_ref()).text(self.database.lock_timeout());
        let rows = self.database.run(Lane::Claims, call).await?;
        let reply = rows.first().map(Reply::read).transpose()?;
        let answer = reply.map(|reply| obtained(claim, &reply)).transpose()?.flatten();
        Ok(answer.unwrap_or_else(|| Obtained::Held(grant.holder(Some(Duration::ZERO)))))
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let call = self.call(statements::HOLDER).text(key.as_str());
        let rows = self.database.run(Lane::Claims, call).await?;
        let holder = |row| Reply::read(row)?.holder(key.as_str());
        Ok(rows.first().map(holder).transpose()?)
    }

    /// The statement of a batch skips rows that another session has locked, so that they do not delay the other
    /// heartbeats. For each of these rows, a separate statement follows, which waits for the lock.
    fn heartbeat_all<'a>(
        &'a self,
        beats: &'a [(Grant, Beat)],
    ) -> BoxStream<'a, (usize, Result<Heartbeat, StoreError>)> {
        let batches = beats.chunks(BATCH).enumerate().map(move |(batch, beats)| async move {
            let answers = self.batch(beats).await;
            stream::iter(
                answers.into_iter().map(move |(place, answer)| (batch * BATCH + place, answer)),
            )
        });
        let answers = stream::iter(batches).buffer_unordered(BATCHES_AT_ONCE).flatten();
        let singly = answers.map(move |(place, answer)| async move {
            match (answer, beats.get(place)) {
                (Ok(None), Some((grant, beat))) => (place, self.heartbeat(grant, *beat).await),
                (Ok(Some(answer)), _) => (place, Ok(answer)),
                (Ok(None), None) => (place, Err(ServerFault::unavailable("no such place").into())),
                (Err(fault), _) => (place, Err(fault.into())),
            }
        });
        singly.buffer_unordered(LOCKED_AT_ONCE).boxed()
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        let Some(token) = grant.token() else { return Ok(false) };
        let call = self.call(statements::EVICT).text(key.as_str()).number(number(token.get()));
        let call = call.text(self.database.lock_timeout());
        let rows = self.database.run(Lane::Claims, call).await?;
        let Some(row) = rows.first() else { return Ok(false) };
        let verdict: String = column(row, "verdict")?;
        if verdict == "child" {
            let sentence = "a lease under a session cannot be evicted: evict its session";
            return Err(ServerFault::refused(sentence).into());
        }
        Ok(verdict == "marked")
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        let held =
            self.pages(statements::SCAN, prefix.to_owned()).filter_map(
                async |record| match record {
                    Ok(record) => record.into_held().map(Ok),
                    Err(fault) => Some(Err(StoreError::from(fault))),
                },
            );
        held.boxed()
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        let Some(mut watch) = self.listener.watch(&self.database, key.as_str()).await? else {
            return Ok(Freed::never());
        };
        let (database, key) = (Arc::clone(&self.database), key.clone());
        // A release sends a notification only if the row is marked.
        Ok(Freed::when(async move {
            loop {
                match mark(&database, &key).await {
                    Ok(true) => break,
                    Ok(false) => return,
                    Err(_) => select! {
                        biased;
                        () = watch.woken() => return,
                        () = sleep(database.timeout) => (),
                    },
                }
            }
            watch.woken().await;
        }))
    }

    fn in_turn(&self) -> Option<&dyn InTurn> {
        Some(self)
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }

    fn grain(&self) -> Duration {
        Duration::from_micros(1)
    }
}

/// `None` if another session has locked the row.
type Answer = Option<Heartbeat>;

impl PostgresStore {
    pub(crate) fn call(&self, statement: &str) -> statements::Call {
        self.database.statements.call(statement)
    }

    pub(crate) fn claiming(&self, statement: &str, claim: &Claim) -> statements::Call {
        self.call(statement).claim(claim)
    }

    /// Returns `None` if the last grant of the key was not released.
    async fn obtain_released(&self, claim: &Claim) -> Result<Option<Obtained>, ServerFault> {
        let granted = self.free_claims.send(FreeClaim(claim.clone())).await?;
        Ok(granted.map(|(token, attributes)| Obtained::Granted(claim.granted(token), attributes)))
    }

    pub(crate) async fn obtain_in_any_state(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let attributes = claimed(claim)?;
        for _ in 0..READS_OF_A_CHANGING_ROW {
            let call = self.claiming(statements::OBTAIN, claim).optional_text(attributes.clone());
            let call = call.text(self.database.lock_timeout());
            let rows = self.database.run(Lane::Claims, call).await?;
            // Without a row: the key had no row when the statement began, and another claim has inserted one
            // since. The next attempt reads that row.
            let Some(row) = rows.first() else { continue };
            if let Some(obtained) = obtained(claim, &Reply::read(row)?)? {
                return Ok(obtained);
            }
        }
        Err(self.changes_too_fast(&claim.key).into())
    }

    pub(crate) fn changes_too_fast(&self, key: &LeaseKey) -> ServerFault {
        let name = &self.database.name;
        ServerFault::unavailable(format!(
            "{name}: the holder of {key:?} changes too fast to be read"
        ))
    }

    pub(crate) fn under(&self, statement: &str, grant: &Grant) -> statements::Call {
        self.call(statement).grant(grant)
    }

    pub(crate) fn channel(&self) -> String {
        self.database.statements.table().channel()
    }

    /// Heartbeats of locked rows have the answer `None`, and come last in the result.
    async fn batch(&self, beats: &[(Grant, Beat)]) -> Vec<(usize, Result<Answer, ServerFault>)> {
        match self.beat(statements::BATCH, beats).await {
            Ok(mut answers) => {
                answers.sort_by_key(|(_, answer)| answer.is_none());
                answers.into_iter().map(|(place, answer)| (place, Ok(answer))).collect()
            }
            Err(fault) => (0..beats.len()).map(|place| (place, Err(fault.clone()))).collect(),
        }
    }

    async fn beat(
        &self,
        statement: &str,
        beats: &[(Grant, Beat)],
    ) -> Result<Vec<(usize, Answer)>, ServerFault> {
        let grants = || beats.iter().map(|(grant, _)| grant);
        let call = self.call(statement);
        let call = call.texts(grants().map(|grant| grant.key.as_str().to_owned()).collect());
        let call = call.nonces(grants().map(|grant| grant.nonce));
        let call = call.numbers(grants().map(|grant| number(grant.token.get())).collect());
        let call = call.numbers(beats.iter().map(|(_, beat)| number(beat.get())).collect());
        let call = call.numbers(grants().map(|grant| micros(grant.ttl)).collect());
        let call = call.text(self.database.lock_timeout());
        let rows = self.database.run(Lane::Holders, call).await?;
        rows.iter()
            .map(|row| {
                let place: i64 = column(row, "place")?;
                let place = usize::try_from(place - 1).unwrap_or(usize::MAX);
                let verdict: String = column(row, "verdict")?;
                Ok((place, heartbeat(&verdict)))
            })
            .collect()
    }
}

/// Only `obtain_under` checks that the key is free for a claim under a session.
pub(crate) fn refuse_child(claim: &Claim) -> Result<(), ServerFault> {
    if claim.parent.is_none() {
        return Ok(());
    }
    Err(ServerFault::refused("a claim under a session is made by `obtain_under`"))
}

async fn mark(database: &Arc<Database>, key: &LeaseKey) -> Result<bool, ServerFault> {
    let call = database.statements.call(statements::MARK).text(key.as_str());
    let rows = database.run(Lane::Claims, call.text(database.lock_timeout())).await?;
    rows.first().map_or(Ok(false), |row| column(row, "waits"))
}

/// Returns `None` if the row does not explain the refusal. Either another request has changed the row since the
/// statement began, or the key is free now.
pub(crate) fn obtained(claim: &Claim, reply: &Reply) -> Result<Option<Obtained>, ServerFault> {
    let key = claim.key.as_str();
    Ok(Some(match reply.verdict.as_str() {
        "granted" => {
            let grant = claim.granted(reply.token(key)?);
            Obtained::Granted(grant, reply.attributes(key)?)
        }
        "again" => {
            let grant = claim.granted_to(reply.request(), reply.token(key)?);
            Obtained::Granted(grant, reply.attributes(key)?)
        }
        "held" => Obtained::Held(reply.holder(key)?),
        "late" | "reserved" => Obtained::Held(reply.former_holder(key)?),
        "passed" => Obtained::Held(reply.last_holder(key)?),
        _ => return Ok(None),
    }))
}

fn heartbeat(verdict: &str) -> Answer {
    Some(match verdict {
        "extended" => Heartbeat::Extended,
        "overtaken" => Heartbeat::Overtaken,
        "locked" => return None,
        cause => Heartbeat::Lost(loss(cause)),
    })
}

pub(crate) fn loss(verdict: &str) -> LossCause {
    match verdict {
        "superseded" => LossCause::Superseded,
        "revoked" => LossCause::Revoked,
        _ => LossCause::Expired,
    }
}

pub(crate) fn claimed(claim: &Claim) -> Result<Option<String>, ServerFault> {
    if claim.attributes.is_empty() {
        return Ok(None);
    }
    written(claim.attributes.iter().map(|(name, value)| (name.as_str(), value))).map(Some)
}

pub(crate) fn written<'a>(
    attributes: impl IntoIterator<Item = (&'a str, &'a lease_core::Value)>,
) -> Result<String, ServerFault> {
    write(attributes).ok_or_else(|| {
        ServerFault::refused(format!(
            "an attribute is nested deeper than {MAX_LEVELS} levels, or has an unknown type"
        ))
    })
}

/// The number of statements that a claim sends if no row explains its refusal.
pub(crate) const READS_OF_A_CHANGING_ROW: usize = 8;

/// Larger batches are not faster.
const BATCH: usize = 500;
const BATCHES_AT_ONCE: usize = 2;
const LOCKED_AT_ONCE: usize = 16;
