//! `etcd://user:password@host:port,host:port/prefix`, and `etcds://` with TLS.

use lease_core::StoreError;
use lease_etcd::{EtcdRegister, EtcdStore};
use percent_encoding::percent_decode_str;

use crate::any_store::AnyStore;
use crate::url::StoreUrl;

pub(crate) async fn open(mut url: StoreUrl) -> Result<AnyStore, StoreError> {
    url.check_hosts()?;
    let scheme = if url.scheme.name == "etcds" { "https" } else { "http" };
    let endpoints = url.hosts.iter().map(|host| match host.rsplit_once(']') {
        Some((_, "")) => format!("{scheme}://{host}:2379"),
        None if !host.contains(':') => format!("{scheme}://{host}:2379"),
        _ => format!("{scheme}://{host}"),
    });
    let mut builder = EtcdRegister::builder(endpoints);
    if url.path.starts_with("//") {
        return Err(url.refuse("has a prefix that begins with /: write etcd://HOST:2379/PREFIX"));
    }
    let prefix = url.path.trim_matches('/');
    if !prefix.is_empty() {
        builder = builder.with_prefix(format!("{prefix}/"));
    }
    if let Some(login) = &url.login {
        let (user, password) = login_of(login, &url)?;
        builder = builder.with_user(user, password);
    }
    if let Some(timeout) = url.take_duration("timeout")? {
        builder = builder.with_timeout(timeout);
    }
    url.refuse_others(&["timeout"])?;
    Ok(AnyStore::of_table(EtcdStore::new(builder.connect().await?)))
}

fn login_of(login: &str, url: &StoreUrl) -> Result<(String, String), StoreError> {
    let Some((user, password)) = login.split_once(':') else {
        return Err(url.refuse("names a user without a password: write etcd://USER:PASSWORD@HOST"));
    };
    let decoded = |text| percent_decode_str(text).decode_utf8().map(String::from);
    match (decoded(user), decoded(password)) {
        (Ok(user), Ok(password)) => Ok((user, password)),
        _ => Err(url.refuse("has a login that is not UTF-8: encode it")),
    }
}
