//! The checks of a DynamoDB table: it exists in the region that the URL or the environment names.
//!
//! Start with [`examine`]. [`region`] judges the region's name.

mod region;

use std::env;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::types::{TableDescription, TableStatus};
use percent_encoding::percent_decode_str;

use super::{Finding, Grade};
use crate::exit::sentence;

/// Checks the table of `url`. No finding if no region is known: then the store cannot be opened either.
pub(crate) async fn examine(url: &str) -> Vec<Finding> {
    let Some(asked) = Asked::by(url).await else { return Vec::new() };
    let answer = asked.client.describe_table().table_name(&asked.table).send().await;
    let described = match answer {
        Ok(answer) => answer.table,
        Err(error) => return asked.failed(&error).await,
    };
    vec![Finding::ok("region", asked.place()), exists(&asked, described.as_ref())]
}

/// Which table was asked for, and where.
struct Asked {
    client: Client,
    table: String,
    region: String,
    /// What has named the region.
    source: &'static str,
    endpoint: Option<String>,
}

impl Asked {
    async fn by(url: &str) -> Option<Self> {
        let (address, parameters) = url.split_once('?').unwrap_or((url, ""));
        let parameter = |name: &str| {
            let mut all = parameters.split('&');
            let value = all.find_map(|one| one.strip_prefix(name)?.strip_prefix('='))?;
            Some(percent_decode_str(value).decode_utf8_lossy().into_owned())
        };
        let (named, endpoint) = (parameter("region"), parameter("endpoint"));
        let source = source(named.is_some());
        let config = crate::aws::config(named, endpoint.clone()).await;
        Some(Self {
            client: Client::new(&config),
            table: address.split_once("://")?.1.trim_end_matches('/').to_owned(),
            region: config.region()?.to_string(),
            source,
            endpoint: endpoint.or_else(|| config.endpoint_url().map(str::to_owned)),
        })
    }

    fn place(&self) -> String {
        let at = self.endpoint.as_ref().map(|endpoint| format!(" at {endpoint}"));
        format!("region {} of {}{}", self.region, self.source, at.unwrap_or_default())
    }

    async fn failed(&self, error: &SdkError<DescribeTableError>) -> Vec<Finding> {
        let place = self.place();
        match error {
            SdkError::ServiceError(service) if service.err().is_resource_not_found_exception() => {
                self.missing().await
            }
            SdkError::ServiceError(service) => {
                let code = service.err().code().unwrap_or_default();
                let message = service.err().message().unwrap_or_default();
                let remedy = "allow dynamodb:DescribeTable to this user. If the credentials are refused, check them, \
                              AWS_PROFILE, and the clock of this machine";
                let found = format!("{code} {message}, in {place}");
                vec![
                    Finding::ok("region", place),
                    Finding::bad("table", Grade::Unknown, found, remedy),
                ]
            }
            // The SDK builds no request if the region cannot be a part of a host name.
            SdkError::ConstructionFailure(_) => vec![region::garbled(&self.region, &place)],
            _ if self.endpoint.is_none() => vec![region::unreachable(&self.region, &place)],
            other => {
                let found = format!("{place} does not answer: {}", sentence(other));
                let remedy = "check the parameter endpoint of the URL, or AWS_ENDPOINT_URL";
                vec![Finding::bad("region", Grade::Problem, found, remedy)]
            }
        }
    }

    /// The server has accepted the credentials, and has no such table.
    async fn missing(&self) -> Vec<Finding> {
        let (place, table) = (self.place(), &self.table);
        let listed = self.client.list_tables().limit(LISTED).send().await;
        let others = match listed.map(|listed| listed.table_names.unwrap_or_default()) {
            Ok(names) if names.is_empty() => ", which has no tables".to_owned(),
            Ok(names) => format!(", which has {}", names.join(", ")),
            // This user may not list them.
            Err(_) => String::new(),
        };
        let found = format!(
            "the credentials are accepted, but the table {table} does not exist in {place}{others}"
        );
        let remedy = format!(
            "if the table is in another region, add ?region=REGION to the URL, or set AWS_REGION. If it does not \
             exist, add create=true to the URL once: dynamodb://{table}?region={}&create=true",
            self.region
        );
        vec![
            region::judge(&self.region, place),
            Finding::bad("table", Grade::Problem, found, remedy),
        ]
    }
}

/// What has named the region: the order of the AWS SDK.
fn source(is_in_url: bool) -> &'static str {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    if is_in_url {
        "the URL"
    } else if is_set("AWS_REGION") {
        "AWS_REGION"
    } else if is_set("AWS_DEFAULT_REGION") {
        "AWS_DEFAULT_REGION"
    } else {
        "the AWS profile or the machine"
    }
}

fn exists(asked: &Asked, table: Option<&TableDescription>) -> Finding {
    let name = &asked.table;
    let status = table.and_then(TableDescription::table_status).map(TableStatus::as_str);
    match status {
        Some("ACTIVE" | "UPDATING") => Finding::ok("table", format!("{name} exists")),
        status => {
            let found = format!("{name} is {}", status.unwrap_or("in no known state"));
            Finding::bad("table", Grade::Problem, found, "wait until the table is ACTIVE")
        }
    }
}

/// How many of the tables of a region a finding names.
const LISTED: i32 = 5;
