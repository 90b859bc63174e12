//! A PostgreSQL server with a standby, and a pooler in front of it.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use lease_postgres::PostgresStore;
use lease_test_servers::postgres::{PgBouncer, PostgresServer};

use crate::failure::Failure;
use crate::servers::server::not_installed;

/// The primary's address never changes. The standby follows asynchronously.
#[derive(Debug)]
pub(crate) struct Postgres {
    pub(crate) primary: PostgresServer,
    standby: PostgresServer,
    pooler: PgBouncer,
}

impl Postgres {
    pub(crate) fn start() -> Result<Self, Failure> {
        let missing = || not_installed("PostgreSQL, with pgbouncer,");
        let primary = PostgresServer::start().ok_or_else(missing)?;
        let standby = primary.standby();
        let pooler = PgBouncer::in_front_of(&primary).ok_or_else(missing)?;
        Ok(Self { primary, standby, pooler })
    }

    /// Every other worker uses the pooler.
    pub(crate) fn address_for(&self, worker: usize) -> SocketAddr {
        let port = if worker.is_multiple_of(2) { self.primary.port() } else { self.pooler.port() };
        ([127, 0, 0, 1], port).into()
    }

    pub(crate) fn kill_connections(&self) {
        self.primary.command(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        );
    }

    /// Kills the primary after the standby missed writes for `lag`. The standby takes the primary's
    /// address.
    pub(crate) fn fail_over(&mut self, lag: Duration) {
        self.standby.kill();
        sleep(lag);
        self.primary.kill();
        self.standby.take_over(&self.primary);
        std::mem::swap(&mut self.primary, &mut self.standby);
    }

    pub(crate) fn follow_again(&mut self) {
        self.standby = self.primary.standby();
    }
}

pub(crate) fn url(place: impl std::fmt::Display) -> String {
    format!("postgres://postgres@{place}/postgres?sslmode=disable")
}

pub(crate) async fn create_table(place: SocketAddr) -> Result<(), Failure> {
    Ok(PostgresStore::builder(url(place)).create_table().await?)
}
