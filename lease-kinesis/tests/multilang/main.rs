//! The MultiLang protocol: its messages, its lines, and a processor of ours under a daemon.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod child;
mod golden;
mod lines;
