//! The interface of all locks in the benchmark.

use async_trait::async_trait;

#[async_trait]
pub(crate) trait Lock: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// Waits until `key` is free, and takes the key. Returns `None` if the library gives up.
    async fn take(&self, key: &str) -> Option<Box<dyn Held>>;
}

#[async_trait]
pub(crate) trait Held: Send {
    async fn free(self: Box<Self>);
}
