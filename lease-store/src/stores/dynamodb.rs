//! `dynamodb://table?region=eu-central-1`. The AWS SDK finds the credentials.

use aws_config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::Credentials;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use lease_core::StoreError;
use lease_dynamodb::DynamoDbStore;

use crate::any_store::AnyStore;
use crate::url::StoreUrl;

const PARAMETERS: [&str; 3] = ["create", "endpoint", "region"];

pub(crate) async fn open(mut url: StoreUrl) -> Result<AnyStore, StoreError> {
    let table = table(&url)?;
    let (region, endpoint) = (url.take("region"), url.take("endpoint"));
    let creates = url.take_create()?;
    url.refuse_others(&PARAMETERS)?;
    let client = client(&url, region, endpoint).await?;
    let store = DynamoDbStore::new(client, table);
    if creates {
        store.ensure_table().await?;
    }
    Ok(AnyStore::of_table(store))
}

/// By `CreateTable` in DynamoDB's API, a table's name has 3 to 255 letters, digits and `_-.`.
fn table(url: &StoreUrl) -> Result<String, StoreError> {
    let name = match url.hosts.as_slice() {
        [name] if url.has_authority && url.path.trim_matches('/').is_empty() => name.clone(),
        _ => String::new(),
    };
    let is_valid = (3..=255).contains(&name.len())
        && name.chars().all(|one| one.is_ascii_alphanumeric() || "_-.".contains(one));
    if !is_valid || url.login.is_some() {
        return Err(url.refuse(format!(
            "names no table of 3 to 255 letters, digits, _, - and .: write {}; the AWS SDK finds the credentials",
            url.scheme.example
        )));
    }
    Ok(name)
}

async fn client(
    url: &StoreUrl,
    region: Option<String>,
    endpoint: Option<String>,
) -> Result<Client, StoreError> {
    let is_plain = endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    if endpoint.as_ref().is_some_and(|endpoint| !is_plain && !endpoint.starts_with("https://")) {
        return Err(url.refuse("has the parameter endpoint: write endpoint=http://HOST:PORT"));
    }
    let http = if is_plain {
        Builder::new().build_http()
    } else {
        Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
    };
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http);
    if let Some(region) = region {
        loader = loader.region(Region::new(region));
    }
    // A server at an `http://` endpoint is local, and accepts any credentials.
    if is_plain && std::env::var_os("AWS_ACCESS_KEY_ID").is_none() {
        loader =
            loader.credentials_provider(Credentials::new("local", "local", None, None, "local"));
    }
    if let Some(endpoint) = endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    let config = loader.load().await;
    if config.region().is_none() {
        return Err(url.refuse("names no region: add ?region=REGION, or set AWS_REGION"));
    }
    Ok(Client::new(&config))
}
