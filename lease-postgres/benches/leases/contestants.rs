//! This library, and the statements of other locks over the same driver, all unprepared.

use async_trait::async_trait;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use lease_core::store::LockStore;
use lease_core::{Attempt, Locker};
use lease_postgres::PostgresStore;
use lease_test_servers::postgres::PostgresServer;
use tokio_postgres::NoTls;
use tokio_postgres::types::{ToSql, Type};

use crate::{CONNECTIONS, obtain};

#[async_trait]
pub(crate) trait Contestant: Send + Sync {
    async fn cycle(&self, key: &str);
}

/// The minimal statements for a lock with a token and an expiry.
pub(crate) struct Bare(pub(crate) Pool);

/// The statements of `ShedLock`'s JDBC provider, with the database's clock.
pub(crate) struct ShedLock(pub(crate) Pool);

/// An advisory lock keeps its connection until the release, and has neither token nor expiry.
pub(crate) struct Advisory(pub(crate) Pool);

pub(crate) struct Store(pub(crate) PostgresStore);

pub(crate) struct Library(pub(crate) Locker);

pub(crate) fn pool(server: &PostgresServer) -> Pool {
    let fast = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(server.url().parse().unwrap(), NoTls, fast);
    Pool::builder(manager).max_size(CONNECTIONS).build().unwrap()
}

pub(crate) fn create_tables(server: &PostgresServer, keys: usize) {
    server.command(&format!(
        "CREATE TABLE IF NOT EXISTS bare (key text PRIMARY KEY, token bigint NOT NULL, owner text,
            ends timestamptz NOT NULL) WITH (fillfactor = 50);
        INSERT INTO bare SELECT 'key-' || n, 0, NULL, clock_timestamp() FROM generate_series(0, {keys}) n
            ON CONFLICT DO NOTHING;
        CREATE TABLE IF NOT EXISTS shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL,
            locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL);
        INSERT INTO shedlock SELECT 'key-' || n, timestamp '2000-01-01', timestamp '2000-01-01', ''
            FROM generate_series(0, {keys}) n ON CONFLICT DO NOTHING"
    ));
}

type Parameters<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

async fn one_row(client: &Object, sql: &str, parameters: Parameters<'_>) {
    assert_eq!(client.query_typed(sql, parameters).await.unwrap().len(), 1, "{sql}");
}

#[async_trait]
impl Contestant for Bare {
    async fn cycle(&self, key: &str) {
        let obtain = "UPDATE bare SET token = token + 1, owner = $2, ends = clock_timestamp() + interval '10 min'
            WHERE key = $1 AND (owner IS NULL OR ends <= clock_timestamp()) RETURNING token";
        let release = "UPDATE bare SET owner = NULL WHERE key = $1 AND owner = $2 RETURNING 1";
        for sql in [obtain, release] {
            let client = self.0.get().await.unwrap();
            one_row(&client, sql, &[(&key, Type::TEXT), (&"a", Type::TEXT)]).await;
        }
    }
}

#[async_trait]
impl Contestant for ShedLock {
    async fn cycle(&self, key: &str) {
        let obtain = "UPDATE shedlock SET
            lock_until = timezone('utc', CURRENT_TIMESTAMP) + interval '10 min',
            locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = $2
            WHERE name = $1 AND lock_until <= timezone('utc', CURRENT_TIMESTAMP) RETURNING 1";
        let release = "UPDATE shedlock SET lock_until = CASE
            WHEN locked_at + interval '0' > timezone('utc', CURRENT_TIMESTAMP) THEN locked_at + interval '0'
            ELSE timezone('utc', CURRENT_TIMESTAMP) END
            WHERE name = $1 AND locked_by = $2 RETURNING 1";
        for sql in [obtain, release] {
            let client = self.0.get().await.unwrap();
            one_row(&client, sql, &[(&key, Type::TEXT), (&"a", Type::TEXT)]).await;
        }
    }
}

#[async_trait]
impl Contestant for Advisory {
    async fn cycle(&self, key: &str) {
        let client = self.0.get().await.unwrap();
        for call in ["pg_try_advisory_lock", "pg_advisory_unlock"] {
            let sql = format!("SELECT 1 WHERE {call}(hashtextextended($1, 0))");
            one_row(&client, &sql, &[(&key, Type::TEXT)]).await;
        }
    }
}

#[async_trait]
impl Contestant for Store {
    async fn cycle(&self, key: &str) {
        let grant = obtain(&self.0, key).await;
        self.0.release(&grant, None).await.unwrap();
    }
}

#[async_trait]
impl Contestant for Library {
    async fn cycle(&self, key: &str) {
        let Attempt::Obtained(lease) = self.0.obtain(&key.parse().unwrap()).await.unwrap() else {
            panic!("{key} is held");
        };
        lease.release().await.unwrap();
    }
}
