//! Parts of models that several simulations share.

pub mod expression;
mod remote_stream;

pub use remote_stream::RemoteStream;
