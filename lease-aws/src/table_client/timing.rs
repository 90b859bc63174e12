//! Time limits and the clock.

use std::sync::Arc;
use std::time::Duration;

use lease_core::InvalidInput;
use lease_core::store::{BootClock, Clock};

/// The time limit of requests, the clock, and the assumed error of the clock's rate.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_structs, reason = "for the crates of this repository")]
pub struct Timing {
    /// The largest relative difference between the rate of this machine's clock and another machine's clock:
    /// 0 to 0.1.
    pub clock_rate_error: f64,
    /// The longest time to wait for an answer, the SDK's retries included.
    pub request_timeout: Duration,
    /// The clock that measures lease time.
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
    /// Checks the ranges.
    ///
    /// # Errors
    ///
    /// If the clock rate error is not within 0 to 0.1, or the request timeout is zero.
    pub fn validate(&self) -> Result<(), InvalidInput> {
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
