#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
pub mod fence;
mod heartbeat;
mod invalid;
mod key;
mod lease;
mod lengths;
mod locker;
mod lost;
mod metrics;
mod options;
mod runtime;
mod session;
mod settings;
pub mod store;
mod switch;
mod token;
mod waiter_queue;

pub use acquire::attempt::Attempt;
pub use error::{StoreError, StoreErrorKind};
pub use heartbeat::ending::LeaseState;
pub use heartbeat::release::Released;
pub use invalid::InvalidInput;
pub use key::{LeaseKey, Lessee};
pub use lease::hand_over::HandOver;
pub use lease::{Handed, Lease};
pub use lengths::{Reservation, Ttl};
pub use locker::Locker;
pub use locker::wait_in_turn::WaitInTurn;
pub use lost::{LossCause, Lost};
pub use metrics::{KeyGroups, Metrics, RATIO_BUCKETS, SECONDS_BUCKETS, StoreOperation};
pub use options::{LeaseOptions, Waiting};
pub use session::Session;
pub use store::attributes::{Attributes, Change, Number, Value};
pub use store::grant::{GrantId, Holder, Written};
pub use switch::{Switch, TableSwitch};
pub use token::FencingToken;
