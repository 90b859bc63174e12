//! `sqlite:///absolute/path` and `sqlite:relative/path`.

use lease_core::StoreError;
use lease_sqlite::SqliteStore;

use crate::any_store::AnyStore;
use crate::url::StoreUrl;

pub(crate) async fn open(mut url: StoreUrl) -> Result<AnyStore, StoreError> {
    if url.has_authority && url.hosts.iter().any(|host| !host.is_empty()) {
        return Err(url.refuse(
            "has a host, but the file is on this machine: write sqlite:///ABSOLUTE/PATH with three slashes, or \
             sqlite:RELATIVE/PATH with none",
        ));
    }
    if url.path.trim_matches('/').is_empty() {
        return Err(url.refuse("names no file: write sqlite:///var/lib/leases.db"));
    }
    let timeout = url.take_duration("timeout")?;
    url.refuse_others(&["timeout"])?;
    let mut builder = SqliteStore::builder(url.path);
    if let Some(timeout) = timeout {
        builder = builder.with_timeout(timeout);
    }
    Ok(AnyStore::of_table(builder.open().await?))
}
