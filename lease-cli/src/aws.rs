//! Finds the region and the credentials for requests to AWS, as the AWS SDK does.

use aws_config::{BehaviorVersion, Region, SdkConfig};
#[cfg(feature = "dynamodb")]
use aws_sdk_dynamodb::config::Credentials;
#[cfg(not(feature = "dynamodb"))]
use aws_sdk_kinesis::config::Credentials;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

/// Returns the configuration of clients. `region` and `endpoint` replace those of the environment.
pub(crate) async fn config(region: Option<String>, endpoint: Option<String>) -> SdkConfig {
    let is_plain = endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    let http = if is_plain {
        Builder::new().build_http()
    } else {
        Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
    };
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http);
    if let Some(region) = region {
        loader = loader.region(Region::new(region));
    }
    // A server at an `http://` endpoint is local, and accepts any credentials. Some keep the data of each key apart, so
    // these are those of `lease-store`.
    if is_plain && std::env::var_os("AWS_ACCESS_KEY_ID").is_none() {
        loader =
            loader.credentials_provider(Credentials::new("local", "local", None, None, "local"));
    }
    if let Some(endpoint) = endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    loader.load().await
}
