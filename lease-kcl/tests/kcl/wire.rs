//! The SDK's way to the model of a table, with no socket in it.

use std::fmt;
use std::future::pending;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::{HttpRequest, HttpResponse};
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, HttpClient, Region, RuntimeComponents};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use lease_core::conformance::{Call, Fault, NetworkFaults, Simulation};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::model::Table;

/// Runs requests on the network's runtime: they continue after their sender has stopped.
#[derive(Clone)]
struct Wire {
    table: Table,
    faults: NetworkFaults,
}

/// A client whose requests go to `table`, through `faults`.
pub(crate) fn client(table: &Table, faults: &NetworkFaults) -> Client {
    let wire = Wire { table: table.clone(), faults: faults.clone() };
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .endpoint_url("http://dynamodb.model")
        .allow_no_auth()
        .http_client(wire)
        .retry_config(RetryConfig::disabled())
        .build();
    Client::from_conf(config)
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
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.strip_prefix("DynamoDB_20120810.").unwrap_or(target).to_owned();
        let body: Value =
            serde_json::from_slice(request.body().bytes().unwrap_or_default()).unwrap();
        let call = match operation.as_str() {
            "GetItem" | "Scan" => Call::Read,
            _ => Call::Write,
        };
        let fault = self.faults.next_fault(call);
        let table = self.table.clone();
        let (reply, answer) = oneshot::channel();
        self.table.network().spawn(async move {
            sleep(Simulation::LATENCY).await;
            let serve = || table.serve(&operation, &body);
            match fault {
                None => drop(reply.send(Some(serve()))),
                Some(Fault::Fail) => drop(reply.send(None)),
                Some(Fault::LoseReply) => {
                    serve();
                    drop(reply.send(None));
                }
                Some(Fault::DelayRequest(delay)) => {
                    sleep(delay).await;
                    drop(reply.send(Some(serve())));
                }
                Some(Fault::ApplyLate(delay)) => {
                    drop(reply.send(None));
                    sleep(delay).await;
                    serve();
                }
                Some(Fault::Double(delay)) => {
                    drop(reply.send(Some(serve())));
                    sleep(delay).await;
                    serve();
                }
                // It hangs, after it was served or before.
                Some(Fault::HangReply) => drop((serve(), reply)),
                Some(_) => drop(reply),
            }
        });
        HttpConnectorFuture::new(async move {
            match answer.await {
                Ok(Some((status, body))) => Ok(response(status, &body)),
                Ok(None) => Err(ConnectorError::io("connection reset (as planned)".into())),
                Err(_silent) => pending().await,
            }
        })
    }
}

fn response(status: u16, body: &Value) -> HttpResponse {
    let status = status.try_into().unwrap();
    let mut response = HttpResponse::new(status, SdkBody::from(body.to_string()));
    response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
    response
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}
