//! Receives the notifications of releases, on a connection of its own.

use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use lease_core::store::Nonce;
use tokio::select;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use tokio_postgres::{AsyncMessage, Client};
use tracing::warn;

use crate::connection::address::Address;
use crate::connection::database::{Database, Lane};
use crate::connection::tls::Tls;
use crate::connection::waiters::{Waiters, Watch};
use crate::error::ServerFault;
use crate::statements::Call;

/// Listens once a caller waits, for as long as the store lives.
pub(crate) struct Listener {
    address: Address,
    tls: Tls,
    channel: String,
    state: Mutex<State>,
}

enum State {
    Off,
    /// Dropping the client closes the connection.
    Listening(Client, Waiters),
    /// A notification did not arrive: a pooler gives each transaction another connection.
    Unheard,
}

impl Listener {
    pub(crate) fn new(address: Address, tls: Tls, channel: String) -> Self {
        Self { address, tls, channel, state: Mutex::new(State::Off) }
    }

    /// Registers a waiter for `key`. `None` if notifications do not arrive.
    pub(crate) async fn watch(
        self: &Arc<Self>,
        database: &Arc<Database>,
        key: &str,
    ) -> Result<Option<Watch>, ServerFault> {
        let (listener, database) = (Arc::clone(self), Arc::clone(database));
        // A task, so that a caller that gives up does not leave a connection half open.
        let opening = tokio::spawn(async move { listener.opened(&database).await });
        let stopped = || ServerFault::unavailable("the runtime has ended");
        let Some(waiters) = opening.await.unwrap_or_else(|_| Err(stopped()))? else {
            return Ok(None);
        };
        let watch = waiters.watch(key);
        watch.map(Some).ok_or_else(|| {
            ServerFault::unavailable(format!(
                "{}: the listening connection has ended",
                self.address.name
            ))
        })
    }

    /// Returns the waiters of the open connection. Opens it if there is none.
    async fn opened(
        self: &Arc<Self>,
        database: &Arc<Database>,
    ) -> Result<Option<Waiters>, ServerFault> {
        // Held while the connection opens: other callers wait for it, and open no further one.
        let mut state = self.state.lock().await;
        match &*state {
            State::Listening(client, waiters) if !client.is_closed() => {
                return Ok(Some(waiters.clone()));
            }
            State::Unheard => return Ok(None),
            State::Listening(..) | State::Off => (),
        }
        *state = State::Off;
        let limit = database.timeout.max(MIN_LIMIT);
        let name = &self.address.name;
        let connecting = timeout(limit, self.connect()).await;
        let (client, waiters) = connecting.map_err(|_| ServerFault::late(name, limit))??;
        if self.is_heard(database, &waiters, limit).await? {
            *state = State::Listening(client, waiters.clone());
            return Ok(Some(waiters));
        }
        warn!(
            server = %name,
            "notifications do not arrive, waiters poll: give a URL without a pooler by \
             `with_listen_url`"
        );
        // The pooler may use the server's connection for other clients.
        drop(timeout(limit, client.batch_execute("UNLISTEN *")).await);
        *state = State::Unheard;
        self.try_again_later();
        Ok(None)
    }

    async fn connect(&self) -> Result<(Client, Waiters), ServerFault> {
        let fault = |error| ServerFault::from_driver(&self.address.name, &error);
        let connected = self.address.config.connect(self.tls.clone()).await;
        let (client, mut connection) = connected.map_err(fault)?;
        let waiters = Waiters::new();
        let (woken, server) = (waiters.clone(), self.address.name.clone());
        tokio::spawn(async move {
            let mut messages = stream::poll_fn(|context| connection.poll_message(context));
            while let Some(message) = messages.next().await {
                match message {
                    Ok(AsyncMessage::Notification(notification)) => {
                        woken.wake(notification.payload());
                    }
                    Ok(_) => (),
                    Err(error) => {
                        warn!(%server, error = &error as &dyn Error, "listening connection ended");
                        break;
                    }
                }
            }
            woken.close();
        });
        let listen = format!("LISTEN \"{}\"", self.channel);
        client.batch_execute(&listen).await.map_err(fault)?;
        Ok((client, waiters))
    }

    /// Notifies itself through another connection. Behind a pooler that gives each transaction another
    /// connection, `LISTEN` succeeds, but no notification arrives.
    async fn is_heard(
        &self,
        database: &Arc<Database>,
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
            () = watch.woken() => waiters.watch("").is_some(),
            () = late => false,
        })
    }

    /// A busy server may have been late, and a pooler may be set up anew.
    fn try_again_later(self: &Arc<Self>) {
        let listener = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep(PAUSE).await;
            if let Some(listener) = listener.upgrade() {
                *listener.state.lock().await = State::Off;
            }
        });
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("channel", &self.channel).finish_non_exhaustive()
    }
}

/// Opening a connection takes several round trips.
const MIN_LIMIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_secs(60);
