//! The connection to one member of the cluster, and the change to the next member after a failure.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Error, KvClient, WatchClient};
use lease_core::{StoreError, StoreErrorKind};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::error::{late, of_client};

/// The members of a cluster. All requests go to one member, until a request fails.
///
/// The client of `etcd-client` could spread requests over all members. It would then send a part of them to a member
/// that hangs.
pub(crate) struct Members {
    endpoints: Vec<String>,
    options: ConnectOptions,
    timeout: Duration,
    current: Mutex<Arc<Connection>>,
}

/// Leaves the member when the request ends without an answer, or its caller drops it: a locker drops a request that
/// takes too long, perhaps long before the time-out.
struct Turn<'a> {
    members: &'a Members,
    connection: &'a Arc<Connection>,
    leaves: bool,
}

/// A connection is opened, and the user is authenticated, at the first request.
pub(crate) struct Connection {
    place: usize,
    clients: OnceCell<Clients>,
}

#[derive(Clone)]
pub(crate) struct Clients {
    pub(crate) kv: KvClient,
    pub(crate) watch: WatchClient,
}

impl Members {
    pub(crate) fn new(endpoints: Vec<String>, options: ConnectOptions, timeout: Duration) -> Self {
        let current = Mutex::new(Arc::new(Connection::to(0)));
        Self { endpoints, options, timeout, current }
    }

    pub(crate) fn number(&self) -> usize {
        self.endpoints.len()
    }

    /// Sends one request. An error with the kind `Unavailable` means that the outcome is unknown.
    ///
    /// If the future is dropped after its first poll, the outcome is unknown, and the next request goes to the next
    /// member.
    pub(crate) async fn request<T, F>(
        &self,
        send: impl FnOnce(Clients) -> F + Send,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>> + Send,
    {
        let connection = Arc::clone(&self.current());
        let mut turn = Turn { members: self, connection: &connection, leaves: true };
        let endpoint = self.endpoint(&connection);
        let answer = timeout(self.timeout, async {
            let clients = connection.clients.get_or_try_init(|| self.open(endpoint)).await?;
            send(clients.clone()).await
        });
        let answer = match answer.await {
            Ok(answer) => answer.map_err(|error| of_client(endpoint, &error)),
            Err(_elapsed) => Err(late(endpoint, self.timeout)),
        };
        turn.leaves = answer.as_ref().is_err_and(|error| self.is_left_after(error.kind()));
        answer
    }

    /// One member may have a wrong address or certificate, while the others serve.
    fn is_left_after(&self, kind: StoreErrorKind) -> bool {
        match kind {
            StoreErrorKind::Unavailable => true,
            StoreErrorKind::Denied | StoreErrorKind::Misconfigured => self.number() > 1,
            _ => false,
        }
    }

    fn endpoint(&self, connection: &Connection) -> &str {
        let place = connection.place % self.endpoints.len().max(1);
        self.endpoints.get(place).map_or("", String::as_str)
    }

    async fn open(&self, endpoint: &str) -> Result<Clients, Error> {
        let client = Client::connect([endpoint], Some(self.options.clone())).await?;
        // A page of a list may have many large records.
        let kv = client.kv_client().max_decoding_message_size(usize::MAX);
        Ok(Clients { kv, watch: client.watch_client() })
    }

    /// Lets the next request open a connection to the next member. A single member gets a new connection, since the
    /// network may have dropped the last one, or the user's token may be old.
    fn leave(&self, connection: &Arc<Connection>) {
        let mut current = self.current();
        // Of several requests that fail at once, one changes the member.
        if Arc::ptr_eq(&current, connection) {
            *current = Arc::new(Connection::to(connection.place.wrapping_add(1)));
        }
    }

    fn current(&self) -> MutexGuard<'_, Arc<Connection>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Omits the options, which have the password.
impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.leaves {
            self.members.leave(self.connection);
        }
    }
}

impl Connection {
    fn to(place: usize) -> Self {
        Self { place, clients: OnceCell::new() }
    }
}
