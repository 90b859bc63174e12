//! The settings that all connections of one store share.

use std::sync::Arc;
use std::time::Duration;

use crate::machine::Machine;
use crate::statements::Statements;

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) statements: Arc<Statements>,
    pub(crate) timeout: Duration,
}
