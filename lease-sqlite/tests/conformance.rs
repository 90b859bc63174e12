//! Tests every promise of both traits. Like separate processes, the handles share only the file.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use async_trait::async_trait;
use lease_core::conformance::{Fixture, Reopened};
use lease_sqlite::SqliteStore;
use lease_test_servers::promises::broken_of_both;
use lease_test_servers::tools::memory_folder;
use tempfile::TempDir;

struct OnFile {
    folder: TempDir,
}

impl OnFile {
    fn new() -> Self {
        Self { folder: tempfile::tempdir_in(memory_folder()).unwrap() }
    }
}

#[async_trait]
impl Fixture for OnFile {
    type Store = SqliteStore;

    async fn store(&self) -> SqliteStore {
        SqliteStore::open(self.folder.path().join("leases.db")).await.unwrap()
    }

    async fn another(&self, _store: &SqliteStore) -> SqliteStore {
        self.store().await
    }

    async fn reopen(&self, store: SqliteStore) -> Reopened<SqliteStore> {
        drop(store);
        Reopened::Intact(self.store().await)
    }
}

#[test]
fn every_promise_is_kept_on_one_file() {
    let broken = broken_of_both(OnFile::new);

    assert!(broken.is_empty(), "{broken:?}");
}
