//! Reports the backlog of an exporter to the application's metrics.

use std::sync::Arc;
use std::time::Duration;

use lease_core::store::Clock;
use tokio::time::timeout;
use tracing::debug;

use crate::exporter::Exporter;
use crate::exporter::error::ExportError;
use crate::metrics::{ExportMetrics, Reports};

impl Exporter {
    /// Reports the events of exports to `metrics`, such as the adapters of `lease-metrics` and `lease-opentelemetry`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<dyn ExportMetrics>) -> Self {
        self.metrics = Reports { metrics: Some(metrics), measured: Arc::default() };
        self
    }

    /// Reports the [backlog](ExportMetrics::backlog) to the metrics. Without metrics, does nothing. A process that
    /// rarely exports can call this at an interval.
    ///
    /// # Errors
    ///
    /// Fails if the buffer did not answer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    pub async fn measure_backlog(&self) -> Result<(), ExportError> {
        if self.metrics.metrics.is_some() {
            *self.metrics.measured.lock() = Some(self.clock.now());
            let (pending, oldest) =
                (self.parts.buffer.pending().await?, self.parts.buffer.oldest_age().await?);
            self.metrics.report(|metrics| metrics.backlog(pending, oldest));
        }
        Ok(())
    }

    /// An export has ended, so an error of the buffer only delays the next measurement. The caller waits for the result
    /// of the export, so the measurement is short.
    pub(crate) async fn measure_backlog_after_export(&self) {
        match timeout(LONGEST_MEASUREMENT, self.measure_backlog()).await {
            Ok(Ok(())) => (),
            Ok(Err(error)) => {
                let error = &error as &dyn std::error::Error;
                debug!(key = %self.key, error, "backlog not measured");
            }
            Err(_late) => debug!(key = %self.key, "backlog not measured in time"),
        }
    }

    /// Other processes export the events, so the last values of this process would be out of date.
    pub(crate) async fn measure_backlog_while_idle(&self) {
        let last = *self.metrics.measured.lock();
        if last.is_none_or(|last| self.clock.now().since(last) >= IDLE_MEASUREMENT) {
            self.measure_backlog_after_export().await;
        }
    }
}

const LONGEST_MEASUREMENT: Duration = Duration::from_secs(1);

const IDLE_MEASUREMENT: Duration = Duration::from_secs(60);
