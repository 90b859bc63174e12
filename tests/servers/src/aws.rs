//! HTTP clients of the AWS SDK: to servers on this machine, and to models without a network.

use std::fmt;
use std::sync::Arc;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;

/// Makes a client for servers on plain HTTP.
pub fn http() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new().build_http()
}

/// Makes a client that answers each request by calling `answer`, without a network.
pub fn model(
    answer: impl Fn(HttpRequest) -> HttpConnectorFuture + Send + Sync + 'static,
) -> SharedHttpClient {
    SharedHttpClient::new(Model(Arc::new(answer)))
}

#[derive(Clone)]
struct Model(Arc<dyn Fn(HttpRequest) -> HttpConnectorFuture + Send + Sync>);

impl HttpClient for Model {
    fn http_connector(
        &self,
        _settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Model {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        (self.0)(request)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").finish_non_exhaustive()
    }
}
