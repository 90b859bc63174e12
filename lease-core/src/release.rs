//! A lease on its way back.

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::sync::OwnedSemaphorePermit;
use tracing::{debug, warn};

use crate::clock::sleep_until;
use crate::error::StoreError;
use crate::hold::{Ending, Hold};
use crate::lost::LossCause;
use crate::outstanding::Errand;
use crate::retry::{Pauses, within};
use crate::settings::Settings;

#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) hold: Arc<Hold>,
    pub(crate) reserved: Option<Duration>,
    /// How long the store may keep the key by itself: the longest ttl that was sent.
    pub(crate) reach: Duration,
    /// Held until it is done, for `close`.
    pub(crate) errand: Errand,
}

impl Release {
    /// Delivers the release, and gives `slot` to another once this one is slow.
    pub(crate) async fn deliver_in(self, slot: OwnedSemaphorePermit, settings: Arc<Settings>) {
        let (clock, period) = (Arc::clone(&settings.clock), settings.options.heartbeat_period());
        let mut slow = pin!(sleep_until(&*clock, clock.now() + period / 16, period));
        let mut delivered = pin!(self.deliver(settings));
        let mut slot = Some(slot);
        loop {
            select! {
                // The answer first: a release that is answered needs no timer.
                biased;
                // The answer is in the log.
                _ = &mut delivered => return,
                () = &mut slow, if slot.is_some() => slot = None,
            }
        }
    }

    /// Gives a lease back, and goes on trying until the store has surely freed it by itself.
    pub(crate) async fn deliver(self, settings: Arc<Settings>) -> Result<(), StoreError> {
        let Self { hold, reserved, reach, errand: _errand } = self;
        // Here, so that it is given up also where a store panics.
        let turn = hold.take_turn();
        let (grant, options) = (&hold.grant, &settings.options);
        let clock = hold.clock();
        if let Some(Ending::Released) = hold.ending() {
            settings.metrics.released(&grant.key, clock.now().since(hold.granted_at));
        }

        let until = clock.now() + reach;
        let mut pauses = Pauses::new(options, &settings.random);
        let answer = loop {
            // Somebody else has the key: there is nothing to free.
            if hold.ending() == Some(Ending::Lost(LossCause::Superseded)) {
                break Ok(());
            }
            let release = settings.store.release(grant, reserved);
            let error = match within(options.request_timeout(), release).await {
                Ok(()) => break Ok(()),
                Err(error) => error,
            };
            let pause = pauses.next();
            if !error.is_retryable() || clock.now() + pause >= until {
                break Err(error);
            }
            sleep_until(clock, clock.now() + pause, options.heartbeat_period()).await;
        };
        match &answer {
            Ok(()) => debug!(
                key = %grant.key, lessee = %grant.lessee, token = %grant.token, "lease released"
            ),
            Err(error) => warn!(
                key = %grant.key, lessee = %grant.lessee, token = %grant.token,
                error = error as &dyn Error,
                within = ?reach,
                "lease not released: the key is free again when its ttl has passed"
            ),
        }
        // The next waiter of this process goes first, then whoever waits for this answer.
        drop(turn);
        answer
    }
}
