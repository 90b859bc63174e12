//! A control: it removes a part of a statement, and a probe must notice.

use futures_util::future::BoxFuture;
use lease_postgres::{PostgresStore, PostgresStoreBuilder};
use lease_test_servers::postgres::PostgresServer;

use crate::setting::connected;

/// Returns whether a promise is broken.
pub(crate) type Probe = fn(PostgresStore, &PostgresServer) -> BoxFuture<'_, bool>;

/// The name of a statement, a part of its text, the replacement of this part, and the probe.
pub(crate) type Control = (&'static str, &'static str, &'static str, Probe);

/// Fails if a probe breaks a promise of the store of `sound`, or breaks none without a part.
pub(crate) async fn assert_each_is_needed(
    controls: &[Control],
    server: &PostgresServer,
    sound: impl Fn() -> PostgresStoreBuilder,
) {
    for (statement, part, replacement, probe) in controls {
        let store = connected(sound()).await;
        assert!(!probe(store, server).await, "{statement}: {part:?} does not protect");
        server.command("TRUNCATE lease");
        let altered = sound().with_altered_statement(statement, part, replacement);

        let is_broken = probe(connected(altered).await, server).await;

        assert!(is_broken, "{statement}: {part:?} is not needed");
        server.command("TRUNCATE lease");
    }
}
