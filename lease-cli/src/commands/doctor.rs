//! `lease doctor`: checks the store, one line per check, with a remedy.

use crate::commands::context::Context;
use crate::doctor::{Grade, examine};
use crate::exit::{Exit, Failure};
use crate::output::Record;
use crate::store;

/// Exits with 1 if a check has found a problem.
pub(crate) async fn doctor(context: &Context) -> Result<Exit, Failure> {
    let url = match &context.url {
        Some(url) => url.clone(),
        None => store::default_url()?,
    };
    let findings = examine(&url).await;
    let records: Vec<_> = findings
        .iter()
        .map(|finding| {
            Record::new()
                .with("check", finding.check)
                .with("result", finding.grade.name())
                .with("found", finding.found.as_str())
                .with("remedy", finding.remedy.as_deref())
        })
        .collect();
    context.output.list(&records)?;
    let has_problem = findings.iter().any(|finding| finding.grade == Grade::Problem);
    Ok(if has_problem { Exit::NO } else { Exit::SUCCESS })
}
