//! Opens streams in AWS with credentials from the environment.
//!
//! `aws-config` also finds credentials in profiles and instance roles. `KinesisSource::new` takes a
//! client of `aws-config` in the same way.

use aws_sdk_kinesis::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_kinesis::{Client, Config};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use lease_kinesis::KinesisSource;

use crate::Failure;

/// Opens `stream`, a name or an ARN. The environment must have `AWS_REGION`, `AWS_ACCESS_KEY_ID`
/// and `AWS_SECRET_ACCESS_KEY`. `AWS_SESSION_TOKEN` and `AWS_ENDPOINT_URL_KINESIS` are optional.
///
/// # Errors
///
/// Fails if a required variable is missing.
pub fn open(stream: &str) -> Result<KinesisSource, Failure> {
    Ok(KinesisSource::new(&client()?, stream))
}

pub(crate) fn client() -> Result<Client, Failure> {
    let key = variable("AWS_ACCESS_KEY_ID")?;
    let (secret, session) =
        (variable("AWS_SECRET_ACCESS_KEY")?, variable("AWS_SESSION_TOKEN").ok());
    let http = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https();
    let mut config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(variable("AWS_REGION")?))
        .credentials_provider(Credentials::new(key, secret, session, None, "environment"))
        .http_client(http);
    config.set_endpoint_url(variable("AWS_ENDPOINT_URL_KINESIS").ok());
    Ok(Client::from_conf(config.build()))
}

/// The environment may have `AWS_ENDPOINT_URL_FIREHOSE`.
pub(crate) fn firehose_client() -> Result<aws_sdk_firehose::Client, Failure> {
    use aws_sdk_firehose::config::{BehaviorVersion, Credentials, Region};

    let key = variable("AWS_ACCESS_KEY_ID")?;
    let (secret, session) =
        (variable("AWS_SECRET_ACCESS_KEY")?, variable("AWS_SESSION_TOKEN").ok());
    let http = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https();
    let mut config = aws_sdk_firehose::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(variable("AWS_REGION")?))
        .credentials_provider(Credentials::new(key, secret, session, None, "environment"))
        .http_client(http);
    config.set_endpoint_url(variable("AWS_ENDPOINT_URL_FIREHOSE").ok());
    Ok(aws_sdk_firehose::Client::from_conf(config.build()))
}

fn variable(name: &str) -> Result<String, Failure> {
    let wanted = "AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    std::env::var(name)
        .map_err(|_missing| format!("{name} is not set: a stream in AWS needs {wanted}").into())
}
