//! `lease serve`: the real program, requests without a browser, and a real Chromium. Start with [`site`], which starts
//! the program on its own store. [`http`] sends requests, and [`browser`] drives Chromium.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "figures for people")]
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod browser;
mod changes;
mod dialog;
mod figures;
mod http;
mod jobs;
mod limits;
mod live;
mod page;
mod refusals;
mod scheduler;
mod shards;
mod site;
