//! Opens stores by address.

use std::sync::Arc;
use std::time::Duration;

use lease_core::store::LockStore;
use lease_dynamodb::DynamoDbStore;
use lease_etcd::{EtcdRegister, EtcdStore};
use lease_postgres::PostgresStore;
use lease_redis::{RedisQuorum, RedisStore};
use lease_sqlite::SqliteStore;
use lease_test_servers::dynamodb::client_of;

use crate::failure::Failure;
use crate::servers::postgres;

/// Opens `redis://HOST:PORT` (several, separated by commas, are a quorum),
/// `sentinel://HOST:PORT,…/MASTER`, `cluster://HOST:PORT,…`, `dynamodb://HOST:PORT/TABLE`,
/// `postgres://HOST:PORT`, `etcd://HOST:PORT,…`, or `sqlite://PATH`.
///
/// A quorum keeps its rejoin delay: a server that restarted empty must not vote before the
/// forgotten leases have expired. The short ttls of a run make the delay short.
pub(crate) async fn open(address: &str, max_ttl: Duration) -> Result<Arc<dyn LockStore>, Failure> {
    Ok(match address.split_once("://") {
        Some(("redis", places)) if places.contains(',') => {
            let quorum = RedisQuorum::builder(urls(places)).with_max_ttl(max_ttl);
            Arc::new(quorum.with_timeout(TIMEOUT).connect().await?)
        }
        Some(("redis", _)) => Arc::new(RedisStore::connect(address).await?),
        Some(("sentinel", place)) => {
            let (places, master) = place.split_once('/').ok_or("no master is named")?;
            Arc::new(RedisStore::sentinel(urls(places), master).connect().await?)
        }
        Some(("cluster", places)) => Arc::new(RedisStore::cluster(urls(places)).connect().await?),
        Some(("dynamodb", place)) => {
            let (server, table) = place.split_once('/').ok_or("no table is named")?;
            Arc::new(DynamoDbStore::new(client_of(server.parse()?), table))
        }
        Some(("postgres", place)) => {
            let builder = PostgresStore::builder(postgres::url(place));
            Arc::new(builder.with_timeout(TIMEOUT).connect().await?)
        }
        Some(("etcd", places)) => {
            let members = places.split(',').map(|place| format!("http://{place}"));
            let register = EtcdRegister::builder(members).with_timeout(TIMEOUT);
            Arc::new(EtcdStore::new(register.connect().await?))
        }
        Some(("sqlite", path)) => {
            Arc::new(SqliteStore::builder(path).with_timeout(TIMEOUT).open().await?)
        }
        _ => return Err(format!("{address} names no store").into()),
    })
}

fn urls(places: &str) -> Vec<String> {
    places.split(',').map(|place| format!("redis://{place}")).collect()
}

/// Less than the period of heartbeats, a third of a ttl of two seconds or more.
const TIMEOUT: Duration = Duration::from_millis(500);
