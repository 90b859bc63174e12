//! What all locks have in common, as far as a benchmark goes.

use async_trait::async_trait;

/// A library, or the bare commands, on some servers.
#[async_trait]
pub(crate) trait Lock: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// Takes `key`, once it is free; `None` where the library gives up.
    async fn take(&self, key: &str) -> Option<Box<dyn Held>>;
}

/// A key that was taken.
#[async_trait]
pub(crate) trait Held: Send {
    /// Frees it, and waits until that is done.
    async fn free(self: Box<Self>);
}
