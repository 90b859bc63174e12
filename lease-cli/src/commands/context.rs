//! What every command needs.

use crate::output::Output;

/// What every command needs.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) url: Option<String>,
    pub(crate) output: Output,
}
