//! How long something takes, and what of several runs counts.

use lease_core::{BootClock, Clock};

/// Whether this was started to measure: `cargo test --benches` runs benchmarks, too.
pub fn is_measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// How long `work` takes, in seconds.
pub async fn timed<T>(work: impl Future<Output = T>) -> f64 {
    let clock = BootClock::new();
    let began = clock.now();
    work.await;
    clock.now().since(began).as_secs_f64()
}

/// The one in the middle.
///
/// # Panics
///
/// Where there are none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    *values.get(values.len() / 2).expect("a run")
}
