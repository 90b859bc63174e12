//! The way of one process' requests to DynamoDB and back, with no socket in it.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::config::http::{HttpRequest, HttpResponse};
use aws_sdk_dynamodb::config::{HttpClient, RuntimeComponents};
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use lease_core::conformance::{Fault, NetworkFaults};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::expression::Refusal;
use super::request::{Request, Write};
use super::sdk::WallClock;
use super::service::{Region, Reply, Service};

/// Carries requests on the network's runtime: they go on when their sender has stopped.
#[derive(Clone)]
pub(crate) struct Wire {
    pub(crate) service: Service,
    pub(crate) region: Region,
    pub(crate) faults: NetworkFaults,
    pub(crate) wall: WallClock,
}

impl HttpClient for Wire {
    fn http_connector(
        &self,
        _settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Wire {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let request = match self.read(&request) {
            Ok(request) => Arc::new(request),
            Err(refusal) => {
                self.service.give_up(&refusal);
                return HttpConnectorFuture::new(pending());
            }
        };
        let fault = self.faults.next_fault(request.call());
        let latency = self.service.sent(&request, self.region);
        let (reply, answer) = oneshot::channel();
        let (service, region) = (self.service.clone(), self.region);
        self.service.network.spawn(async move {
            sleep(latency).await;
            carry(&service, region, &request, fault, reply).await;
        });
        HttpConnectorFuture::new(async move {
            match answer.await {
                Ok(Some(reply)) => Ok(response(&reply)),
                Ok(None) => Err(ConnectorError::io("connection reset (as planned)".into())),
                // It hangs, or the network's runtime has ended: nobody will answer.
                Err(_silent) => pending().await,
            }
        })
    }
}

/// Lets `fault` befall one request. `None` is sent where the connection breaks.
async fn carry(
    service: &Service,
    region: Region,
    request: &Request,
    fault: Option<Fault>,
    reply: oneshot::Sender<Option<Reply>>,
) {
    let serve = || service.serve(request, region);
    match fault {
        None => answer(reply, serve().await),
        Some(Fault::Fail) => drop(reply.send(None)),
        Some(Fault::LoseReply) => {
            serve().await;
            drop(reply.send(None));
        }
        Some(Fault::HangReply) => drop((serve().await, reply)),
        Some(Fault::DelayRequest(delay)) => {
            sleep(delay).await;
            answer(reply, serve().await);
        }
        Some(Fault::DelayReply(delay)) => {
            let served = serve().await;
            sleep(delay).await;
            answer(reply, served);
        }
        Some(Fault::ApplyLate(delay)) => {
            drop(reply.send(None));
            sleep(delay).await;
            serve().await;
        }
        Some(Fault::Double(delay)) => {
            answer(reply, serve().await);
            sleep(delay).await;
            serve().await;
        }
        // It hangs. So does whatever fault is invented later.
        Some(_) => drop(reply),
    }
}

/// Silence is told by nothing at all.
fn answer(reply: oneshot::Sender<Option<Reply>>, served: Option<Reply>) {
    if served.is_some() {
        drop(reply.send(served));
    }
}

impl Wire {
    fn read(&self, request: &HttpRequest) -> Result<Request, Refusal> {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.strip_prefix("DynamoDB_20120810.").unwrap_or(target);
        let body = request.body().bytes().unwrap_or_default();
        let body: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let mut request = Request::parse(operation, &body)?;
        if let Request::Write(write) = &mut request {
            self.tell_the_worlds_time(write);
        }
        Ok(request)
    }

    /// A store that has not heard from DynamoDB yet lets tokens start from the wall clock: here
    /// from that of its machine in the world, since another's would not come again.
    fn tell_the_worlds_time(&self, write: &mut Write) {
        let Some(start) = write.bound.values.get_mut(":start") else { return };
        let told = start.get("N").and_then(Value::as_str).and_then(|start| start.parse().ok());
        let told = Duration::from_micros(told.unwrap_or_default());
        let wall = self.wall.since_1970();
        if told.abs_diff(wall) > Duration::from_hours(24) {
            *start = json!({ "N": wall.as_micros().to_string() });
        }
    }
}

fn response(reply: &Reply) -> HttpResponse {
    let status = reply.status.try_into().unwrap();
    let mut response = HttpResponse::new(status, SdkBody::from(reply.body.to_string()));
    let date = DateTime::from_secs(reply.date.try_into().unwrap());
    let headers = response.headers_mut();
    headers.insert("content-type", "application/x-amz-json-1.0");
    headers.insert("date", date.fmt(DateTimeFormat::HttpDate).unwrap());
    response
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}
