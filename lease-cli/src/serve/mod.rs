//! `lease serve`: a page for operators, with leases, jobs, shards and switches as they change.
//!
//! Start with [`serve`]. [`routes`] has the paths, and [`site`] what their handlers share. [`guard`] refuses requests
//! of other sites, [`token`] those without the token. [`feed`] reads the store while a browser looks, and [`events`]
//! sends what has changed. [`views`] reads leases, jobs, shards and switches, as [`rows`]. [`changes`] has what a
//! browser may change, and [`operator`] who changes it and why. [`connections`] limits what clients use. [`files`] and
//! the folder `page` are what a browser loads.

mod changes;
mod connections;
mod events;
mod feed;
mod files;
mod guard;
mod operator;
mod routes;
mod rows;
mod site;
mod token;
mod views;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lease_core::store::LeaseTable;
use lease_core::{LeaseKey, LeaseOptions, Locker, TableSwitch};
use lease_scheduler::JobControl;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::select;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use self::feed::Feed;
use self::guard::OwnHosts;
use self::site::{STREAMS, Site};
use self::token::Token;
use self::views::jobs::Jobs;
use self::views::leases::Leases;
use self::views::shards::Shards;
use self::views::switches::Switches;
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
        () = connections::serve(listener, routes::router(site, hosts)) => Ok(Exit::SUCCESS),
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
    let ServeArguments { prefix, interval, switches, .. } = &arguments;
    let (prefix, interval) = (prefix.clone(), *interval);
    refuse_other_switches(switches, &prefix)?;
    let leases = Feed::start(Leases::new(store.clone(), prefix.clone()), interval);
    // A store without records has neither jobs nor shards nor switches.
    let table = store.table();
    let switches = table.clone().map(|table| switches_of(switches, &locker, &table));
    let switches = Arc::new(switches.unwrap_or_default());
    let switch_rows =
        (!switches.is_empty()).then(|| Feed::start(Switches::new(Arc::clone(&switches)), interval));
    let control = table.clone().map(|table| JobControl::new(&locker, table));
    let jobs = control.clone().map(|jobs| Feed::start(Jobs::new(jobs, prefix.clone()), interval));
    let shards = match (table, arguments.of_shards()) {
        (Some(table), Some(of)) => Some(Feed::start(Shards::new(table, of), interval)),
        _ => None,
    };
    let streams = Arc::new(Semaphore::new(STREAMS));
    let changes = TaskTracker::new();
    Ok(Site {
        store,
        control,
        switches,
        leases,
        jobs,
        shards,
        switch_rows,
        prefix,
        interval,
        streams,
        changes,
        token: token.map(Arc::new),
    })
}

/// `prefix` limits the page to some keys, also for switches.
fn refuse_other_switches(switches: &[LeaseKey], prefix: &str) -> Result<(), Failure> {
    let Some(other) = switches.iter().find(|key| !key.as_str().starts_with(prefix)) else {
        return Ok(());
    };
    let text = format!("the switch {other} does not start with {prefix}");
    Err(Failure::new(Exit::CONFIGURATION, text))
}

fn switches_of(
    keys: &[LeaseKey],
    locker: &Locker,
    table: &Arc<dyn LeaseTable>,
) -> BTreeMap<String, TableSwitch> {
    let switch = |key: &LeaseKey| TableSwitch::new(key.clone(), locker, Arc::clone(table));
    keys.iter().map(|key| (key.as_str().to_owned(), switch(key))).collect()
}

/// Most stores answer or fail sooner.
const LONGEST_CHANGE: Duration = Duration::from_secs(10);
