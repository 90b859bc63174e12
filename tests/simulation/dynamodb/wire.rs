//! The network between one process and DynamoDB, without sockets.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::config::http::{HttpRequest, HttpResponse};
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use aws_smithy_runtime_api::client::http::HttpConnectorFuture;
use aws_smithy_runtime_api::client::result::ConnectorError;
use lease_core::conformance::{Fault, NetworkFaults};
use lease_test_servers::simulation::expression::Refusal;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::request::{Request, Write};
use super::sdk::WallClock;
use super::service::{Region, Reply, Service};
use lease_test_servers::dynamodb_model;

/// Requests run on the network's runtime, so that they arrive even if their sender has ended.
#[derive(Clone)]
pub(crate) struct Wire {
    pub(crate) service: Service,
    pub(crate) region: Region,
    pub(crate) faults: NetworkFaults,
    pub(crate) wall: WallClock,
}

impl Wire {
    pub(crate) fn send(&self, request: &HttpRequest) -> HttpConnectorFuture {
        let request = match self.read(request) {
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
                // The request hangs, or the network's runtime has ended.
                Err(_silent) => pending().await,
            }
        })
    }
}

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
        // Under `Hang`, and under faults that this model does not know, the request gets no reply.
        Some(_) => drop(reply),
    }
}

fn answer(reply: oneshot::Sender<Option<Reply>>, served: Option<Reply>) {
    if served.is_some() {
        drop(reply.send(served));
    }
}

impl Wire {
    fn read(&self, request: &HttpRequest) -> Result<Request, Refusal> {
        let body = request.body().bytes().unwrap_or_default();
        let body: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let mut request = Request::parse(dynamodb_model::operation(request), &body)?;
        if let Request::Write(write) = &mut request {
            self.replace_wall_clock(write);
        }
        Ok(request)
    }

    /// Before its first response from DynamoDB, a store starts tokens from the real wall clock,
    /// which would make a trial unrepeatable. So the wire writes the time of the simulated machine.
    fn replace_wall_clock(&self, write: &mut Write) {
        let Some(start) = write.bound.values.get_mut(":start") else { return };
        let sent = start.get("N").and_then(Value::as_str).and_then(|start| start.parse().ok());
        let sent = Duration::from_micros(sent.unwrap_or_default());
        let wall = self.wall.since_1970();
        if sent.abs_diff(wall) > Duration::from_hours(24) {
            *start = json!({ "N": wall.as_micros().to_string() });
        }
    }
}

fn response(reply: &Reply) -> HttpResponse {
    let mut response = dynamodb_model::response(reply.status, reply.body.to_string());
    let date = DateTime::from_secs(reply.date.try_into().unwrap());
    response.headers_mut().insert("date", date.fmt(DateTimeFormat::HttpDate).unwrap());
    response
}
