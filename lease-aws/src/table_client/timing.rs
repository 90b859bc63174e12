//! How long things take, and whose clock says so.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{BootClock, Clock, InvalidInput};

/// The times of a table that do not depend on its rows.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_structs, reason = "for the tables of this repository")]
pub struct Timing {
    /// By how much the rates of this machine's clock and of any other differ, as a part of the rate.
    pub clock_rate_error: f64,
    /// How long an answer may take, the SDK's retries included.
    pub request_timeout: Duration,
    /// Where lease time is read.
    pub clock: Arc<dyn Clock>,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            clock_rate_error: 0.01,
            request_timeout: Duration::from_secs(3),
            clock: Arc::new(BootClock::new()),
        }
    }
}

impl Timing {
    /// Refuses what is out of range.
    pub fn check(&self) -> Result<(), InvalidInput> {
        let error = self.clock_rate_error;
        if !(0.0..=0.1).contains(&error) {
            let text = format!(
                "clock rate error {error} is out of range: 0 to 0.1, as a part of the rate"
            );
            return Err(InvalidInput::new(text));
        }
        if self.request_timeout.is_zero() {
            return Err(InvalidInput::new("request timeout 0s leaves no time to answer"));
        }
        Ok(())
    }
}
