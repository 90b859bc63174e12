//! Who puts records, all the time.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Puts records one after the other, under many partition keys: each has its number among those of
/// its key, from 0.
pub(crate) struct Producer {
    count: watch::Receiver<usize>,
    enough: watch::Sender<bool>,
    task: JoinHandle<Put>,
}

/// How many records were put under each partition key.
pub(crate) type Put = BTreeMap<String, usize>;

impl Producer {
    pub(crate) fn start(client: Client, stream: &'static str) -> Self {
        let (counted, count) = watch::channel(0);
        let (enough, ended) = watch::channel(false);
        let task = tokio::spawn(async move {
            let mut put = Put::new();
            let keys = (0..PARTITION_KEYS).cycle().map(|key| format!("key-{key}"));
            for key in keys.take_while(|_| !*ended.borrow()) {
                let number = put.entry(key.clone()).or_default();
                put_one(&client, stream, &key, *number).await;
                *number += 1;
                counted.send_modify(|count| *count += 1);
                sleep(Duration::from_millis(3)).await;
            }
            put
        });
        Self { count, enough, task }
    }

    /// Waits until so many more were put.
    pub(crate) async fn has_put_more(&self, count: usize) {
        let mut counted = self.count.clone();
        let enough = *counted.borrow() + count;
        let put = counted.wait_for(|count| *count >= enough);
        drop(timeout(LIMIT, put).await.expect("in time").expect("it goes on"));
    }

    /// All that was put.
    pub(crate) async fn end(self) -> Put {
        self.enough.send_replace(true);
        self.task.await.unwrap()
    }
}

/// A stream that is being reshaped refuses some.
async fn put_one(client: &Client, stream: &str, key: &str, number: usize) {
    let put = async {
        loop {
            let request = client.put_record().stream_name(stream).partition_key(key);
            match request.data(number.to_string().into_bytes().into()).send().await {
                Ok(_put) => return,
                Err(_refused) => sleep(Duration::from_millis(10)).await,
            }
        }
    };
    timeout(LIMIT, put).await.expect("a record is put in time");
}

const PARTITION_KEYS: usize = 60;

const LIMIT: Duration = Duration::from_mins(5);
