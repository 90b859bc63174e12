//! Where `exporter` keeps its switch, its jobs and its events, and where it sends them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lease_core::{LeaseOptions, Lessee, Locker};
use lease_scheduler::export::{
    BucketOptions, BucketSource, BucketStore, Capacity, EventBuffer, Exporter, MemoryBuckets,
    MemoryBuffer, Parts, Pipeline, RedisBuckets, RedisBuffer, Sink,
};
use lease_scheduler::queue::{JobQueue, MemoryQueue, RedisQueue};
use lease_scheduler::{RedisLink, TableSwitch};

use crate::{Failure, open_table};

/// The exporter of one process, called `who`, on `store`: `memory`, or `redis://HOST:PORT`. What
/// closed buckets have goes through `pipeline`.
///
/// # Errors
///
/// Where `store` is another, or cannot be used.
pub async fn open(
    store: &str,
    who: &str,
    ttl: Duration,
    sink: Arc<dyn Sink>,
    pipeline: Pipeline,
) -> Result<Exporter, Failure> {
    let options = BucketOptions::new(Duration::from_secs(1))?.with_margin(Duration::from_secs(1));
    let (queue, buffer, buckets): (Arc<dyn JobQueue>, Arc<dyn EventBuffer>, Arc<dyn BucketStore>) =
        match store {
            "memory" => {
                let (queue, buffer, buckets) = memory(ttl, options);
                (Arc::new(queue.clone()), Arc::new(buffer.clone()), Arc::new(buckets.clone()))
            }
            _ if store.starts_with("redis://") && !store.contains(',') => {
                let link = RedisLink::connect(store).await?;
                (
                    Arc::new(RedisQueue::new(link.clone(), NAME, ttl)),
                    Arc::new(RedisBuffer::new(link.clone(), NAME, Capacity::default())),
                    Arc::new(RedisBuckets::new(link, NAME, options)),
                )
            }
            _ => {
                return Err(format!(
                    "store {store:?} is not known: events are kept in \"memory\" or in \
                 \"redis://HOST:PORT\""
                )
                .into());
            }
        };
    let table = open_table(store).await?;
    let locker = Locker::new(Arc::clone(&table))
        .with_lessee(Lessee::new(who)?)
        .with_options(LeaseOptions::new(ttl)?);
    let switch = TableSwitch::new("orders/enabled".parse()?, &locker, table);
    let parts = Parts { switch: Arc::new(switch), queue, buffer, sink };
    // Shorter than by default, so that a job whose worker was killed does not hold up the show.
    let exporter = Exporter::new(locker, "orders/export".parse()?, parts);
    Ok(exporter.with_source(BucketSource::new(buckets, pipeline)).with_hand_over_wait(ttl)?)
}

/// The one place of this process: opened twice, it has the same events, as a server has.
fn memory(ttl: Duration, options: BucketOptions) -> &'static Memory {
    static MEMORY: OnceLock<Memory> = OnceLock::new();
    MEMORY.get_or_init(|| {
        let buffer = MemoryBuffer::new(Capacity::default());
        (MemoryQueue::new(ttl), buffer, MemoryBuckets::new(options))
    })
}

type Memory = (MemoryQueue, MemoryBuffer, MemoryBuckets);

/// A sink in AWS: `kinesis:NAME` or `firehose:NAME`, reached by what the environment says, as
/// [`kinesis`](crate::kinesis) does.
///
/// # Errors
///
/// Where `place` is another, or the environment does not say by whose leave.
#[cfg(feature = "aws")]
pub fn open_sink(place: &str) -> Result<Arc<dyn Sink>, Failure> {
    use lease_scheduler::export::{FirehoseSink, KinesisSink};

    match place.split_once(':') {
        Some(("kinesis", stream)) => {
            Ok(Arc::new(KinesisSink::new(crate::kinesis::client()?, stream)))
        }
        Some(("firehose", stream)) => {
            Ok(Arc::new(FirehoseSink::new(crate::kinesis::firehose_client()?, stream)))
        }
        _ => Err(unknown_sink(place)),
    }
}

/// A sink in AWS, for which this was not built.
///
/// # Errors
///
/// Always, and says what to do.
#[cfg(not(feature = "aws"))]
pub fn open_sink(place: &str) -> Result<Arc<dyn Sink>, Failure> {
    match place.split_once(':') {
        Some(("kinesis" | "firehose", _)) => {
            Err(format!("{place} is in AWS: build this with `--features aws`").into())
        }
        _ => Err(unknown_sink(place)),
    }
}

fn unknown_sink(place: &str) -> Failure {
    format!("sink {place:?} is not known: it is \"kinesis:NAME\" or \"firehose:NAME\"").into()
}

const NAME: &str = "orders";
