//! The settings of a store.

use std::sync::Arc;
use std::time::Duration;

use lease_core::store::Clock;

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) clock_rate_error: f64,
    pub(crate) margin: Duration,
    pub(crate) observed_keys: usize,
}
