//! The error of a run that could not start or finish.

use std::error::Error;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;
