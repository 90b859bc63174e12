//! The forms of Redis: one server, Sentinels, a Cluster, a quorum of independent servers.

use lease_core::StoreError;
use lease_redis::{RedisQuorum, RedisStore, RedisStoreBuilder};

use crate::any_store::AnyStore;
use crate::url::StoreUrl;

const PARAMETERS: [&str; 2] = ["prefix", "timeout"];

/// `redis://user:password@host:port/database`.
pub(crate) async fn server(url: StoreUrl) -> Result<AnyStore, StoreError> {
    let [server]: [String; 1] = servers(&url, &url.path)?.try_into().map_err(|_several: Vec<_>| {
        url.refuse(
            "has several hosts: write redis+sentinel://, redis+cluster:// or redis+quorum://, as the servers are set \
             up",
        )
    })?;
    connect(url, RedisStore::builder(server)).await
}

/// `redis+sentinel://user:password@host:port,host:port/master`. The database is the parameter `db`.
pub(crate) async fn sentinel(mut url: StoreUrl) -> Result<AnyStore, StoreError> {
    let master = url.path.trim_matches('/').to_owned();
    let database = url.take("db").map(|number| format!("/{number}")).unwrap_or_default();
    let sentinels = servers(&url, &database)?;
    if master.is_empty() || master.contains('/') {
        return Err(url.refuse(format!("names no master: write {}", url.scheme.example)));
    }
    connect(url, RedisStore::sentinel(sentinels, master)).await
}

/// `redis+cluster://user:password@host:port,host:port`.
pub(crate) async fn cluster(url: StoreUrl) -> Result<AnyStore, StoreError> {
    let nodes = servers(&url, "")?;
    refuse_path(&url)?;
    connect(url, RedisStore::cluster(nodes)).await
}

/// `redis+quorum://user:password@host:port,host:port,host:port`.
pub(crate) async fn quorum(mut url: StoreUrl) -> Result<AnyStore, StoreError> {
    let nodes = servers(&url, "")?;
    refuse_path(&url)?;
    if nodes.len() < 3 {
        return Err(url.refuse(format!(
            "has {} hosts, but a quorum needs at least 3: write redis:// for one server",
            nodes.len()
        )));
    }
    let (prefix, timeout) = (url.take("prefix"), url.take_duration("timeout")?);
    let max_ttl = url.take_duration("max_ttl")?;
    url.refuse_others(&["max_ttl", "prefix", "timeout"])?;
    let mut builder = RedisQuorum::builder(nodes);
    if let Some(prefix) = prefix {
        builder = builder.with_prefix(prefix);
    }
    if let Some(timeout) = timeout {
        builder = builder.with_timeout(timeout);
    }
    if let Some(max_ttl) = max_ttl {
        builder = builder.with_max_ttl(max_ttl);
    }
    Ok(AnyStore::of_locks(builder.connect().await?))
}

async fn connect(
    mut url: StoreUrl,
    mut builder: RedisStoreBuilder,
) -> Result<AnyStore, StoreError> {
    let (prefix, timeout) = (url.take("prefix"), url.take_duration("timeout")?);
    url.refuse_others(&PARAMETERS)?;
    if let Some(prefix) = prefix {
        builder = builder.with_prefix(prefix);
    }
    if let Some(timeout) = timeout {
        builder = builder.with_timeout(timeout);
    }
    Ok(AnyStore::of_table(builder.connect().await?))
}

/// The URLs of all servers have the same login and the same `database`.
fn servers(url: &StoreUrl, database: &str) -> Result<Vec<String>, StoreError> {
    url.check_hosts()?;
    let number = database.trim_matches('/');
    if !number.is_empty() && number.parse::<u32>().is_err() {
        return Err(url.refuse("has a database that is no number: write redis://HOST:6379/0"));
    }
    let scheme = if url.scheme.name.starts_with("rediss") { "rediss" } else { "redis" };
    let login = url.login.as_ref().map(|login| format!("{login}@")).unwrap_or_default();
    Ok(url.hosts.iter().map(|host| format!("{scheme}://{login}{host}{database}")).collect())
}

fn refuse_path(url: &StoreUrl) -> Result<(), StoreError> {
    if url.path.trim_matches('/').is_empty() {
        return Ok(());
    }
    Err(url.refuse(format!("has a path, which means nothing here: write {}", url.scheme.example)))
}
