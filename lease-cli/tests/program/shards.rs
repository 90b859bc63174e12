//! `lease shards`: the lag of each shard.

use aws_sdk_kinesis::primitives::Blob;
use lease_core::{Attributes, Value};
use lease_test_servers::kinesis::Server;

use crate::place::{Place, text};

/// Adds the row of a shard, as a worker writes it.
async fn add_row(place: &Place, key: &str, checkpoint: &str) {
    let file = place.path("leases.db");
    let table = lease_store::connect_table(&format!("sqlite://{}", file.display())).await.unwrap();
    let row = [("checkpoint", Value::from(checkpoint)), ("checkpointSubSequenceNumber", 0.into())];
    let row: Attributes = row.map(|(name, value)| (name.to_owned(), value)).into();
    table.create(&key.parse().unwrap(), &row).await.unwrap();
}

/// The lags that `lease shards` prints, in JSON, and its messages.
async fn lags(place: Place, arguments: Vec<String>) -> (Place, Vec<String>, String) {
    let run = move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = place.lease(&[&["--json", "shards"], &*arguments].concat());
        for name in ["AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"] {
            command.env_remove(name);
        }
        command.env("AWS_EC2_METADATA_DISABLED", "true").env("HOME", place.folder());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let lag = |line: &str| {
            line.rsplit_once("\"lag\":").unwrap().1.split([',', '}']).next().map(str::to_owned)
        };
        let lags = text(&output.stdout).lines().map(|line| lag(line).unwrap()).collect();
        (place, lags, text(&output.stderr).to_owned())
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lag_is_the_age_of_the_first_record_after_the_checkpoint() {
    let server = Server::ferrokinesis().await;
    server.create_stream("orders", 1).await;
    let client = server.client();
    let mut numbers = Vec::new();
    for data in ["one", "two", "three"] {
        let put = client.put_record().stream_name("orders").partition_key("key");
        let put = put.data(Blob::new(data)).send().await.unwrap();
        numbers.push(put.sequence_number);
    }
    let endpoint = format!("http://{}", server.address());
    let arguments = |application: &str| {
        [application, "--stream", "orders", "--region", "us-east-1", "--endpoint", &endpoint]
            .map(str::to_owned)
            .to_vec()
    };
    let shard = "shardId-000000000000";
    let place = Place::new();
    for (application, checkpoint) in [
        ("read", &*numbers[2]),
        ("behind", &numbers[1]),
        ("new", "TRIM_HORIZON"),
        ("ended", "SHARD_END"),
    ] {
        add_row(&place, &format!("{application}/shards/{shard}"), checkpoint).await;
    }
    add_row(&place, &format!("many/shards/123456789012:orders:1700000000:{shard}"), &numbers[0])
        .await;

    let (place, read, _) = lags(place, arguments("read")).await;
    let (place, behind, messages) = lags(place, arguments("behind")).await;
    let (place, new, _) = lags(place, arguments("new")).await;
    let (place, ended, _) = lags(place, arguments("ended")).await;
    let several = ["many", "--region", "us-east-1", "--endpoint", &endpoint].map(str::to_owned);
    let (_, many, _) = lags(place, several.to_vec()).await;

    assert_eq!(read, ["0.0"], "all was read");
    assert_eq!(ended, ["0.0"]);
    for lag in [&behind, &new, &many] {
        let [lag] = lag.as_slice() else { panic!("{lag:?}") };
        assert!(lag.parse::<f64>().unwrap() > 0.0, "{lag}");
    }
    assert_eq!(messages, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_lag_is_a_dash_with_a_reason() {
    let server = Server::ferrokinesis().await;
    let place = Place::new();
    add_row(&place, "orders/shards/shardId-000000000000", "TRIM_HORIZON").await;
    let arguments = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();

    let (place, without_stream, silent) = lags(place, arguments("orders")).await;
    let (place, without_region, region) = lags(place, arguments("orders --stream one")).await;
    let wrong =
        format!("orders --stream one --region us-east-1 --endpoint http://{}", server.address());
    let (place, wrong_stream, stream) = lags(place, arguments(&wrong)).await;
    let listed = place.output(&["shards", "orders"]);

    assert_eq!([without_stream, without_region, wrong_stream], [["null"], ["null"], ["null"]]);
    assert_eq!(silent, "");
    assert!(region.contains("AWS_REGION"), "{region}");
    assert!(stream.contains("one"), "{stream}");
    assert_eq!(text(&listed.stdout), "shardId-000000000000\t–\tTRIM_HORIZON\t–\t–\n");
}
