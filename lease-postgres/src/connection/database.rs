//! Sends requests to the server, each as one statement with a time limit.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio::select;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Sleep, sleep, timeout};
use tokio_postgres::Row;

use crate::connection::address::Address;
use crate::connection::tls::Tls;
use crate::error::{ServerFault, breaks_connection};
use crate::statements::{Call, Statements};

pub(crate) struct Database {
    pub(crate) name: String,
    pub(crate) statements: Statements,
    pub(crate) timeout: Duration,
    /// Sends even a single request by the statement for several.
    pub(crate) batches_only: bool,
    pool: Pool,
    tls: Tls,
    for_claims: Semaphore,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// All connections. Heartbeats and releases use this lane.
    Holders,
    /// All connections but [`RESERVED`], so that many requests of claims at once do not delay a heartbeat.
    Claims,
}

/// A connection, and the permit of a claim to use one.
pub(crate) type Lent<'a> = (Object, Option<SemaphorePermit<'a>>);

impl Database {
    pub(crate) fn new(
        address: &Address,
        tls: Tls,
        statements: Statements,
        limit: Duration,
        connections: usize,
    ) -> Result<Self, ServerFault> {
        let fast = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(address.config.clone(), tls.clone(), fast);
        let pool =
            Pool::builder(manager).max_size(connections).runtime(Runtime::Tokio1).build().map_err(
                |error| ServerFault::misconfigured(format!("{}: {error}", address.name)),
            )?;
        let for_claims = Semaphore::new(connections.saturating_sub(RESERVED).max(1));
        let name = address.name.clone();
        let batches_only = false;
        Ok(Self { name, statements, timeout: limit, batches_only, pool, tls, for_claims })
    }

    #[cfg(feature = "sabotage")]
    pub(crate) fn with_batches_only(self, batches_only: bool) -> Self {
        Self { batches_only, ..self }
    }

    /// A spawned task sends the request, so that an unpolled future holds no connection.
    pub(crate) async fn run(
        self: &Arc<Self>,
        lane: Lane,
        call: Call,
    ) -> Result<Vec<Row>, ServerFault> {
        let database = Arc::clone(self);
        let limit = self.timeout;
        let task = tokio::spawn(async move { database.request(lane, &call, limit).await });
        let stopped = || ServerFault::unavailable(format!("{}: the runtime has ended", self.name));
        task.await.unwrap_or_else(|_| Err(stopped()))
    }

    pub(crate) async fn request(
        &self,
        lane: Lane,
        call: &Call,
        limit: Duration,
    ) -> Result<Vec<Row>, ServerFault> {
        let mut late = pin!(sleep(limit));
        let lent = select! {
            // A connection that is ready at the time limit is still used.
            biased;
            lent = self.lend(lane) => lent?,
            () = &mut late => return Err(self.without_connection(limit)),
        };
        self.ask(lent, call, limit, late).await
    }

    /// Sends a request with the time limit `limit`, at which `late` completes.
    pub(crate) async fn ask(
        &self,
        (client, _permit): Lent<'_>,
        call: &Call,
        limit: Duration,
        mut late: Pin<&mut Sleep>,
    ) -> Result<Vec<Row>, ServerFault> {
        let values = call.values();
        let answer = select! {
            // An answer that is ready at the time limit still counts.
            biased;
            answer = client.query_typed(&call.statement, &values) => answer,
            () = &mut late => {
                self.cancel(client, limit);
                return Err(ServerFault::late(&self.name, limit));
            }
        };
        answer.map_err(|error| {
            if breaks_connection(&error) {
                drop(Object::take(client));
            }
            ServerFault::from_driver(&self.name, &error)
        })
    }

    pub(crate) fn without_connection(&self, limit: Duration) -> ServerFault {
        ServerFault::unavailable(format!(
            "{} gave no connection within {limit:?}: its host is down, or all connections are in use",
            self.name
        ))
    }

    pub(crate) fn lock_timeout(&self) -> String {
        lock_timeout(self.timeout).to_string()
    }

    /// Without the cancellation, statements that wait for a lock on the table would pile up at the server.
    fn cancel(&self, client: Object, limit: Duration) {
        // The next request must not wait for this statement.
        let client = Object::take(client);
        let (token, tls) = (client.cancel_token(), self.tls.clone());
        tokio::spawn(async move {
            // If the cancel request fails, the server ends the statement at its lock timeout, or is gone.
            drop(timeout(limit.max(MIN_CANCEL), token.cancel_query(tls)).await);
            // The connection must stay open until then. Otherwise, a pooler could not find the statement.
            drop(client);
        });
    }

    pub(crate) async fn lend(&self, lane: Lane) -> Result<Lent<'_>, ServerFault> {
        let permit = match lane {
            Lane::Holders => None,
            // The semaphore is never closed.
            Lane::Claims => self.for_claims.acquire().await.ok(),
        };
        let client = self.pool.get().await;
        Ok((client.map_err(|error| ServerFault::from_pool(&self.name, &error))?, permit))
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("name", &self.name)
            .field("table", &self.statements.table().quoted())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// In milliseconds. Shorter than the client's time limit, so that few connections are busy while another session
/// locks a row for long.
pub(crate) fn lock_timeout(limit: Duration) -> i64 {
    i64::try_from((limit * 3 / 4).as_millis()).unwrap_or(i64::MAX).max(1)
}

const RESERVED: usize = 2;

/// The request opens a separate connection, which takes seconds on a busy server.
const MIN_CANCEL: Duration = Duration::from_secs(20);
