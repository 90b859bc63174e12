//! Creates the clients of AWS, or of servers that replace AWS.

#[cfg(feature = "aws")]
use aws_sdk_kinesis::config::SharedCredentialsProvider;
use aws_sdk_kinesis::config::{BehaviorVersion, SharedHttpClient};
use aws_smithy_http_client::Builder;

use crate::aws::profiles;
use crate::configuration::settings::{ServiceAddress, Settings};
use crate::failure::Failure;

pub(crate) struct Clients {
    pub(crate) kinesis: aws_sdk_kinesis::Client,
    pub(crate) dynamodb: aws_sdk_dynamodb::Client,
    #[cfg(feature = "aws")]
    shared: Shared,
}

#[cfg(feature = "aws")]
type Shared = aws_config::SdkConfig;

#[cfg(not(feature = "aws"))]
type Shared = aws_sdk_kinesis::config::Credentials;

impl Clients {
    pub(crate) async fn open(settings: &Settings) -> Result<Self, Failure> {
        let (kinesis, dynamodb) = (&settings.kinesis, &settings.dynamodb);
        let shared = shared(kinesis.region.clone()).await?;
        let config = kinesis_config(&shared)
            .region(region(&shared, kinesis).await?.map(aws_sdk_kinesis::config::Region::new))
            .http_client(http_client(kinesis)?);
        let mut config = config;
        config.set_endpoint_url(kinesis.endpoint.clone());
        let kinesis = aws_sdk_kinesis::Client::from_conf(config.build());
        let config = dynamodb_config(&shared)
            .region(region(&shared, dynamodb).await?.map(aws_sdk_dynamodb::config::Region::new))
            .http_client(http_client(dynamodb)?);
        let mut config = config;
        config.set_endpoint_url(dynamodb.endpoint.clone());
        let dynamodb = aws_sdk_dynamodb::Client::from_conf(config.build());
        Ok(Self {
            kinesis,
            dynamodb,
            #[cfg(feature = "aws")]
            shared,
        })
    }

    #[cfg(feature = "aws")]
    pub(super) fn provider(&self) -> Option<SharedCredentialsProvider> {
        self.shared.credentials_provider()
    }
}

#[cfg(feature = "aws")]
#[expect(clippy::unnecessary_wraps, reason = "fails without the feature `aws`")]
fn http_client(address: &ServiceAddress) -> Result<SharedHttpClient, Failure> {
    if address.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://")) {
        return Ok(Builder::new().build_http());
    }
    Ok(over_tls())
}

/// Created on first use, because reading the system's certificates takes longer than the rest of the start.
#[cfg(feature = "aws")]
fn over_tls() -> SharedHttpClient {
    use std::sync::LazyLock;

    use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

    static CLIENT: LazyLock<SharedHttpClient> = LazyLock::new(|| {
        Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
    });
    CLIENT.clone()
}

#[cfg(not(feature = "aws"))]
fn http_client(address: &ServiceAddress) -> Result<SharedHttpClient, Failure> {
    match &address.endpoint {
        Some(endpoint) if endpoint.starts_with("http://") => Ok(Builder::new().build_http()),
        _ => Err(Failure::usage(
            "this build has no TLS: set kinesisEndpoint and dynamoDBEndpoint to http://…, or \
             build with `--features aws`",
        )),
    }
}

#[cfg(feature = "aws")]
async fn shared(region: Option<String>) -> Result<Shared, Failure> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let has_keys = is_set("AWS_ACCESS_KEY_ID") && is_set("AWS_SECRET_ACCESS_KEY");
    if !has_keys {
        profiles::check_profile().await?;
    }
    // If the region and the keys are known, the SDK's search sends no request, and needs no TLS.
    let is_known = region.is_some() && has_keys;
    let client = if is_known { Builder::new().build_http() } else { over_tls() };
    let loader = aws_config::defaults(BehaviorVersion::latest()).http_client(client);
    let loader = match region {
        Some(region) => loader.region(aws_config::Region::new(region)),
        None => loader,
    };
    Ok(loader.load().await)
}

#[cfg(not(feature = "aws"))]
#[expect(clippy::unused_async, reason = "with the feature `aws`, it awaits")]
async fn shared(_region: Option<String>) -> Result<Shared, Failure> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (key, secret) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"));
    let (Some(key), Some(secret)) = (key, secret) else {
        return Err(Failure::other(
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not both set; a build with \
             `--features aws` looks for credentials elsewhere, too",
        ));
    };
    let session = variable("AWS_SESSION_TOKEN");
    Ok(Shared::new(key, secret, session, None, "environment"))
}

#[cfg(feature = "aws")]
fn kinesis_config(shared: &Shared) -> aws_sdk_kinesis::config::Builder {
    aws_sdk_kinesis::config::Builder::from(shared)
}

#[cfg(not(feature = "aws"))]
fn kinesis_config(shared: &Shared) -> aws_sdk_kinesis::config::Builder {
    let config = aws_sdk_kinesis::Config::builder().behavior_version(BehaviorVersion::latest());
    config.credentials_provider(shared.clone())
}

#[cfg(feature = "aws")]
fn dynamodb_config(shared: &Shared) -> aws_sdk_dynamodb::config::Builder {
    aws_sdk_dynamodb::config::Builder::from(shared)
}

#[cfg(not(feature = "aws"))]
fn dynamodb_config(shared: &Shared) -> aws_sdk_dynamodb::config::Builder {
    let latest = BehaviorVersion::latest();
    let config = aws_sdk_dynamodb::Config::builder().behavior_version(latest);
    config.credentials_provider(shared.clone())
}

async fn region(shared: &Shared, address: &ServiceAddress) -> Result<Option<String>, Failure> {
    let found = address.region.clone().or_else(|| found_region(shared));
    match found {
        Some(region) => Ok(Some(region)),
        None => Err(Failure::usage(format!(
            "no region is known: set regionName, or AWS_REGION in the environment{}",
            profiles::unreadable().await
        ))),
    }
}

#[cfg(feature = "aws")]
fn found_region(shared: &Shared) -> Option<String> {
    shared.region().map(ToString::to_string)
}

#[cfg(not(feature = "aws"))]
fn found_region(_shared: &Shared) -> Option<String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"))
}
