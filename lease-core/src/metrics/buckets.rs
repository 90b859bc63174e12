//! Buckets for the histograms of adapters.

/// Buckets for histograms in seconds, from a millisecond to a day.
pub const SECONDS_BUCKETS: [f64; 16] = [
    0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0,
    21_600.0, 86_400.0,
];

/// Buckets for the part of the trusted ttl that was left at a heartbeat.
pub const RATIO_BUCKETS: [f64; 10] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
