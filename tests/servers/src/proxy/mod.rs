//! Networks that fail on demand, between a client and a server.
//!
//! Start at [`Link`], which handles bytes: it delays bytes, holds bytes, and cuts connections. [`Proxy`]
//! parses requests of HTTP or Redis: it loses, delays, doubles or holds single requests.

mod link;
mod listener;
mod requests;
mod wire;

pub use link::{Flow, Link};
pub use requests::{Fault, Held, Holding, Proxy};
pub use wire::Wire;
