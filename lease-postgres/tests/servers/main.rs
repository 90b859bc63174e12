//! `PostgresStore` on a real server.
//!
//! [`clocks`] runs processes whose wall clocks differ. [`conditions`] tests single conditions of statements.
//! [`setting`] makes a store. [`sabotage`] removes conditions of statements and expects broken promises.
//! [`locks`] makes requests wait for a row. [`faults`] crashes and hangs the server. [`rows`] writes invalid
//! rows. [`listening`] watches keys. [`tls`] encrypts connections. [`records`] and [`tokens`] test what the
//! conformance tests do not.
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
