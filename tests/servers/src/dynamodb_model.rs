//! Clients of the DynamoDB SDK whose requests a model answers, without a network.

use std::fmt;
use std::sync::Arc;

use aws_sdk_dynamodb::config::http::{HttpRequest, HttpResponse};
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, HttpClient, Region, RuntimeComponents};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_types::body::SdkBody;

/// Returns the configuration of a client without retries, which calls `answer` for each request.
pub fn config(
    answer: impl Fn(&HttpRequest) -> HttpConnectorFuture + Send + Sync + 'static,
) -> Builder {
    aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .endpoint_url("http://dynamodb.model")
        .allow_no_auth()
        .http_client(Model(Arc::new(answer)))
        .retry_config(RetryConfig::disabled())
}

/// Returns the operation of a request, for example `GetItem`.
pub fn operation(request: &HttpRequest) -> &str {
    let target = request.headers().get("x-amz-target").unwrap_or_default();
    target.strip_prefix("DynamoDB_20120810.").unwrap_or(target)
}

/// Makes a response with a JSON body.
///
/// # Panics
///
/// Panics if `status` is not an HTTP status.
pub fn response(status: u16, body: impl Into<SdkBody>) -> HttpResponse {
    let status = status.try_into().expect("an HTTP status");
    let mut response = HttpResponse::new(status, body.into());
    response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
    response
}

#[derive(Clone)]
struct Model(Arc<dyn Fn(&HttpRequest) -> HttpConnectorFuture + Send + Sync>);

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
        (self.0)(&request)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").finish_non_exhaustive()
    }
}
