//! One attempt at a key: a task that goes on until the answer is definite, whoever waits for it.

use std::sync::Arc;

use tokio::sync::oneshot;
use tracing::debug;

use crate::attributes::Attributes;
use crate::clock::{Moment, sleep_until};
use crate::error::{StoreError, StoreErrorKind};
use crate::grant::{Claim, Grant, Holder, Obtained};
use crate::home::Home;
use crate::key::LeaseKey;
use crate::lease::Lease;
use crate::nonce::Nonce;
use crate::outstanding::Errand;
use crate::retry::{Pauses, within};
use crate::settings::Settings;

/// What an attempt to obtain a key came to.
#[derive(Debug)]
#[must_use = "a lease that is dropped is released: bind it to a name, since `let _ =` drops it"]
#[expect(clippy::exhaustive_enums, reason = "a key is obtained or held: match on both")]
pub enum Attempt {
    /// The key is yours for as long as you keep this.
    Obtained(Lease),
    /// Somebody else has it, or another task of yours: leases are not re-entrant.
    Held(Holder),
}

impl Attempt {
    /// The lease, if the key was obtained.
    pub fn lease(self) -> Option<Lease> {
        match self {
            Self::Obtained(lease) => Some(lease),
            Self::Held(_) => None,
        }
    }
}

/// What is asked of the store.
pub(crate) enum Ask {
    Obtain(LeaseKey),
    Adopt(Grant),
}

/// When the caller wants to hear.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// The store's first answer, be it an error.
    FirstAnswer,
    /// Once it is known whether the key was obtained; errors that do not pass, at once.
    Definite,
}

/// Makes one attempt. May be dropped at any time: what is granted meanwhile is released.
pub(crate) async fn attempt(
    settings: &Arc<Settings>,
    home: &Home,
    ask: Ask,
    patience: Patience,
) -> Result<Attempt, StoreError> {
    let key = match &ask {
        Ask::Obtain(key) => key,
        Ask::Adopt(grant) => &grant.key,
    };
    let claim = Claim::new(
        key.clone(),
        settings.lessee.clone(),
        Nonce::new(settings.random.uuid()),
        settings.options.ttl(),
    );
    let (reply, answer) = oneshot::channel();
    let errand = Attempting {
        settings: Arc::clone(settings),
        home: home.clone(),
        ask,
        claim,
        patience,
        reply: Some(reply),
        _errand: home.errand(),
    };
    home.run(errand.settle());
    answer.await.unwrap_or_else(|_dropped| Err(home.why_unanswered()))
}

struct Attempting {
    settings: Arc<Settings>,
    home: Home,
    ask: Ask,
    claim: Claim,
    patience: Patience,
    /// Until the caller has heard.
    reply: Option<oneshot::Sender<Result<Attempt, StoreError>>>,
    _errand: Errand,
}

impl Attempting {
    /// Asks, with the same nonce each time, until the answer is definite or can be of no use:
    /// what was granted without our knowing has run out once a ttl has passed.
    async fn settle(mut self) {
        let settings = Arc::clone(&self.settings);
        let first_sent = settings.clock.now();
        let gives_up = first_sent + self.claim.ttl;
        let mut pauses = Pauses::new(&settings.options, &settings.random);
        loop {
            let error = match self.ask().await {
                Ok(Obtained::Granted(grant, attributes)) => {
                    return self.granted(grant, attributes, first_sent);
                }
                Ok(Obtained::Held(holder)) => return self.answer(Ok(Attempt::Held(holder))),
                Err(error) => error,
            };
            debug!(
                key = %self.claim.key, lessee = %self.claim.lessee,
                error = &error as &dyn std::error::Error,
                "attempt without an answer"
            );
            let resume = settings.clock.now() + pauses.next();
            if !error.is_retryable() || resume >= gives_up {
                return self.answer(Err(error));
            }
            if self.patience == Patience::FirstAnswer {
                self.answer(Err(error));
            }
            let period = settings.options.heartbeat_period();
            sleep_until(&*settings.clock, resume, period).await;
        }
    }

    async fn ask(&self) -> Result<Obtained, StoreError> {
        let store = &self.settings.store;
        let limit = self.settings.options.heartbeat_period();
        match &self.ask {
            Ask::Obtain(_) => within(limit, store.obtain(&self.claim)).await,
            Ask::Adopt(grant) => within(limit, store.adopt(grant, &self.claim)).await,
        }
    }

    fn granted(&mut self, grant: Grant, attributes: Attributes, first_sent: Moment) {
        // Counted from before the first request: an earlier one than the one that was answered
        // may be what was granted.
        let deadline = first_sent + self.settings.trusted(grant.ttl);
        let lease = Lease::new(&self.settings, &self.home, grant, attributes, first_sent, deadline);
        if lease.is_held() {
            self.answer(Ok(Attempt::Obtained(lease)));
        } else {
            drop(lease);
            self.answer(Err(StoreError::new(
                StoreErrorKind::Unavailable,
                "the key was granted too late to be of use",
            )));
        }
    }

    /// Tells the caller, once. What a caller who is gone would have been told is dropped, and
    /// a lease that is dropped is released.
    fn answer(&mut self, answer: Result<Attempt, StoreError>) {
        if let Some(reply) = self.reply.take() {
            drop(reply.send(answer));
        }
    }
}
