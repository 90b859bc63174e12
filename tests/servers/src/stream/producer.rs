//! A producer that puts records continuously.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Puts records one after the other, under many partition keys. A record's data is the record's
/// number within its partition key, from 0.
#[derive(Debug)]
pub struct Producer {
    count: watch::Receiver<usize>,
    enough: watch::Sender<bool>,
    task: JoinHandle<Put>,
}

/// The number of records under each partition key.
pub type Put = BTreeMap<String, usize>;

impl Producer {
    /// Starts to put records into `stream`.
    pub fn start(client: Client, stream: &'static str) -> Self {
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

    /// Waits until the producer has put `count` more records.
    ///
    /// # Panics
    ///
    /// Panics if the wait takes more than five minutes.
    pub async fn has_put_more(&self, count: usize) {
        let mut counted = self.count.clone();
        let enough = *counted.borrow() + count;
        let put = counted.wait_for(|count| *count >= enough);
        drop(
            timeout(LIMIT, put).await.expect("records are put in time").expect("the producer runs"),
        );
    }

    /// Stops the producer, and returns all records that it put.
    ///
    /// # Panics
    ///
    /// Panics if a record could not be put within five minutes.
    pub async fn end(self) -> Put {
        self.enough.send_replace(true);
        self.task.await.expect("the producer runs")
    }
}

/// Retries, since a stream refuses some records while it is resharded.
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
