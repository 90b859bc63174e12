//! HTTP clients of the AWS SDK.

use aws_smithy_runtime_api::client::http::SharedHttpClient;

/// Makes a client for servers on plain HTTP.
pub fn http() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new().build_http()
}
