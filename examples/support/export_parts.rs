//! The parts of `exporter`: its switch, job queue, event buffer, buckets and sinks.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lease_core::{LeaseOptions, Lessee, Locker};
#[cfg(feature = "redis")]
use lease_export::RedisLink;
use lease_export::TableSwitch;
#[cfg(feature = "redis")]
use lease_export::queue::RedisQueue;
use lease_export::queue::{JobQueue, MemoryQueue};
use lease_export::{
    BucketOptions, BucketSource, BucketStore, Capacity, EventBuffer, Exporter, MemoryBuckets,
    MemoryBuffer, Parts, Pipeline, Sink,
};
#[cfg(feature = "redis")]
use lease_export::{RedisBuckets, RedisBuffer};

use crate::{Failure, stores::open_table};

/// Makes the exporter of process `name` on `store`: `memory`, or `redis://HOST:PORT`. `pipeline`
/// turns the entries of closed buckets into events.
///
/// # Errors
///
/// Fails if `store` has another form, or cannot be used.
pub async fn open(
    store: &str,
    name: &str,
    ttl: Duration,
    sink: Arc<dyn Sink>,
    pipeline: Pipeline,
) -> Result<Exporter, Failure> {
    let EventStores { queue, buffer, buckets } = open_event_stores(store, ttl).await?;
    let table = open_table(store).await?;
    let locker = Locker::new(Arc::clone(&table))
        .with_lessee(Lessee::new(name)?)
        .with_options(LeaseOptions::new(ttl)?);
    let switch = TableSwitch::new("orders/enabled".parse()?, &locker, table);
    let parts = Parts { switch: Arc::new(switch), queue, buffer, sink };
    // The wait for a hand-over is shorter than by default, so that a killed worker's job is soon
    // repeated.
    let exporter = Exporter::new(locker, "orders/export".parse()?, parts);
    Ok(exporter.with_source(BucketSource::new(buckets, pipeline)).with_hand_over_wait(ttl)?)
}

#[derive(Clone)]
struct EventStores {
    queue: Arc<dyn JobQueue>,
    buffer: Arc<dyn EventBuffer>,
    buckets: Arc<dyn BucketStore>,
}

async fn open_event_stores(address: &str, ttl: Duration) -> Result<EventStores, Failure> {
    let options = BucketOptions::new(Duration::from_secs(1))?.with_margin(Duration::from_secs(1));
    match address {
        "memory" => Ok(memory(ttl, options)),
        #[cfg(feature = "redis")]
        _ if address.starts_with("redis://") && !address.contains(',') => {
            let link = RedisLink::connect(address).await?;
            Ok(EventStores {
                queue: Arc::new(RedisQueue::new(link.clone(), NAME, ttl)),
                buffer: Arc::new(RedisBuffer::new(link.clone(), NAME, Capacity::default())),
                buckets: Arc::new(RedisBuckets::new(link, NAME, options)),
            })
        }
        _ => Err(format!(
            "store {address:?} is not known: use \"memory\", or \"redis://HOST:PORT\" with \
             `--features exporter,redis`"
        )
        .into()),
    }
}

/// All callers share the queue, the buffer and the buckets in the memory of this process.
fn memory(ttl: Duration, options: BucketOptions) -> EventStores {
    static MEMORY: OnceLock<EventStores> = OnceLock::new();
    let stores = MEMORY.get_or_init(|| EventStores {
        queue: Arc::new(MemoryQueue::new(ttl)),
        buffer: Arc::new(MemoryBuffer::new(Capacity::default())),
        buckets: Arc::new(MemoryBuckets::new(options)),
    });
    stores.clone()
}

/// Opens a sink in AWS: `kinesis:NAME` or `firehose:NAME`, with credentials from the environment,
/// as in [`kinesis`](crate::kinesis).
///
/// # Errors
///
/// Fails if `address` has another form, or a variable of the environment is missing.
#[cfg(feature = "aws")]
pub fn open_sink(address: &str) -> Result<Arc<dyn Sink>, Failure> {
    use lease_export::{FirehoseSink, KinesisSink};

    match address.split_once(':') {
        Some(("kinesis", stream)) => {
            Ok(Arc::new(KinesisSink::new(crate::kinesis::client()?, stream)))
        }
        Some(("firehose", stream)) => {
            Ok(Arc::new(FirehoseSink::new(crate::kinesis::firehose_client()?, stream)))
        }
        _ => Err(unknown_sink(address)),
    }
}

/// Refuses every address: without the feature `aws`, no sink in AWS can be opened.
///
/// # Errors
///
/// Always fails. The error names the missing feature, or the known addresses.
#[cfg(not(feature = "aws"))]
pub fn open_sink(address: &str) -> Result<Arc<dyn Sink>, Failure> {
    match address.split_once(':') {
        Some(("kinesis" | "firehose", _)) => {
            Err(format!("sink {address:?} is in AWS: build with `--features aws`").into())
        }
        _ => Err(unknown_sink(address)),
    }
}

fn unknown_sink(address: &str) -> Failure {
    format!("sink {address:?} is not known: use \"kinesis:NAME\" or \"firehose:NAME\"").into()
}

#[cfg(feature = "redis")]
const NAME: &str = "orders";
