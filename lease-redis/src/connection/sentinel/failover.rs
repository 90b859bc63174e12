//! Follows failovers: a connection to a master is closed when a Sentinel announces another master.
//!
//! After `SENTINEL FAILOVER`, the former master accepts writes until Sentinel demotes it, about 10 s later.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::PubSubStream;
use redis::{Client, ConnectionInfo, RedisResult};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::connection::sentinel::master::{Epoch, Sentinels};

/// Dropping the last clone ends the tasks of the watch.
#[derive(Clone)]
pub(crate) struct MasterWatch {
    replaced: watch::Receiver<bool>,
    _tasks: Arc<JoinSet<()>>,
}

impl MasterWatch {
    /// The first announcement of another master suffices.
    pub(crate) fn start(sentinels: &Arc<Sentinels>, epoch: Epoch) -> Self {
        let (announce, replaced) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for index in 0..sentinels.all.len() {
            let (sentinels, announce) = (Arc::clone(sentinels), announce.clone());
            tasks.spawn(async move {
                if let Some(sentinel) = sentinels.all.get(index) {
                    sentinels.wait_for_another(sentinel, epoch).await;
                }
                announce.send_replace(true);
            });
        }
        Self { replaced, _tasks: Arc::new(tasks) }
    }

    pub(crate) fn is_replaced(&self) -> bool {
        *self.replaced.borrow()
    }

    pub(crate) async fn replaced(mut self) {
        if self.replaced.wait_for(|replaced| *replaced).await.is_err() {
            pending::<()>().await;
        }
    }
}

impl Sentinels {
    async fn wait_for_another(&self, sentinel: &ConnectionInfo, epoch: Epoch) {
        loop {
            let mut announced = match self.subscribe(sentinel).await {
                Ok(announced) => Some(announced),
                Err(error) => {
                    debug!(sentinel = %sentinel.addr(), %error, "subscription to Sentinel failed");
                    None
                }
            };
            // Otherwise, the client could miss a failover between query and subscription.
            while let Ok(latest) = self.epoch_at(sentinel).await {
                if latest > epoch {
                    debug!(master = self.master, ?epoch, ?latest, "master replaced");
                    return;
                }
                let Some(announced) = &mut announced else { break };
                if self.announcement(announced).await.is_none() {
                    break;
                }
            }
            sleep(RECONNECT).await;
        }
    }

    async fn subscribe(&self, sentinel: &ConnectionInfo) -> RedisResult<PubSubStream> {
        let client = Client::open(sentinel.clone())?;
        let subscribed = timeout(SUBSCRIBE_LIMIT, async {
            let (mut sink, announced) = client.get_async_pubsub().await?.split();
            sink.subscribe(SWITCH).await?;
            RedisResult::Ok(announced)
        });
        subscribed.await.unwrap_or_else(|elapsed| Err(std::io::Error::from(elapsed).into()))
    }

    /// Completes with an announcement for this master, or when the next query is due. Periodic queries detect
    /// a vanished host. Returns `None` if the connection has ended.
    async fn announcement(&self, announced: &mut PubSubStream) -> Option<()> {
        let named = async {
            loop {
                // The message contains the master's name, its former address and its new address.
                let message: String = announced.next().await?.get_payload().ok()?;
                if message.split(' ').next() == Some(self.master.as_str()) {
                    return Some(());
                }
            }
        };
        timeout(QUERY_INTERVAL, named).await.unwrap_or(Some(()))
    }
}

/// <https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/#pubsub-messages>
const SWITCH: &str = "+switch-master";

const SUBSCRIBE_LIMIT: Duration = Duration::from_secs(10);

/// Five times the interval at which Sentinels exchange their configurations (2 s).
const QUERY_INTERVAL: Duration = Duration::from_secs(10);

const RECONNECT: Duration = Duration::from_secs(1);
