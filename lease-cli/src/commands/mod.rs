//! The commands, one file each.
//!
//! Start with [`run`], which most users need. [`context`] has what every command needs, and [`obtaining`] obtains
//! the key for all commands that need one.

mod bench;
pub(crate) mod context;
mod doctor;
mod ending;
mod generated;
mod give;
mod hold;
mod ls;
mod obtaining;
mod run;
pub(crate) mod shards;
mod take;
mod watch;
mod who;

use tokio::runtime::Builder;

use crate::arguments::{Arguments, Command};
use crate::commands::context::Context;
use crate::exit::{Exit, Failure};
use crate::jobs;
use crate::output::Output;
#[cfg(feature = "serve")]
use crate::serve;

/// Runs the command of `arguments` to its end.
pub(crate) fn dispatch(arguments: Arguments) -> Result<Exit, Failure> {
    let output = Output::of(arguments.json);
    let context = Context { url: arguments.store, output };
    // On the main thread: a command dies with the thread that has started it.
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::own("runtime cannot be started", error))?;
    let exit = runtime.block_on(execute(&context, arguments.command));
    // Does not wait for threads that wait for a store.
    runtime.shutdown_background();
    exit
}

async fn execute(context: &Context, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Run(arguments) => run::run(context, &arguments).await,
        Command::Hold(arguments) => hold::hold(context, &arguments).await,
        Command::Take(arguments) => take::take(context, &arguments).await,
        Command::Give { text } => give::give(context, text).await,
        Command::Ls { prefix, long } => ls::ls(context, &prefix, long).await,
        Command::Who { key } => who::who(context, &key).await,
        Command::Watch { prefix, interval } => watch::watch(context, &prefix, interval).await,
        Command::Evict { key, grant } => ending::evict(context, &key, grant).await,
        Command::Release { key, grant, force: _ } => ending::release(context, &key, grant).await,
        Command::Doctor => doctor::doctor(context).await,
        Command::Bench { tasks, time } => bench::bench(context, tasks, time).await,
        Command::Shards(arguments) => shards::shards(context, &arguments).await,
        Command::Jobs { command } => jobs::jobs(context, command).await,
        #[cfg(feature = "serve")]
        Command::Serve(arguments) => serve::serve(context, arguments).await,
        Command::Completions { shell } => generated::completions(shell),
        Command::Man => generated::man(),
    }
}
