#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod alarm;
mod attempt;
mod attributes;
mod batch;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
pub mod fence;
mod grant;
mod handover;
mod heartbeat;
mod hold;
mod home;
mod inbox;
mod invalid;
mod key;
mod lease;
mod locker;
mod lost;
mod metrics;
mod nonce;
mod options;
mod outstanding;
mod queue;
mod random;
mod release;
mod retry;
mod settings;
mod store;
mod table;
mod token;
mod undertaking;
mod unsettled;
mod waiting;

pub use attempt::Attempt;
pub use attributes::{Attributes, Change, Number, Value};
pub use clock::{BootClock, Clock, Moment, SkewedClock, micros_since_1970};
pub use error::{StoreError, StoreErrorKind};
pub use grant::{Beat, Claim, Grant, Heartbeat, Holder, Obtained, Written};
pub use handover::HandOver;
pub use hold::LeaseState;
pub use invalid::InvalidInput;
pub use key::{LeaseKey, Lessee};
pub use lease::{Handed, Lease, Released};
pub use locker::Locker;
pub use lost::{LossCause, Lost};
pub use metrics::Metrics;
pub use nonce::Nonce;
pub use options::LeaseOptions;
pub use retry::within;
pub use store::{Freed, LockStore};
pub use table::{LeaseRecord, LeaseTable};
pub use token::FencingToken;
