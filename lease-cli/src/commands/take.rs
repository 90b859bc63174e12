//! `lease take`: obtains a key for a script in steps.

use lease_core::{Handed, LeaseOptions, Ttl};

use crate::arguments::WaitingArguments;
use crate::commands::Context;
use crate::commands::obtaining::{self, Obtained};
use crate::exit::{Exit, Failure};
use crate::output::messages::log;

pub(crate) async fn take(context: &Context, arguments: &WaitingArguments) -> Result<Exit, Failure> {
    log(arguments.verbosity());
    let options = LeaseOptions::new(arguments.ttl)?;
    let Obtained { lease, .. } = match obtaining::obtain(context, arguments, options).await? {
        Ok(obtained) => obtained,
        Err(exit) => return Ok(exit),
    };
    let (key, token) = (lease.key().clone(), lease.token());
    match lease.hand_over(Ttl::new(arguments.ttl)?).await? {
        Handed::Over(hand_over) => {
            let text = hand_over.to_string();
            // Without JSON, the text alone, for `text=$(lease take KEY)`.
            let fields = serde_json::json!({ "text": text, "key": key, "token": token.get() });
            context.output.print_text(&text, &fields)?;
            Ok(Exit::SUCCESS)
        }
        Handed::AlreadyLost(_) => Ok(Exit::code(arguments.lost_exit_code)),
    }
}
