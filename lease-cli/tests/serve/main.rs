//! `lease serve`: the real program, and requests without a browser. Start with [`site`], which starts
//! the program on its own store. [`http`] sends requests.
#![cfg(target_os = "linux")]
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod changes;
mod http;
mod live;
mod refusals;
mod site;
