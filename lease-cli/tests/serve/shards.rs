//! The view of shards.

use lease_core::Attributes;
use lease_core::Value::List;
use lease_core::store::LeaseTable;
use serde_json::{Value, json};

use crate::site::{PATIENT, Site};

impl Site {
    /// Adds the row of a shard, as a worker of the application `orders` writes it.
    pub(crate) fn add_shard(&self, table: &dyn LeaseTable, shard: &str, parents: &[&str]) {
        let row =
            [("checkpoint", "TRIM_HORIZON".into()), ("checkpointSubSequenceNumber", 0.into())];
        let mut row: Attributes = row.map(|(name, value)| (name.to_owned(), value)).into();
        if !parents.is_empty() {
            let parents = parents.iter().map(|parent| (*parent).into()).collect();
            row.insert("parentShardId".to_owned(), List(parents));
        }
        let key = format!("orders/shards/{shard}").parse().unwrap();
        self.runtime.block_on(table.create(&key, &row)).unwrap();
    }
}

#[test]
fn move_of_a_shard_is_shown() {
    let site = Site::start(&["--application", "orders"]);
    let table = site.store().table().unwrap();
    for (shard, parents) in [("one", &[][..]), ("two", &["one"])] {
        site.add_shard(&*table, shard, parents);
    }
    let worker = |name: &str| site.locker(PATIENT).with_lessee(name.parse().unwrap());
    let (first, second) = (worker("worker-1"), worker("worker-2"));
    let leases = ["one", "two"].map(|shard| site.obtain(&first, &format!("orders/shards/{shard}")));
    let mut events = site.events("shards");
    let two = events.row("two", |_| true);
    assert_eq!(two[2]["parents"], "one");
    assert_eq!((&two[2]["worker"], &two[2]["lag"]), (&json!("worker-1"), &Value::Null));
    let Some(mut browser) = site.browser() else { return };
    browser.resize(1000, 420);
    browser.click("[data-view=shards]");
    browser.wait("document.querySelectorAll('.block').length === 2");

    let [_one, two] = leases;
    site.runtime.block_on(two.release()).unwrap();
    let _two = site.obtain(&second, "orders/shards/two");

    events.row("two", |fields| fields["worker"] == "worker-2");
    browser.wait("document.getElementById('moves').textContent.includes('worker-2')");
    browser.wait("document.querySelectorAll('.strip').length === 2");
    assert_eq!(browser.value("document.querySelectorAll('.block').length"), 2);
    browser.picture("shards");
    browser.assert_no_errors();
}

#[test]
fn lag_of_a_shard_is_shown_without_colours() {
    let site = Site::start(&["--application", "orders"]);
    let Some(mut browser) = site.browser() else { return };

    let shown = browser.value(
        "(async () => {
            const { shards } = await import('/shards.js');
            const element = document.createElement('div');
            const fields = (lag, checkpoint) => ({ worker: 'worker-1', checkpoint, lag });
            const changed = [
                { id: 'one', fields: fields(0, '1') },
                { id: 'two', fields: fields(60_000, '1') },
                { id: 'three', fields: fields(600_000, '1') },
                { id: 'four', fields: fields(null, '1') },
                { id: 'five', fields: fields(0, 'SHARD_END') },
            ];
            const show = shards.above(element);
            show({ changed, gone: [], whole: true });
            const blocks = [...element.querySelectorAll('.block')];
            const label = () => element.querySelector('.blocks').getAttribute('aria-label');
            const before = label();
            show({ changed: [{ id: 'two', fields: fields(0, '1') }], gone: ['three'], whole: false });
            return [blocks.map((block) => block.textContent).join(), before, label()];
        })()",
    );

    // The second block has caught up, and the third has left its strip.
    assert_eq!(shown[0], ",,✕,?,✓");
    let before =
        "5 shards of worker-1: 1 behind, 1 ended, 1 far behind, 1 of unknown lag, 1 up to date";
    assert_eq!(shown[1], before);
    assert_eq!(shown[2], "4 shards of worker-1: 1 ended, 1 of unknown lag, 2 up to date");
    browser.assert_no_errors();
}

#[cfg(feature = "kinesis")]
#[test]
fn lag_is_shown_after_the_rows() {
    use aws_sdk_kinesis::primitives::Blob;
    use lease_test_servers::kinesis::Server;
    use tokio::runtime::Runtime;

    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(Server::ferrokinesis());
    runtime.block_on(server.create_stream("orders", 1));
    let put = server.client().put_record().stream_name("orders").partition_key("key");
    runtime.block_on(put.data(Blob::new("one")).send()).unwrap();
    let endpoint = format!("http://{}", server.address());
    let options = ["--application", "orders", "--stream", "orders", "--region", "us-east-1"];
    let site = Site::start(&[&options[..], &["--endpoint", &endpoint]].concat());
    site.add_shard(&*site.store().table().unwrap(), "shardId-000000000000", &[]);

    let mut events = site.events("shards");
    let row = events.row("shardId-000000000000", |fields| fields["lag"] != Value::Null);

    assert!(row[2]["lag"].as_u64().unwrap() > 0, "{row}");
}
