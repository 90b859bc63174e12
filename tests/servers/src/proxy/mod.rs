//! Networks that fail on demand, between a client and a server.
//!
//! [`Link`] delays and holds bytes, and cuts connections. [`Proxy`] parses requests of HTTP or
//! Redis, and loses, delays, doubles or holds single requests.

mod link;
mod listener;
mod requests;
mod wire;

pub use link::{Flow, Link};
pub use requests::{Fault, Held, Holding, Proxy};
pub use wire::Wire;
