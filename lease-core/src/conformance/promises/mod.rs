//! The promises themselves, by what they are about. The kit's macros name them.

pub mod adopting;
pub mod evicting;
pub mod granting;
pub mod heartbeats;
pub mod keeping;
pub mod releasing;
pub mod table;
pub mod tokens;
