//! `lease take`: obtains a key for a script in steps.

use lease_core::{HandOver, Handed, LeaseOptions, Locker, Ttl};
use tokio::select;
use tokio::time::timeout;

use crate::arguments::WaitingArguments;
use crate::commands::context::Context;
use crate::commands::obtaining::{self, LAST_ANSWERS, Obtained};
use crate::exit::{Exit, Failure};
use crate::output::messages::log;

/// Obtains the key and prints its hand-over. If the user does not get it, releases the key.
pub(crate) async fn take(context: &Context, arguments: &WaitingArguments) -> Result<Exit, Failure> {
    log(arguments.verbosity());
    let options = LeaseOptions::new(arguments.ttl)?;
    let wait = Ttl::new(arguments.ttl)?;
    let Obtained { lease, locker, mut signals } =
        match obtaining::obtain(context, arguments, options).await? {
            Ok(obtained) => obtained,
            Err(exit) => return Ok(exit),
        };
    let (key, token) = (lease.key().clone(), lease.token());
    let handed = select! {
        biased;
        signal = signals.next() => {
            // A task releases the key, unless the store hangs.
            drop(timeout(LAST_ANSWERS, locker.close()).await);
            return Ok(Exit::signal(signal));
        }
        handed = lease.hand_over(wait) => handed?,
    };
    let Handed::Over(hand_over) = handed else {
        return Ok(Exit::code(arguments.lost_exit_code));
    };
    let (text, output) = (hand_over.to_string(), context.output);
    // Without JSON, the text alone, for `text=$(lease take KEY)`.
    let fields = serde_json::json!({ "text": text, "key": key, "token": token.get() });
    let end = select! {
        // The output first: the user has the text if both come at once.
        biased;
        printed = obtaining::printed(move || output.print_text(&text, &fields)) => {
            let Err(failure) = printed else { return Ok(Exit::SUCCESS) };
            Err(failure)
        }
        signal = signals.next() => Ok(Exit::signal(signal)),
    };
    let released = obtaining::finish(arguments, take_back(&locker, hand_over), &mut signals).await;
    if let Err(failure) = released {
        failure.report();
    }
    end
}

/// Releases the key of a hand-over.
async fn take_back(locker: &Locker, hand_over: HandOver) -> Result<(), Failure> {
    if let Some(lease) = locker.resume(hand_over).await? {
        lease.release().await?;
    }
    Ok(())
}
