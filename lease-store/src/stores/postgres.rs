//! `postgres://user:password@host:port,host:port/database`.

use lease_core::StoreError;
use lease_postgres::PostgresStore;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::any_store::AnyStore;
use crate::url::StoreUrl;

const PARAMETERS: [&str; 6] = ["connections", "create", "listen", "sslmode", "table", "timeout"];

pub(crate) async fn open(mut url: StoreUrl) -> Result<AnyStore, StoreError> {
    url.check_hosts()?;
    let database = url.path.trim_start_matches('/').to_owned();
    if database.is_empty() || database.contains('/') {
        return Err(url.refuse(format!("names no database: write {}", url.scheme.example)));
    }
    let (sslmode, listen) = (sslmode(&mut url)?, url.take("listen"));
    let server = |hosts: &str| {
        let login = url.login.as_ref().map(|login| format!("{login}@")).unwrap_or_default();
        let database = utf8_percent_encode(&database, NON_ALPHANUMERIC);
        format!("postgres://{login}{hosts}/{database}?sslmode={sslmode}")
    };
    let mut builder = PostgresStore::builder(server(&url.hosts.join(",")));
    // The parameter `listen` has only hosts. Their login is the login in the URL.
    if let Some(hosts) = listen {
        builder = builder.with_listen_url(server(&hosts));
    }
    if let Some(table) = url.take("table") {
        builder = builder.with_table(table);
    }
    if let Some(timeout) = url.take_duration("timeout")? {
        builder = builder.with_timeout(timeout);
    }
    if let Some(number) = url.take("connections") {
        let number = number.parse().map_err(|_| {
            url.refuse("has the parameter connections, which is no number: write connections=8")
        })?;
        builder = builder.with_connections(number);
    }
    let creates = url.take_create()?;
    url.refuse_others(&PARAMETERS)?;
    if creates {
        builder.create_table().await?;
    }
    Ok(AnyStore::of_table(builder.connect().await?))
}

/// tokio-postgres supports only three of libpq's values.
fn sslmode(url: &mut StoreUrl) -> Result<String, StoreError> {
    let mode = url.take("sslmode").unwrap_or_else(|| "prefer".to_owned());
    if ["disable", "prefer", "require"].contains(&mode.as_str()) {
        return Ok(mode);
    }
    Err(url.refuse(
        "has the parameter sslmode: write sslmode=disable, sslmode=prefer, or sslmode=require, which verifies \
         the certificate",
    ))
}
