//! Measurements, for benchmarks.

use lease_core::store::{BootClock, Clock};

/// Whether `cargo bench` started this program. `cargo test --benches` also starts benchmarks, which
/// must not measure then.
pub fn is_measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Returns the duration of `work`, in seconds.
pub async fn timed<T>(work: impl Future<Output = T>) -> f64 {
    let clock = BootClock::new();
    let began = clock.now();
    work.await;
    clock.now().since(began).as_secs_f64()
}

/// Returns the median.
///
/// # Panics
///
/// Panics if there are no values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    *values.get(values.len() / 2).expect("a run")
}
