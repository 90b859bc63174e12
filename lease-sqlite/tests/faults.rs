//! Faults of the disk, of the file and of other programs. Each error has a remedy.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use futures_util::StreamExt;
use lease_core::store::{Beat, Claim, Grant, LeaseTable, LockStore, Nonce, Obtained};
use lease_core::{Attributes, StoreError, StoreErrorKind, Value};
use lease_sqlite::SqliteStore;
use lease_test_servers::tools::missing;
use rusqlite::Connection;
use tempfile::TempDir;

fn claim(by: &str) -> Claim {
    Claim::new(
        "job".parse().unwrap(),
        by.parse().unwrap(),
        Nonce::random(),
        Duration::from_secs(600),
    )
}

async fn granted(store: &SqliteStore, claim: &Claim) -> Grant {
    match store.obtain(claim).await.unwrap() {
        Obtained::Granted(grant, _) => grant,
        Obtained::Held(holder) => panic!("held by {holder:?}"),
    }
}

#[track_caller]
fn says(error: &StoreError, kind: StoreErrorKind, parts: &[&str]) {
    let text = error.source().unwrap().to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

async fn refused(path: impl Into<PathBuf>) -> StoreError {
    let builder = SqliteStore::builder(path).with_timeout(Duration::from_millis(200));
    builder.open().await.unwrap_err()
}

/// Only root can mount this file system in memory.
struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(folder.path())
            .status();
        if !mounted.is_ok_and(|status| status.success()) {
            missing("the right to mount a tmpfs");
            return None;
        }
        Some(Self { folder })
    }

    fn remount(&self, option: &str) {
        let mode = format!("remount,{option}");
        let status = Command::new("mount").args(["-o", &mode]).arg(self.folder.path()).status();
        assert!(status.unwrap().success());
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Unmounts lazily, because the threads of a dropped store may still have the file open.
        drop(Command::new("umount").arg("-l").arg(self.folder.path()).status());
    }
}

#[tokio::test]
async fn full_disk_is_reported_and_frees_nothing() {
    let Some(disk) = SmallDisk::mount() else { return };
    let store = SqliteStore::open(disk.path().join("leases.db")).await.unwrap();
    let grant = granted(&store, &claim("a")).await;
    // The filler is larger than the disk, so the write fills the disk and fails.
    drop(fs::write(disk.path().join("filler"), vec![0_u8; 2 << 20]));

    let mut beat = Beat::GRANTED;
    let error = loop {
        beat = beat.next();
        // SQLite's log has some room left, so the first heartbeats may succeed.
        if let Err(error) = store.heartbeat(&grant, beat).await {
            break error;
        }
    };
    let while_full = store.obtain(&claim("b")).await;
    fs::remove_file(disk.path().join("filler")).unwrap();

    says(&error, StoreErrorKind::Unavailable, &["leases.db: ", "full", "free space on the disk"]);
    assert!(while_full.is_err() || matches!(while_full, Ok(Obtained::Held(_))), "{while_full:?}");
    let extended = store.heartbeat(&grant, beat.next()).await.unwrap();
    assert_eq!(extended, lease_core::store::Heartbeat::Extended);
}

#[tokio::test]
async fn file_without_write_permission_is_refused() {
    let Some(disk) = SmallDisk::mount() else { return };
    let path = disk.path().join("leases.db");
    SqliteStore::open(&path).await.unwrap().close().await;
    disk.remount("ro");

    let existing = refused(&path).await;
    let new = refused(disk.path().join("new.db")).await;

    says(&existing, StoreErrorKind::Denied, &["leases.db is read-only", "let this user write"]);
    says(&new, StoreErrorKind::Denied, &["new.db", "this user must be able to write"]);
}

#[tokio::test]
async fn removed_file_grants_nothing_until_all_processes_restart() {
    for suffix in ["", "-wal", "-shm"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let former = SqliteStore::open(&path).await.unwrap();
        let grant = granted(&former, &claim("a")).await;
        fs::remove_file(format!("{}{suffix}", path.display())).unwrap();

        let extended = former.heartbeat(&grant, Beat::new(1)).await.unwrap_err();
        let read = former.holder(&grant.key).await.unwrap_err();
        let opened = refused(&path).await;

        says(&extended, StoreErrorKind::Misconfigured, &["was removed while", "restart all"]);
        says(&read, StoreErrorKind::Misconfigured, &["was removed while"]);
        says(&opened, StoreErrorKind::Misconfigured, &["still uses the earlier file", "stop all"]);
        former.close().await;
        granted_or_held(&SqliteStore::open(&path).await.unwrap()).await;
    }
}

#[tokio::test]
async fn replaced_file_grants_nothing_until_all_processes_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("leases.db"), folder.path().join("other.db"));
    let former = SqliteStore::open(&path).await.unwrap();
    let grant = granted(&former, &claim("a")).await;
    SqliteStore::open(&other).await.unwrap().close().await;
    fs::rename(&other, &path).unwrap();

    let extended = former.heartbeat(&grant, Beat::new(1)).await.unwrap_err();
    let opened = refused(&path).await;

    says(&extended, StoreErrorKind::Misconfigured, &["was replaced while", "restart all"]);
    says(&opened, StoreErrorKind::Misconfigured, &["still uses the earlier file"]);
}

/// The control of the two tests above.
#[tokio::test]
async fn removed_file_grants_twice_without_the_checks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let open = || SqliteStore::builder(&path).with_sabotage("identity", "checked", "").open();
    let former = open().await.unwrap();
    let grant = granted(&former, &claim("a")).await;
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{suffix}", path.display())).unwrap();
    }

    let second = open().await.unwrap();
    granted(&second, &claim("b")).await;

    let extended = former.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert_eq!(extended, lease_core::store::Heartbeat::Extended, "two holders");
}

#[tokio::test]
async fn corrupt_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let store = SqliteStore::open(&path).await.unwrap();
    for number in 0..100 {
        let attributes = Attributes::from([("note".to_owned(), Value::from("x".repeat(2000)))]);
        store.create(&format!("key-{number}").parse().unwrap(), &attributes).await.unwrap();
    }
    store.close().await;
    let mut bytes = fs::read(&path).unwrap();
    // The first page has the schema, and stays intact.
    for byte in bytes.iter_mut().skip(4096) {
        *byte = byte.wrapping_mul(31).wrapping_add(7);
    }
    fs::write(&path, bytes).unwrap();

    let error = match SqliteStore::open(&path).await {
        Err(error) => error,
        Ok(store) => {
            let records = store.list("").collect::<Vec<_>>().await;
            records.into_iter().find_map(Result::err).unwrap()
        }
    };

    says(&error, StoreErrorKind::Corrupt, &["leases.db", "stop all processes", "backup"]);
}

#[tokio::test]
async fn file_of_another_program_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (text, database) = (folder.path().join("notes.txt"), folder.path().join("shop.db"));
    fs::write(&text, "no database ".repeat(1000)).unwrap();
    Connection::open(&database).unwrap().execute_batch("CREATE TABLE orders (id)").unwrap();
    let before = [&text, &database].map(|path| fs::read(path).unwrap());

    let (of_text, of_database) = (refused(&text).await, refused(&database).await);

    says(&of_text, StoreErrorKind::Misconfigured, &["notes.txt", "no SQLite file", "another file"]);
    says(&of_database, StoreErrorKind::Misconfigured, &["shop.db", "another program"]);
    assert!(before == [&text, &database].map(|path| fs::read(path).unwrap()), "a file was changed");
}

#[tokio::test]
async fn file_of_a_later_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    SqliteStore::open(&path).await.unwrap().close().await;
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 3).unwrap();

    let error = refused(&path).await;

    says(&error, StoreErrorKind::Misconfigured, &["version 3", "update lease-sqlite"]);
}

#[tokio::test]
async fn path_that_cannot_be_a_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    SqliteStore::open(&path).await.unwrap().close().await;
    fs::hard_link(&path, folder.path().join("second.db")).unwrap();

    says(&refused(&path).await, StoreErrorKind::Misconfigured, &["2 hard links", "keep one"]);
    let missing = refused(folder.path().join("none/leases.db")).await;
    says(&missing, StoreErrorKind::Misconfigured, &["does not exist", "create the folder"]);
    let error = refused(folder.path()).await;
    says(&error, StoreErrorKind::Misconfigured, &["is a folder", "name a file in it"]);
}

#[tokio::test]
async fn lock_of_another_program_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let store =
        SqliteStore::builder(&path).with_timeout(Duration::from_millis(50)).open().await.unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();

    let error = store.obtain(&claim("a")).await.unwrap_err();
    let read = store.holder(&"job".parse().unwrap()).await.unwrap();
    other.execute_batch("ROLLBACK").unwrap();

    says(&error, StoreErrorKind::Unavailable, &["held the write lock", "stopped process"]);
    assert_eq!(read, None, "reads need no lock");
    granted(&store, &claim("a")).await;
}

async fn granted_or_held(store: &SqliteStore) {
    store.obtain(&claim("b")).await.unwrap();
}
