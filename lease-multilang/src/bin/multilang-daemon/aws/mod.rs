//! The clients of AWS and the lease table. Start with [`clients`].

pub(crate) mod clients;
#[cfg(feature = "aws")]
mod profiles;
pub(crate) mod table;
