//! `PostgresStore` on a real server: the order of requests, invalid rows, faults of the server.
//!
//! [`clocks`] runs processes whose wall clocks differ. [`conditions`] tests single conditions of statements.
//! [`setting`] makes a store. [`sabotage`] removes conditions of statements and expects broken promises.
//! [`locks`] makes requests wait for a row. [`faults`] crashes and hangs the server. [`rows`] writes invalid
//! rows. [`listening`] watches keys, also behind a pooler. [`records`] and [`tokens`] test what the
//! conformance tests do not, and [`tls`] encrypts connections.
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
