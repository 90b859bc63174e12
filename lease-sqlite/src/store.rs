//! The store, and its lock operations.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::store::{
    Beat, Claim, Freed, Grant, Heartbeat, HeldKey, InTurn, LockStore, Obtained, Sessions,
};
use lease_core::{GrantId, Holder, LeaseKey, StoreError, StoreErrorKind};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::attributes;
use crate::database::Database;
use crate::error::Fault;
use crate::file::opening::Opened;
use crate::requests::ClaimRequest;
use crate::row::Row;
use crate::threads::queue::{Queue, Urgency};
use crate::threads::watches::Watches;
use crate::threads::{reader, writer};

/// Keeps leases in an SQLite file, for the processes of one machine.
///
/// Clones share the store's two threads. Simultaneous requests share a transaction. The [crate's
/// table](crate#what-happens-when) lists what each fault does.
///
/// # Examples
///
/// ```
/// use lease_core::{Attempt, Locker};
/// use lease_sqlite::SqliteStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(&folder)?;
/// let locker = Locker::new(SqliteStore::open("leases.db").await?);
/// match locker.obtain(&"payroll".parse()?).await? {
///     Attempt::Obtained(lease) => {
///         println!("obtained with token {}", lease.token());
///         lease.release().await?;
///     }
///     Attempt::Held(holder) => println!("held by {}", holder.lessee),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SqliteStore {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    writer: Arc<Queue>,
    reader: Arc<Queue>,
    pub(crate) watches: Watches,
    ends: Mutex<Vec<oneshot::Receiver<()>>>,
}

impl SqliteStore {
    pub(crate) fn start(opened: Opened) -> Result<Self, Fault> {
        let (writer, reader) = (Arc::<Queue>::default(), Arc::<Queue>::default());
        let watches = Watches::default();
        let (queue, pokes, waiting) = (Arc::clone(&writer), Arc::clone(&reader), watches.clone());
        let writes = run_on_thread("lease-sqlite-write", opened.writer, move |database| {
            writer::work(database, &queue, &pokes, &waiting);
        });
        let (queue, woken) = (Arc::clone(&reader), watches.clone());
        let reads = run_on_thread("lease-sqlite-read", opened.reader, move |database| {
            reader::work(database, &queue, &woken);
        });
        // From here on, dropping `shared` ends the threads.
        let shared = Shared { writer, reader, watches, ends: Mutex::default() };
        shared.ends.lock().extend([writes?, reads?]);
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Closes the file, and waits until it is closed. Requests of other clones fail from then on. Leases are
    /// not released.
    ///
    /// Dropping the last clone also closes the file, a moment later.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after its first poll, the file is still closed.
    pub async fn close(self) {
        self.shared.writer.close();
        self.shared.reader.close();
        let ends = std::mem::take(&mut *self.shared.ends.lock());
        for end in ends {
            // An error means that the thread has ended.
            drop(end.await);
        }
    }

    pub(crate) async fn write<T: Send + 'static>(
        &self,
        urgency: Urgency,
        request: impl FnOnce(&Database) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        Ok(self.shared.writer.call(urgency, request).await?)
    }

    pub(crate) async fn read_by<T: Send + 'static>(
        &self,
        request: impl FnOnce(&Database) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        Ok(self.shared.reader.call(Urgency::Normal, request).await?)
    }

    pub(crate) fn rows<T: Send + 'static>(
        &self,
        prefix: &str,
        read: impl Fn(&Row) -> Result<Option<T>, Fault> + Clone + Send + 'static,
    ) -> BoxStream<'_, Result<T, StoreError>> {
        let first = Some((prefix.to_owned(), String::new()));
        let pages = stream::unfold(first, move |place| {
            let read = read.clone();
            async move {
                let (prefix, after) = place?;
                let asked = prefix.clone();
                let page =
                    self.read_by(move |database| page(database, &asked, &after, &read)).await;
                match page {
                    Ok((items, next)) => Some((items, next.map(|after| (prefix, after)))),
                    Err(error) => Some((vec![Err(error)], None)),
                }
            }
        });
        pages.map(stream::iter).flatten().boxed()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.writer.close();
        self.reader.close();
    }
}

fn run_on_thread(
    name: &str,
    database: Database,
    work: impl FnOnce(&Database) + Send + 'static,
) -> Result<oneshot::Receiver<()>, Fault> {
    let (ended, end) = oneshot::channel();
    let run = move || {
        work(&database);
        drop(database);
        let _ = ended.send(());
    };
    // Detached, because the thread ends when its queue is closed.
    let started = thread::Builder::new().name(name.to_owned()).spawn(run);
    drop(started.map_err(|error| {
        Fault::unavailable(format!(
            "no thread could be started ({error}): raise the limit of threads"
        ))
    })?);
    Ok(end)
}

#[async_trait]
impl LockStore for SqliteStore {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        refuse_child(claim)?;
        let request = claim_request(claim)?;
        self.write(Urgency::Normal, move |database| database.obtain(&request)).await
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        let grant = grant.clone();
        self.write(Urgency::Urgent, move |database| database.heartbeat(&grant, beat)).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        let grant = grant.clone();
        self.write(Urgency::Urgent, move |database| database.release(&grant, reserved)).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        let (grant, request) = (grant.clone(), claim_request(claim)?);
        self.write(Urgency::Normal, move |database| database.adopt(&grant, &request)).await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let key = key.clone();
        self.read_by(move |database| Ok(database.row(&key)?.and_then(|row| row.holder()))).await
    }

    fn heartbeat_all<'a>(
        &'a self,
        beats: &'a [(Grant, Beat)],
    ) -> BoxStream<'a, (usize, Result<Heartbeat, StoreError>)> {
        let answers = async move {
            let sent = beats.to_vec();
            let answers = self.write(Urgency::Urgent, move |database| {
                let answer = |(grant, beat): &(Grant, Beat)| database.heartbeat(grant, *beat);
                Ok(sent.iter().map(answer).collect::<Vec<_>>())
            });
            let answers: Vec<_> = match answers.await {
                Ok(answers) => {
                    answers.into_iter().map(|answer| answer.map_err(StoreError::from)).collect()
                }
                Err(error) => {
                    let (kind, text) = (error.kind(), describe(&error));
                    let failed = |_beat| Err(StoreError::new(kind, text.clone()));
                    beats.iter().map(failed).collect()
                }
            };
            stream::iter(answers.into_iter().enumerate())
        };
        stream::once(answers).flatten().boxed()
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        let (key, grant) = (key.clone(), grant.clone());
        self.write(Urgency::Normal, move |database| database.evict(&key, &grant)).await
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        self.rows(prefix, |row| {
            Ok(row.holder().map(|holder| HeldKey::new(row.key.clone(), holder)))
        })
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        let (key, watches) = (key.clone(), self.shared.watches.clone());
        self.read_by(move |database| watches.watch(database, &key)).await
    }

    fn in_turn(&self) -> Option<&dyn InTurn> {
        Some(self)
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }
}

/// The key is that after which the next page begins. It is `None` for the last page.
type Page<T> = (Vec<Result<T, StoreError>>, Option<String>);

fn page<T>(
    database: &Database,
    prefix: &str,
    after: &str,
    read: &impl Fn(&Row) -> Result<Option<T>, Fault>,
) -> Result<Page<T>, Fault> {
    let rows = database.page(prefix, after, PAGE)?;
    let is_full = rows.len() == PAGE;
    let mut last = None;
    let mut items = Vec::new();
    for row in rows {
        let row = match row {
            Ok(row) if row.key.as_str().starts_with(prefix) => row,
            // The keys are sorted, so no later key has the prefix.
            Ok(_other) => return Ok((items, None)),
            Err(fault) => {
                items.push(Err(fault.into()));
                continue;
            }
        };
        match read(&row) {
            Ok(item) => items.extend(item.map(Ok)),
            Err(fault) => items.push(Err(fault.into())),
        }
        last = Some(row.key.as_str().to_owned());
    }
    Ok((items, last.filter(|_| is_full)))
}

pub(crate) fn claim_request(claim: &Claim) -> Result<ClaimRequest, StoreError> {
    let attributes = attributes::write(&claim.attributes).ok_or_else(unwritable)?;
    Ok(ClaimRequest { claim: claim.clone(), attributes })
}

/// Only `obtain_under` checks that the key is free for a claim under a session.
pub(crate) fn refuse_child(claim: &Claim) -> Result<(), StoreError> {
    if claim.parent.is_none() {
        return Ok(());
    }
    let text = "a claim under a session is made by `obtain_under`";
    Err(StoreError::new(StoreErrorKind::Refused, text))
}

pub(crate) fn unwritable() -> StoreError {
    StoreError::new(
        StoreErrorKind::Refused,
        "an attribute has more than 32 levels of lists and maps, or a type that this version cannot write",
    )
}

pub(crate) fn describe(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// During a read, other reads wait.
const PAGE: usize = 200;
