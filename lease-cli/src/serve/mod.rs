//! `lease serve`: a page for operators, with leases, jobs and shards as they change.
//!
//! Start with [`serve`]. [`site`] has the paths, [`guard`] refuses requests of other sites, [`token`] those without
//! the token. [`feed`] reads the store while a browser looks, and [`events`] sends what has changed. [`leases`],
//! [`jobs`] and [`shards`] are the three views, made of [`rows`]. [`changes`] has what a browser may change, and
//! [`operator`] who changes it and why. [`connections`] limits what clients use. [`files`] and the folder `page` are
//! what a browser loads.

mod changes;
mod connections;
mod events;
mod feed;
mod files;
mod guard;
mod jobs;
mod leases;
mod operator;
mod rows;
mod shards;
mod site;
mod token;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lease_core::LeaseOptions;
use lease_scheduler::JobControl;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::select;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use self::feed::Feed;
use self::guard::OwnHosts;
use self::jobs::Jobs;
use self::leases::Leases;
use self::shards::Shards;
use self::site::{STREAMS, Site};
use self::token::Token;
use crate::arguments::ServeArguments;
use crate::commands::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::messages::{log, say};
use crate::output::verbosity::Verbosity;
use crate::signals::Signals;
use crate::store;

/// Serves the page until a signal ends this process.
pub(crate) async fn serve(context: &Context, arguments: ServeArguments) -> Result<Exit, Failure> {
    let token = if arguments.allow_changes {
        Some(Token::load(arguments.token_file.as_deref())?)
    } else {
        None
    };
    log(Verbosity::Normal);
    let listener = listen(arguments.listen).await?;
    let address =
        listener.local_addr().map_err(|error| Failure::own("address is not known", error))?;
    let hosts = OwnHosts::new(address, &arguments.hosts)?;
    let mut signals =
        Signals::listen().map_err(|error| Failure::own("signals cannot be received", error))?;
    let url = hosts.url();
    let shown = token.as_ref().and_then(Token::to_show);
    let shown = shown.map_or_else(|| url.clone(), |token| format!("{url}#token={token}"));
    // A store that does not answer takes long to open.
    let site = select! {
        biased;
        signal = signals.next() => return Ok(Exit::signal(signal)),
        site = open_site(context, arguments, token) => site?,
    };
    let changes = site.changes.clone();
    context.output.print_text(&shown, &json!({ "url": shown }))?;
    select! {
        biased;
        signal = signals.next() => {
            finish(&changes, &mut signals).await;
            Ok(Exit::signal(signal))
        }
        () = connections::serve(listener, site::router(site, hosts)) => Ok(Exit::SUCCESS),
    }
}

/// Waits until the log has the results of running changes, for a limited time.
async fn finish(changes: &TaskTracker, signals: &mut Signals) {
    changes.close();
    if !changes.is_empty() {
        let text = format!("ends after the results of {} changes", changes.len());
        say(&format!("{text}. A second signal ends it at once"));
    }
    let is_finished = select! {
        biased;
        () = changes.wait() => true,
        // An operator does not want to wait.
        _second = signals.next() => false,
        () = sleep(LONGEST_CHANGE) => false,
    };
    if !is_finished {
        say(&format!("the results of {} changes are not known", changes.len()));
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::new(Exit::CONFIGURATION, format!("{address} cannot be listened on: {error}"))
    })
}

async fn open_site(
    context: &Context,
    arguments: ServeArguments,
    token: Option<Token>,
) -> Result<Site, Failure> {
    let store = store::open(context.url.as_deref()).await?;
    let locker = store::locker(store.clone(), LeaseOptions::default())?;
    let ServeArguments { prefix, interval, .. } = &arguments;
    let (prefix, interval) = (prefix.clone(), *interval);
    let leases = Feed::start(Leases::new(store.clone(), prefix.clone()), interval);
    // A store without records has neither jobs nor shards.
    let table = store.table();
    let control = table.clone().map(|table| JobControl::new(&locker, table));
    let jobs = control.clone().map(|jobs| Feed::start(Jobs::new(jobs, prefix.clone()), interval));
    let shards = match (table, arguments.of_shards()) {
        (Some(table), Some(of)) => Some(Feed::start(Shards::new(table, of), interval)),
        _ => None,
    };
    let streams = Arc::new(Semaphore::new(STREAMS));
    let changes = TaskTracker::new();
    Ok(Site { store, control, leases, jobs, shards, prefix, interval, streams, changes, token })
}

/// Most stores answer or fail sooner.
const LONGEST_CHANGE: Duration = Duration::from_secs(10);
