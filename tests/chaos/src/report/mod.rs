//! The report of a run, as Markdown.
//!
//! This file writes the safety part. [`progress`] writes the progress section, [`load`] the section of
//! a load, and [`command`] the command line.

pub(crate) mod command;
pub(crate) mod load;
pub(crate) mod progress;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use lease_core::store::micros_since_1970;
use lease_test_servers::etcd::EtcdServer;
use lease_test_servers::postgres::PostgresServer;
use lease_test_servers::redis::VALKEY;
use lease_test_servers::tools::find;

use crate::judge::ledger::{Effect, Ledger};
use crate::judge::safety::{Finding, Verdict};
use crate::monotonic::Monotonic;
use crate::setup::{Faults, Setup};
use crate::store::{Clocks, Store};

pub(crate) fn summary(ledger: &Ledger, verdict: &Verdict) -> String {
    format!(
        "{} leases, {} hand-offs, {} waits judged by order, {} faults, {} late writes refused, \
         {} documented overlaps, {} violations",
        ledger.grants.len(),
        ledger.handoffs(),
        verdict.ordered,
        ledger.faults.len(),
        ledger.writes.iter().filter(|write| !write.accepted).count(),
        verdict.admitted.len(),
        verdict.violations.len(),
    )
}

pub(crate) fn report(setup: &Setup, command: &str, ledger: &Ledger, verdict: &Verdict) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_report(&mut text, setup, command, ledger, verdict);
    text
}

fn write_report(
    text: &mut String,
    setup: &Setup,
    command: &str,
    ledger: &Ledger,
    verdict: &Verdict,
) -> std::fmt::Result {
    writeln!(text, "# Chaos on {}\n", setup.store)?;
    writeln!(text, "```sh\n{command}\n```\n")?;
    writeln!(
        text,
        "{}, seed {}, {} of faults, on {};\n{}.\n",
        today(),
        setup.seed,
        minutes(setup.length),
        machine(),
        versions(setup),
    )?;
    writeln!(
        text,
        "{} worker processes shared {} keys with a ttl of {:?}. Each key guards a counter behind a\n\
         gate that refuses old tokens. The holder of a key counts, and ends its lease in one of\n\
         these ways: it releases, drops, hands over or abandons the lease, releases it before its\n\
         last write, crashes, or blocks its thread. Meanwhile the faults of the second table are\n\
         injected. The table shows whether the store's documentation allows two holders after each fault.\n",
        setup.workers, setup.counters, setup.ttl,
    )?;
    writeln!(text, "**{}.**\n", summary(ledger, verdict))?;
    write_operations(text, ledger, verdict)?;
    write_faults(text, ledger)?;
    writeln!(text, "## Violations\n")?;
    writeln!(
        text,
        "Two leases on one key that are held at once; a token that repeats or decreases; an\n\
         accepted write with an old token; an accepted count that overwrote another count; a queued waiter\n\
         that a later claim overtakes, without a fault or an expiry that excuses it; a key that no\n\
         worker obtains after the last fault.\n",
    )?;
    write_findings(text, ledger, &verdict.violations, MOST_VIOLATIONS, LONG_BEFORE)?;
    writeln!(text, "## Overlaps and tokens that the failure table admits\n")?;
    writeln!(
        text,
        "A key may be held twice from such a fault until a ttl later. These windows are\n\
         {:.0} % of the run.\n",
        wild_share(ledger, setup) * 100.0,
    )?;
    write_findings(text, ledger, &verdict.admitted, TIMELINES, AROUND)
}

fn write_operations(text: &mut String, ledger: &Ledger, verdict: &Verdict) -> std::fmt::Result {
    let accepted = ledger.writes.iter().filter(|write| write.accepted).count();
    let refused = ledger.writes.len() - accepted;
    let held = |grant: &&crate::judge::ledger::Grant| grant.held_from.is_some();
    let mut rows: BTreeMap<String, u64> = ledger.tallies.clone();
    let mut row = |name: &str, count: usize| {
        rows.insert(name.to_owned(), u64::try_from(count).unwrap_or(u64::MAX));
    };
    row("leases obtained", ledger.grants.iter().filter(held).count());
    row(
        "leases that had expired when they were obtained",
        ledger.grants.iter().filter(|grant| !held(grant)).count(),
    );
    row("changes of the holder to another process", ledger.handoffs());
    row("places in a queue", ledger.waits.len());
    row("pairs of waiters whose order was judged", verdict.ordered);
    row("pairs in another order, after a fault or an expiry", verdict.overtaken);
    row("writes accepted", accepted);
    row("writes refused by the gate", refused);
    writeln!(text, "## Operations\n\n| operation | count |\n|---|--:|")?;
    for (what, count) in rows {
        writeln!(text, "| {what} | {count} |")?;
    }
    writeln!(text)
}

fn write_faults(text: &mut String, ledger: &Ledger) -> std::fmt::Result {
    let mut faults: BTreeMap<(bool, &str), u64> = BTreeMap::new();
    for fault in &ledger.faults {
        *faults.entry((fault.kind != Effect::Exclusive, fault.name)).or_default() += 1;
    }
    writeln!(text, "## Faults\n\n| fault | may a key be held twice? | count |\n|---|---|--:|")?;
    for ((wild, name), count) in faults {
        let wild = if wild { "for a ttl" } else { "no" };
        writeln!(text, "| {name} | {wild} | {count} |")?;
    }
    writeln!(text)
}

fn write_findings(
    text: &mut String,
    ledger: &Ledger,
    findings: &[Finding],
    timelines: usize,
    around: Duration,
) -> std::fmt::Result {
    if findings.is_empty() {
        return writeln!(text, "None.\n");
    }
    for finding in findings {
        let at = finding.from.since(ledger.began).as_secs_f64();
        writeln!(
            text,
            "- {at:.3} s, counter {}: {}: {}",
            finding.counter, finding.rule, finding.what
        )?;
    }
    writeln!(text)?;
    for finding in findings.iter().take(timelines) {
        writeln!(text, "{}, counter {}:\n\n```text", finding.rule, finding.counter)?;
        for (at, what) in timeline(ledger, finding, around) {
            let at = at.since(ledger.began).as_secs_f64();
            writeln!(text, "{at:10.3} s  {what}")?;
        }
        writeln!(text, "```\n")?;
    }
    Ok(())
}

fn timeline(ledger: &Ledger, finding: &Finding, around: Duration) -> Vec<(Monotonic, String)> {
    let near = finding.from - around..finding.until + AROUND;
    let mut lines = Vec::new();
    for grant in ledger.grants.iter().filter(|grant| grant.counter == finding.counter) {
        let name = format!("token {} ({})", grant.token, grant.incarnation);
        let mut line = |at: Option<Monotonic>, what: &str| {
            lines
                .extend(at.filter(|at| near.contains(at)).map(|at| (at, format!("{name} {what}"))));
        };
        line(Some(grant.asked), "asked for");
        line(grant.held_from, &format!("held, by {}", grant.by));
        line(grant.held_until, "last reported held");
        if let Some((at, how)) = &grant.ended {
            line(Some(*at), how);
        }
    }
    let faults =
        ledger.faults.iter().filter(|fault| fault.from < near.end && near.start < fault.until);
    for fault in faults {
        let length = fault.until.since(fault.from);
        let length = if length.is_zero() {
            String::new()
        } else {
            format!(", for {:.3} s", length.as_secs_f64())
        };
        lines.push((fault.from, format!("FAULT {}: {}{length}", fault.name, fault.to)));
    }
    for write in ledger.writes.iter().filter(|write| {
        write.counter == finding.counter
            && near.contains(&write.at)
            && (!write.accepted || write.read.is_none())
    }) {
        let what = if write.accepted { "opens the counter" } else { "REFUSED by the gate" };
        lines.push((write.at, format!("token {} ({}) {what}", write.token, write.incarnation)));
    }
    // A blocked thread stops the whole process, so the blocked threads of all keys are added.
    for grant in ledger.grants.iter().filter(|grant| grant.counter != finding.counter) {
        if let Some((at, how)) = grant.ended.as_ref().filter(|(at, _)| near.contains(at))
            && how.starts_with("blocked")
        {
            lines.push((*at, format!("{} {how}", grant.incarnation)));
        }
    }
    lines.sort();
    lines
}

fn wild_share(ledger: &Ledger, setup: &Setup) -> f64 {
    let mut windows: Vec<_> = ledger
        .faults
        .iter()
        .filter_map(|fault| match fault.kind {
            Effect::Exclusive => None,
            Effect::MayOverlap { until } => Some((fault.from, until)),
        })
        .collect();
    windows.sort();
    let last = ledger.faults.iter().map(|fault| fault.until.since(ledger.began)).max();
    let length = setup.length.max(last.unwrap_or_default());
    let (mut covered, mut end) = (Duration::ZERO, ledger.began);
    for (from, until) in windows {
        covered += until.since(from.max(end));
        end = end.max(until);
    }
    covered.as_secs_f64() / length.as_secs_f64().max(1.0)
}

fn today() -> String {
    let seconds = i64::try_from(micros_since_1970() / 1_000_000).unwrap_or(0);
    let date = DateTime::from_secs(seconds).fmt(DateTimeFormat::DateTime).unwrap_or_default();
    date.split('T').next().unwrap_or_default().to_owned()
}

fn minutes(length: Duration) -> String {
    format!("{} minutes", length.as_secs_f64() / 60.0)
}

fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let about = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = about.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    format!(
        "{processors} virtual cores, {}",
        system.unwrap_or("an unknown system").trim_matches('"')
    )
}

fn versions(setup: &Setup) -> String {
    let server = match setup.store {
        Store::Dynamodb => "dynoxide 3.2.0, a DynamoDB on SQLite".to_owned(),
        Store::Postgres => PostgresServer::version(),
        Store::Etcd => EtcdServer::version(),
        Store::Sqlite => format!("SQLite {}", rusqlite::version()),
        _ if setup.faults == Faults::Single && setup.clocks == Clocks::InStep => {
            format!("Redis {}", version_of("redis-server".into()))
        }
        _ => {
            let program = find("valkey-server", &VALKEY).unwrap_or_default();
            format!("Valkey {}", version_of(program))
        }
    };
    format!("{server}; this library {}", env!("CARGO_PKG_VERSION"))
}

fn version_of(program: PathBuf) -> String {
    let output = std::process::Command::new(program).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
    version.unwrap_or("of an unknown version").to_owned()
}

const AROUND: Duration = Duration::from_millis(700);

const LONG_BEFORE: Duration = Duration::from_secs(4);

/// A broken store has hundreds of violations.
const MOST_VIOLATIONS: usize = 20;

const TIMELINES: usize = 3;
