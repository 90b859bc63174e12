//! DynamoDB: the table and its region.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use lease_test_servers::dynamodb::Server;

use super::finds;
use crate::place::{Place, code, text};

/// Runs the doctor with further variables of the environment.
async fn examine(url: String, variables: &'static [(&str, &str)]) -> (i32, Vec<Vec<String>>) {
    let run = move || {
        let place = Place::new();
        let mut command = place.lease(&["--store", &url, "doctor"]);
        for name in ["AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"] {
            command.env_remove(name);
        }
        // No request for credentials or a region may leave this machine.
        command.env("AWS_EC2_METADATA_DISABLED", "true").env("HOME", place.folder());
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let lines = text(&output.stdout).lines();
        let lines = lines.map(|line| line.split('\t').map(str::to_owned).collect()).collect();
        (code(output.status), lines)
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

/// Creates a table, which has nothing to do with leases.
async fn create(client: &Client, name: &str) {
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
    let kind =
        AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
    client
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(key.build().unwrap())
        .attribute_definitions(kind.build().unwrap())
        .send()
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_table_and_its_region_are_found() {
    let server = Server::dynoxide().await;
    create(&server.client(), "orders").await;
    let url = format!("dynamodb://leases?endpoint=http://{}", server.address());

    let (code, lines) = examine(format!("{url}&region=eu-west-1"), &[]).await;
    let (_, of_variable) = examine(url.clone(), &[("AWS_REGION", "eu-west-2")]).await;
    let (_, without) = examine(url.clone(), &[]).await;
    let (_, garbled) = examine(format!("{url}&region=eu%20west%201"), &[]).await;
    let (_, local) = examine(format!("{url}&region=local"), &[]).await;
    let (healthy, created) = examine(format!("{url}&region=eu-west-1&create=true"), &[]).await;

    assert_eq!(code, 1);
    finds(&lines, "rights", "problem", &["leases"]);
    finds(&lines, "region", "ok", &["eu-west-1 of the URL"]);
    let parts =
        ["credentials are accepted", "eu-west-1", "which has orders", "AWS_REGION", "create=true"];
    finds(&lines, "table", "problem", &parts);
    finds(&of_variable, "table", "problem", &["region eu-west-2 of AWS_REGION", "?region="]);
    finds(&without, "reachable", "problem", &["no region", "AWS_REGION"]);
    finds(&garbled, "region", "problem", &["eu west 1", "not the name", "did you mean eu-west-1?"]);
    finds(&local, "region", "warning", &["region local of the URL", "not the name of a region"]);
    assert_eq!(healthy, 0, "{created:?}");
    finds(&created, "table", "ok", &[]);
}

/// ministack keeps the tables of each region apart, as AWS does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn table_in_another_region_is_found_to_be_missing() {
    let Some(server) = Server::ministack().await else { return };
    // This request may take long, since the server loads its parts at the first one.
    create(&server.client(), "leases").await;
    let url = |region: &str| {
        format!("dynamodb://leases?endpoint=http://{}&region={region}", server.address())
    };

    let (_, there) = examine(url("us-east-1"), &[]).await;
    let (elsewhere, lines) = examine(url("eu-west-1"), &[]).await;

    finds(&there, "table", "ok", &["leases exists"]);
    assert_eq!(elsewhere, 1);
    finds(&lines, "table", "problem", &["does not exist in region eu-west-1 of the URL"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misspelt_region_is_found() {
    let (code, lines) = examine("dynamodb://leases?region=eu-cental-1".to_owned(), &[]).await;

    assert_eq!(code, 1);
    let parts = ["eu-cental-1 of the URL", "does not answer", "did you mean eu-central-1?"];
    finds(&lines, "region", "problem", &parts);
}
