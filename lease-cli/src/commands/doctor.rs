//! `lease doctor`: checks the store, one line per check.

use crate::commands::Context;
use crate::exit::{Exit, Failure};
use crate::output::Record;
use crate::store;

pub(crate) async fn doctor(context: &Context) -> Result<Exit, Failure> {
    store::open(context.url.as_deref()).await?;
    context.output.print(&Record::new().with("check", "reachable").with("result", "ok"))?;
    Ok(Exit::SUCCESS)
}
