//! Watches wake waiters when a key is freed. One connection per server serves all watches.
//!
//! Start with [`listener`], the task that receives the messages of a server, from the connection in [`feed`].
//! [`watched`] lists the channels that callers watch now. [`grants`] delivers the grants of queued claims.

mod feed;
pub(crate) mod grants;
mod listener;
pub(crate) mod watched;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lease_core::store::Change;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::connection::connector::Connector;
use crate::connection::watches::grants::Grants;
use crate::connection::watches::listener::{Listener, ListenerCommand, NewWatch};
use crate::connection::watches::watched::WatchedEntry;
use crate::error::ServerFault;

#[derive(Debug)]
pub(crate) struct Watches {
    server: Arc<str>,
    connector: Arc<Connector>,
    limit: Duration,
    listener: Mutex<Option<mpsc::UnboundedSender<ListenerCommand>>>,
    last_id: AtomicU64,
    grants: Arc<Grants>,
}

/// Ends when messages may have been missed.
#[derive(Debug)]
pub(crate) struct Watch {
    changes: mpsc::UnboundedReceiver<Change>,
    _guard: WatchGuard,
    watched: Option<WatchedEntry>,
}

#[derive(Debug)]
struct WatchGuard {
    listener: mpsc::UnboundedSender<ListenerCommand>,
    channel: String,
    id: u64,
}

impl Watches {
    pub(crate) fn new(
        server: Arc<str>,
        connector: Arc<Connector>,
        limit: Duration,
        grants: Arc<Grants>,
    ) -> Self {
        let (listener, last_id) = (Mutex::default(), AtomicU64::new(0));
        Self { server, connector, limit, listener, last_id, grants }
    }

    pub(crate) fn grants(&self) -> &Arc<Grants> {
        &self.grants
    }

    /// The listener delivers all grants that are published after the return.
    pub(crate) async fn subscribe_to_grants(&self) -> Result<(), ServerFault> {
        let (registered, is_registered) = oneshot::channel();
        let watch = NewWatch { registered, notify: None };
        let channel = self.grants.channel().to_owned();
        drop(self.listener().send(ListenerCommand::Watch { channel, id: 0, watch }));
        self.registered(is_registered).await
    }

    /// Opens another connection for the subscriptions, if the current one leads to another server than the commands.
    pub(crate) fn reconnect(&self) {
        drop(self.listener().send(ListenerCommand::Reconnect));
    }

    async fn registered(
        &self,
        is_registered: oneshot::Receiver<Result<(), ServerFault>>,
    ) -> Result<(), ServerFault> {
        match timeout(self.limit, is_registered).await {
            Ok(Ok(registered)) => registered,
            Ok(Err(_)) | Err(_) => Err(ServerFault::late(&self.server, self.limit)),
        }
    }

    /// A message that is published after the return wakes the watch.
    pub(crate) async fn watch(&self, channel: String) -> Result<Watch, ServerFault> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed);
        let (registered, is_registered) = oneshot::channel();
        let (notify, changes) = mpsc::unbounded_channel();
        let watch = NewWatch { registered, notify: Some(notify) };
        let listener = self.listener();
        let guard = WatchGuard { listener: listener.clone(), channel: channel.clone(), id };
        // If the listener has ended, the wait for `registered` below returns the error.
        drop(listener.send(ListenerCommand::Watch { channel, id, watch }));
        self.registered(is_registered).await?;
        Ok(Watch { changes, _guard: guard, watched: None })
    }

    fn listener(&self) -> mpsc::UnboundedSender<ListenerCommand> {
        let mut listener = self.listener.lock();
        match &*listener {
            Some(sender) if !sender.is_closed() => sender.clone(),
            _ => {
                let (sender, commands) = mpsc::unbounded_channel();
                let (server, connector) = (Arc::clone(&self.server), Arc::clone(&self.connector));
                let new = Listener::new(server, connector, self.limit, Arc::clone(&self.grants));
                tokio::spawn(new.run(commands));
                *listener = Some(sender.clone());
                sender
            }
        }
    }
}

impl Watch {
    pub(crate) fn with_entry(self, entry: WatchedEntry) -> Self {
        Self { watched: Some(entry), ..self }
    }

    pub(crate) fn is_marked(&self) -> bool {
        self.watched.as_ref().is_some_and(WatchedEntry::is_marked)
    }

    /// Returns `None` if messages may have been missed.
    pub(crate) async fn next(&mut self) -> Option<Change> {
        self.changes.recv().await
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let (channel, id) = (std::mem::take(&mut self.channel), self.id);
        drop(self.listener.send(ListenerCommand::Unwatch { channel, id }));
    }
}
