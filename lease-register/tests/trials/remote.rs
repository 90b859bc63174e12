//! The service as one process sees it: over a bad network.

use std::future::pending;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream;
use lease_core::conformance::{Call, ClientContext, Fault, Simulation};
use lease_core::store::{Beat, BoxStream, ServerClock};
use lease_core::{LeaseKey, StoreError, StoreErrorKind};
use lease_register::{Record, Register, Replaced, Version, Versioned, Versions};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::service::{Breach, Service};

#[derive(Debug)]
pub(crate) struct Remote {
    service: Service,
    client: ClientContext,
    clock: Option<ServerClock>,
}

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

impl Remote {
    pub(crate) fn new(service: Service, client: ClientContext, clock: Option<ServerClock>) -> Self {
        Self { service, client, clock }
    }

    /// Sends a request, which runs on even if this process stops.
    async fn call<T: Send + 'static>(
        &self,
        call: Call,
        apply: impl Fn(&Service) -> T + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let fault = self.client.faults.next_fault(call);
        let (reply, answer) = oneshot::channel();
        let service = self.service.clone();
        let sent = self.client.clock.now();
        self.service.network.spawn(async move {
            sleep(Simulation::LATENCY).await;
            carry(fault, &|| (apply(&service), service.date()), reply).await;
        });
        let (answer, date) = match answer.await {
            Ok(answer) => answer?,
            // The simulation has ended.
            Err(_ended) => pending().await,
        };
        self.date(sent, date);
        Ok(answer)
    }

    fn date(&self, sent: lease_core::store::Moment, date: u64) {
        let Some(clock) = &self.clock else { return };
        let received = self.client.clock.now();
        if self.service.setup.breach == Some(Breach::ForeignClocks) {
            // Up to two hours from the clocks of other machines.
            let seconds = received.as_nanos() / 1_000_000_000;
            return clock.add_answer(received, received, 1_800_000_000 + seconds);
        }
        clock.add_answer(sent, received, date);
    }
}

/// Applies a request and sends the reply, with `fault`, if any.
async fn carry<T>(fault: Option<Fault>, apply: &(impl Fn() -> T + Sync), mut reply: Reply<T>) {
    match fault {
        Some(Fault::Fail) => drop(reply.send(Err(unanswered()))),
        // The caller continues to wait.
        Some(Fault::Hang) => reply.closed().await,
        Some(Fault::LoseReply) => {
            drop(apply());
            drop(reply.send(Err(unanswered())));
        }
        Some(Fault::HangReply) => {
            drop(apply());
            reply.closed().await;
        }
        Some(Fault::DelayRequest(delay)) => {
            sleep(delay).await;
            drop(reply.send(Ok(apply())));
        }
        Some(Fault::DelayReply(delay)) => {
            let applied = apply();
            sleep(delay).await;
            drop(reply.send(Ok(applied)));
        }
        Some(Fault::ApplyLate(delay)) => {
            drop(reply.send(Err(unanswered())));
            sleep(delay).await;
            drop(apply());
        }
        Some(Fault::Double(delay)) => {
            drop(reply.send(Ok(apply())));
            sleep(delay).await;
            drop(apply());
        }
        _ => drop(reply.send(Ok(apply()))),
    }
}

#[async_trait]
impl Register for Remote {
    async fn read(&self, _key: &LeaseKey) -> Result<Option<Versioned>, StoreError> {
        self.call(Call::Read, Service::read).await
    }

    async fn replace(
        &self,
        _key: &LeaseKey,
        expected: Option<&Version>,
        record: &Record,
    ) -> Result<Replaced, StoreError> {
        let call = match &record.holder {
            None => Call::Release,
            Some(held) if held.beat > Beat::GRANTED => Call::Heartbeat,
            Some(_) => Call::Obtain,
        };
        let (expected, record) = (expected.cloned(), record.clone());
        self.call(call, move |service| service.replace(expected.as_ref(), &record)).await
    }

    fn list(&self, _prefix: &str) -> BoxStream<'_, Result<(LeaseKey, Versioned), StoreError>> {
        stream::empty().boxed()
    }

    fn versions(&self) -> Versions {
        self.service.setup.versions
    }

    fn clock(&self) -> Option<&ServerClock> {
        self.clock.as_ref()
    }
}

fn unanswered() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "connection reset (as planned)")
}
