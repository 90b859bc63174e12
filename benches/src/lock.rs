//! The interface of all locks in the benchmark.

use async_trait::async_trait;

/// A lock on one or several servers, by a library or by bare commands.
#[async_trait]
pub(crate) trait Lock: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// Waits until `key` is free, and takes it. Returns `None` if the library gives up.
    async fn take(&self, key: &str) -> Option<Box<dyn Held>>;
}

/// A held key.
#[async_trait]
pub(crate) trait Held: Send {
    /// Frees the key, and waits for the answer.
    async fn free(self: Box<Self>);
}
