//! The checks of Redis servers, in each form of a Redis URL.
//!
//! Start with [`examine`]. [`address`] parses the URL. [`server`] has the checks of one server, [`replicas`] those of
//! its replicas. [`sentinel`], [`cluster`] and [`quorum`] find the servers of their form, and check how they work
//! together. [`merge`] joins equal findings of several servers.

mod address;
mod cluster;
mod merge;
mod quorum;
mod replicas;
mod sentinel;
mod server;

use self::address::{Address, Form};
use self::server::{Persistence, Server};
use super::Finding;

/// Checks all servers of `url`.
pub(crate) async fn examine(url: &str) -> Vec<Finding> {
    let Some(address) = Address::parse(url) else { return Vec::new() };
    match address.form {
        Form::Single => single(&address).await,
        Form::Sentinel => sentinel::examine(&address).await,
        Form::Cluster => cluster::examine(&address).await,
        Form::Quorum => quorum::examine(&address).await,
    }
}

async fn single(address: &Address) -> Vec<Finding> {
    let host = address.hosts.first().map(String::as_str).unwrap_or_default();
    let mut server = match Server::open(address, host).await {
        Ok(server) => server,
        Err(error) => return vec![Finding::unanswered(error)],
    };
    let mut findings = vec![server.role()];
    findings.extend(server.settings(Persistence::Needed).await);
    findings.extend(replicas::caught_up(&mut server).await);
    findings.push(server.clock().await);
    findings
}
