//! Receives the notifications of releases and of grants, on a separate connection.

use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use lease_core::store::{Claim, Nonce, Notices};
use parking_lot::Mutex;
use tokio::select;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_postgres::{AsyncMessage, Client};
use tracing::warn;

use crate::connection::address::Address;
use crate::connection::database::{Database, Lane};
use crate::connection::grants::Grants;
use crate::connection::tls::Tls;
use crate::connection::waiters::{Waiters, Watch};
use crate::error::ServerFault;
use crate::hand_on::hand_on;
use crate::statements::Call;

/// Listens from the first wait of a caller until the store is dropped.
pub(crate) struct Listener {
    address: Address,
    tls: Tls,
    channel: String,
    /// The channel of this client. The server publishes the grants of its queued claims.
    channel_of_grants: String,
    grants: Grants,
    state: Mutex<State>,
}

enum State {
    Off,
    /// A task opens the connection. All callers that arrive until it has finished share its result.
    Opening(watch::Receiver<Option<Opened>>),
    /// Dropping the client closes the connection.
    Listening(Client, Waiters),
    /// Notifications do not arrive, because a pooler gives each transaction another connection.
    Unheard,
}

/// `None` if notifications do not arrive.
type Opened = Result<Option<Waiters>, ServerFault>;

impl Listener {
    pub(crate) fn new(address: Address, tls: Tls, channel: String) -> Self {
        let channel_of_grants = format!("lease:{}", Nonce::random().get().simple());
        let (grants, state) = (Grants::new(), Mutex::new(State::Off));
        Self { address, tls, channel, channel_of_grants, grants, state }
    }

    pub(crate) fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Returns `None` if no connection listens.
    pub(crate) fn channel_of_grants(&self) -> Option<String> {
        match &*self.state.lock() {
            State::Listening(..) => Some(self.channel_of_grants.clone()),
            State::Off | State::Opening(_) | State::Unheard => None,
        }
    }

    /// Returns `None` if notifications do not arrive.
    pub(crate) async fn listen(
        self: &Arc<Self>,
        database: &Arc<Database>,
        claim: &Claim,
    ) -> Result<Option<Notices>, ServerFault> {
        // If the connection ends after the check below, the claim gets a notice of that.
        let notices = self.grants.listen(claim);
        let Some(waiters) = self.waiters(database).await? else { return Ok(None) };
        if waiters.is_closed() {
            return Err(self.has_ended());
        }
        Ok(Some(notices))
    }

    pub(crate) async fn watch(
        self: &Arc<Self>,
        database: &Arc<Database>,
        key: &str,
    ) -> Result<Option<Watch>, ServerFault> {
        let Some(waiters) = self.waiters(database).await? else { return Ok(None) };
        let watch = waiters.watch(key);
        watch.map(Some).ok_or_else(|| self.has_ended())
    }

    fn has_ended(&self) -> ServerFault {
        let name = &self.address.name;
        ServerFault::unavailable(format!("{name}: the listening connection has ended"))
    }

    async fn waiters(
        self: &Arc<Self>,
        database: &Arc<Database>,
    ) -> Result<Option<Waiters>, ServerFault> {
        let mut opening = self.opening(database);
        let stopped = |_| ServerFault::unavailable("the runtime has ended");
        let opened = opening.wait_for(Option::is_some).await.map_err(stopped)?.clone();
        Ok(opened.transpose()?.flatten())
    }

    /// Starts a task that opens the connection, unless it is open.
    fn opening(self: &Arc<Self>, database: &Arc<Database>) -> watch::Receiver<Option<Opened>> {
        let mut state = self.state.lock();
        match &*state {
            State::Listening(client, waiters) if !client.is_closed() => {
                return watch::channel(Some(Ok(Some(waiters.clone())))).1;
            }
            State::Unheard => return watch::channel(Some(Ok(None))).1,
            // An error means that the task has ended with its runtime.
            State::Opening(opened) if opened.has_changed().is_ok() => return opened.clone(),
            State::Opening(_) | State::Listening(..) | State::Off => (),
        }
        let (done, opened) = watch::channel(None);
        *state = State::Opening(opened.clone());
        let (listener, database) = (Arc::clone(self), Arc::clone(database));
        // A spawned task, so that a dropped call does not leave a connection half open.
        tokio::spawn(async move {
            let opened = listener.open(&database).await;
            done.send_replace(Some(listener.note(opened)));
        });
        opened
    }

    fn note(self: &Arc<Self>, opened: Result<Option<(Client, Waiters)>, ServerFault>) -> Opened {
        let mut state = self.state.lock();
        match opened {
            Ok(Some((client, waiters))) => {
                *state = State::Listening(client, waiters.clone());
                Ok(Some(waiters))
            }
            Ok(None) => {
                *state = State::Unheard;
                self.try_again_later();
                Ok(None)
            }
            Err(fault) => {
                *state = State::Off;
                Err(fault)
            }
        }
    }

    async fn open(
        &self,
        database: &Arc<Database>,
    ) -> Result<Option<(Client, Waiters)>, ServerFault> {
        let limit = database.timeout.max(MIN_LIMIT);
        let name = &self.address.name;
        let connecting = timeout(limit, self.connect(database)).await;
        let (client, waiters) = connecting.map_err(|_| ServerFault::late(name, limit))??;
        if self.is_heard(database, &waiters, limit).await? {
            return Ok(Some((client, waiters)));
        }
        warn!(
            server = %name,
            "notifications do not arrive, waiters poll: give a URL without a pooler by \
             `with_listen_url`"
        );
        // The pooler may use this server connection for other clients, which did not send `LISTEN`.
        drop(timeout(limit, client.batch_execute("UNLISTEN *")).await);
        Ok(None)
    }

    async fn connect(&self, database: &Arc<Database>) -> Result<(Client, Waiters), ServerFault> {
        let fault = |error| ServerFault::from_driver(&self.address.name, &error);
        let connected = self.address.config.connect(self.tls.clone()).await;
        let (client, mut connection) = connected.map_err(fault)?;
        let waiters = Waiters::new();
        let (woken, server) = (waiters.clone(), self.address.name.clone());
        let (grants, freed) = (self.grants.clone(), self.channel.clone());
        let database = Arc::downgrade(database);
        tokio::spawn(async move {
            let mut messages = stream::poll_fn(|context| connection.poll_message(context));
            while let Some(message) = messages.next().await {
                match message {
                    Ok(AsyncMessage::Notification(notification)) => {
                        let payload = notification.payload();
                        if notification.channel() == freed {
                            woken.wake(payload);
                            grants.freed(payload);
                        } else if let Some((key, nonce)) = grants.deliver(payload)
                            && let Some(database) = database.upgrade()
                        {
                            tokio::spawn(async move {
                                // If this fails, the ttl frees the key.
                                drop(hand_on(&database, &key, nonce, None).await);
                            });
                        }
                    }
                    Ok(_) => (),
                    Err(error) => {
                        warn!(%server, error = &error as &dyn Error, "listening connection ended");
                        break;
                    }
                }
            }
            // In this order: a claim that finds the waiters open receives the notice.
            woken.close();
            grants.missed();
        });
        let listen = format!("LISTEN \"{}\"; LISTEN \"{}\"", self.channel, self.channel_of_grants);
        client.batch_execute(&listen).await.map_err(fault)?;
        Ok((client, waiters))
    }

    /// Behind a pooler that gives each transaction another connection, `LISTEN` succeeds without an effect.
    async fn is_heard(
        &self,
        database: &Database,
        waiters: &Waiters,
        limit: Duration,
    ) -> Result<bool, ServerFault> {
        // No key contains a control character.
        let payload = format!("\u{1}{}", Nonce::random());
        let Some(mut watch) = waiters.watch(&payload) else { return Ok(false) };
        let notify = Call::of("SELECT pg_notify($1, $2)::text").text(&*self.channel).text(payload);
        database.request(Lane::Claims, &notify, limit).await?;
        let late = pin!(sleep(limit));
        Ok(select! {
            biased;
            () = watch.woken() => !waiters.is_closed(),
            () = late => false,
        })
    }

    /// The server may have been busy, or an operator may reconfigure the pooler.
    fn try_again_later(self: &Arc<Self>) {
        let listener = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep(PAUSE).await;
            if let Some(listener) = listener.upgrade() {
                *listener.state.lock() = State::Off;
            }
        });
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("channel", &self.channel).finish_non_exhaustive()
    }
}

/// A new connection takes several round trips.
const MIN_LIMIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use lease_test_servers::postgres::{PATIENT, PostgresServer};

    use super::*;
    use crate::connection::tls::tls;
    use crate::statements::{Statements, TableName};

    /// The task that received the messages has ended, but its connection is not dropped yet.
    #[tokio::test]
    async fn claim_that_listens_after_the_last_notice_is_refused() {
        let Some(server) = PostgresServer::start() else { return };
        let address = Address::parse(&server.url()).unwrap();
        let statements = Statements::new(TableName::parse("lease").unwrap());
        let channel = statements.table().channel();
        let database = Database::new(&address, tls(None).unwrap(), statements, PATIENT, 2);
        let database = Arc::new(database.unwrap());
        let listener = Arc::new(Listener::new(address, tls(None).unwrap(), channel));
        let (client, waiters) = listener.connect(&database).await.unwrap();
        *listener.state.lock() = State::Listening(client, waiters.clone());
        let (key, lessee) = ("job".parse().unwrap(), "a".parse().unwrap());
        let claim = Claim::new(key, lessee, Nonce::random(), PATIENT);
        assert!(listener.listen(&database, &claim).await.unwrap().is_some());

        waiters.close();

        assert!(listener.listen(&database, &claim).await.is_err(), "no notice can arrive");
    }
}
