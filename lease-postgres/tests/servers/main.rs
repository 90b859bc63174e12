//! `PostgresStore` on a real server: the order of requests, odd rows, faults of the server.
//!
//! [`clocks`] runs processes whose wall clocks differ. [`conditions`] tests single conditions of statements.
//! [`setting`] makes a store. [`sabotage`] removes one condition of a statement at a time, and expects the kit to
//! notice. [`locks`] makes requests wait for a row. [`faults`] crashes and hangs the server. [`rows`] spoils rows.
//! [`listening`] watches keys, also behind a pooler. [`records`] and [`tokens`] test what the kit does not,
//! and [`tls`] encrypts connections.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod clocks;
mod conditions;
mod faults;
mod listening;
mod locks;
mod records;
mod rows;
mod sabotage;
mod setting;
mod tls;
mod tokens;
