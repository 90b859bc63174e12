//! Why a run could not be made.

use std::error::Error;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;
