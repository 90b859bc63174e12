//! The promises of a register, each as one function.

mod changes;
mod listing;
mod records;
mod replacing;
mod versions;

pub use changes::*;
pub use listing::*;
pub use records::*;
pub use replacing::*;
pub use versions::*;
