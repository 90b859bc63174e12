//! The network between the SDK and the model of a table, without sockets.

use std::future::pending;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::HttpRequest;
use aws_smithy_runtime_api::client::http::HttpConnectorFuture;
use aws_smithy_runtime_api::client::result::ConnectorError;
use lease_core::conformance::{Call, Fault, NetworkFaults, Simulation};
use lease_test_servers::dynamodb_model;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::model::Table;

/// The network's runtime serves a request even if its sender was killed.
#[derive(Clone)]
struct Wire {
    table: Table,
    faults: NetworkFaults,
}

pub(crate) fn client(table: &Table, faults: &NetworkFaults) -> Client {
    let wire = Wire { table: table.clone(), faults: faults.clone() };
    Client::from_conf(dynamodb_model::config(move |request| wire.send(request)).build())
}

impl Wire {
    fn send(&self, request: &HttpRequest) -> HttpConnectorFuture {
        let operation = dynamodb_model::operation(request).to_owned();
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
                // The table serves the request, but the reply never arrives.
                Some(Fault::HangReply) => drop((serve(), reply)),
                Some(_) => drop(reply),
            }
        });
        HttpConnectorFuture::new(async move {
            match answer.await {
                Ok(Some((status, body))) => Ok(dynamodb_model::response(status, body.to_string())),
                Ok(None) => Err(ConnectorError::io("connection reset (as planned)".into())),
                Err(_silent) => pending().await,
            }
        })
    }
}
