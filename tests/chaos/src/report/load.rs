//! The section of a load in the report.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use lease_test_servers::sync::lock;

use crate::judge::ledger::Ledger;
use crate::judge::safety::Finding;
use crate::load::commands::Commands;
use crate::load::log::{Extent, LoadLog};
use crate::load::rate::{GRACE, LEAST_SHARE, LONGEST_SILENCE, Phase, phase_between};
use crate::load::run::LoadEnded;
use crate::load::safety::extent_of;
use crate::monotonic::Monotonic;

pub(crate) fn summary(load: &LoadEnded) -> String {
    let log = lock(&load.log);
    format!(
        "{} cycles, {} claims cancelled, {} load overlaps admitted, {} load violations, {} load breaches",
        log.cycles,
        log.tallies.get("claim cancelled").copied().unwrap_or_default(),
        load.verdict.admitted.len(),
        load.verdict.violations.len(),
        load.progress.breaches.len(),
    )
}

pub(crate) fn report(load: &LoadEnded, ledger: &Ledger) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_report(&mut text, load, ledger);
    text
}

fn write_report(text: &mut String, load: &LoadEnded, ledger: &Ledger) -> std::fmt::Result {
    let log = &*lock(&load.log);
    writeln!(
        text,
        "## Load\n\n\
         {} tasks in {} processes claimed {} keys. A task claims a random key, once or with a time\n\
         limit, or drops its claim at a random moment. It holds the key for up to 10 ms, and one\n\
         time in 200 for up to one and a half ttls. Then it releases, drops or abandons the lease.\n\
         The faults hit the processes of the load, too. More faults are a full memory, and keys\n\
         of another type: another program writes lists under the names of free keys.\n\n\
         **{}.**\n",
        log.load.tasks,
        log.load.processes(),
        log.load.keys,
        summary_of(load, log),
    )?;
    write_rates(text, load, log, ledger)?;
    if let Some(commands) = load.commands {
        write_commands(text, commands, load.progress.healthy)?;
    }
    writeln!(text, "| operation of the load | count |\n|---|--:|")?;
    for (what, count) in &log.tallies {
        writeln!(text, "| {what} | {count} |")?;
    }
    let on_some = log.wrong_types.iter();
    let on_some = on_some.filter(|failed| extent_of(log, failed) == Some(Extent::Some)).count();
    let failed = log.wrong_types.len() - on_some;
    writeln!(text, "| claim failed: the key has another type | {failed} |")?;
    writeln!(text, "| claim failed: the key had another type on some servers | {on_some} |")?;
    let count = |extent| log.spoiled.iter().filter(|spoiled| spoiled.extent == extent).count();
    writeln!(text, "| key got another type | {} |", count(Extent::All))?;
    writeln!(text, "| key got no other type: a server held it | {} |", count(Extent::Some))?;
    writeln!(text)?;
    write_findings(text, load, ledger.began)
}

fn summary_of(load: &LoadEnded, log: &LoadLog) -> String {
    format!(
        "{} cycles, {} violations, {} overlaps admitted, {} breaches of progress",
        log.cycles,
        load.verdict.violations.len(),
        load.verdict.admitted.len(),
        load.progress.breaches.len(),
    )
}

fn write_rates(
    text: &mut String,
    load: &LoadEnded,
    log: &LoadLog,
    ledger: &Ledger,
) -> std::fmt::Result {
    let progress = &load.progress;
    writeln!(text, "| time | seconds | cycles per second |\n|---|--:|--:|")?;
    let mut row = |name: &str, length: Duration, rate: f64| {
        writeln!(text, "| {name} | {:.1} | {rate:.0} |", length.as_secs_f64())
    };
    let phases = [
        ("before the faults", progress.healthy),
        ("during all faults", progress.faults),
        ("after the last repair", progress.after),
    ];
    for (name, phase) in phases {
        if let Some(phase) = phase {
            row(name, phase.until.since(phase.from), phase.rate())?;
        }
    }
    for (name, (length, cycles)) in by_fault(log, ledger) {
        // No run has 2^52 cycles.
        #[expect(clippy::cast_precision_loss, reason = "a rate is printed without digits")]
        let rate = cycles as f64 / length.as_secs_f64().max(0.001);
        row(&format!("during: {name}"), length, rate)?;
    }
    writeln!(
        text,
        "\nOther faults overlap with each. A fault without a length counts as one second. The store and\n\
         a process of the load could work for {:.1} s. The longest part of it without a cycle was\n\
         {:.2} s, and the bound is {LONGEST_SILENCE:?}. The {GRACE:?} after an outage do not count. After the\n\
         last repair, the load reaches {:.0} % of its rate before the faults.\n",
        progress.open.as_secs_f64(),
        progress.longest_silence.as_secs_f64(),
        LEAST_SHARE * 100.0,
    )
}

fn by_fault<'a>(log: &LoadLog, ledger: &'a Ledger) -> BTreeMap<&'a str, (Duration, u64)> {
    let mut rows: BTreeMap<&str, (Duration, u64)> = BTreeMap::new();
    for fault in &ledger.faults {
        let until = fault.until.max(fault.from + INSTANT);
        let phase = phase_between(log, fault.from, until);
        let (length, cycles) = rows.entry(fault.name).or_default();
        *length += until.since(fault.from);
        *cycles += phase.cycles;
    }
    rows
}

fn write_commands(
    text: &mut String,
    commands: Commands,
    healthy: Option<Phase>,
) -> std::fmt::Result {
    let Commands { set, exec, evalsha } = commands;
    let cycles = healthy.map_or(0, |phase| phase.cycles);
    writeln!(
        text,
        "From the start of the load to the first fault, server 1 executed {set} `SET`, {exec} `EXEC` and\n\
         {evalsha} `EVALSHA`. {cycles} cycles were in the measured part of this time. On one server, `SET`\n\
         per `EXEC` is the size of a batch of claims. A node of a quorum claims and releases in scripts, and\n\
         their `SET` counts, too.\n",
    )
}

fn write_findings(text: &mut String, load: &LoadEnded, began: Monotonic) -> std::fmt::Result {
    let verdict = &load.verdict;
    let lists = [
        ("Violations of the load", &verdict.violations, MOST_VIOLATIONS),
        ("Overlaps of the load that the failure table admits", &verdict.admitted, MOST_ADMITTED),
    ];
    for (title, findings, most) in lists {
        writeln!(text, "### {title}\n")?;
        write_list(text, findings, most, began)?;
    }
    writeln!(text, "### Breaches of progress of the load\n")?;
    if load.progress.breaches.is_empty() {
        return writeln!(text, "None.\n");
    }
    for breach in load.progress.breaches.iter().take(MOST_VIOLATIONS) {
        writeln!(text, "- {breach}")?;
    }
    writeln!(text)
}

fn write_list(
    text: &mut String,
    findings: &[Finding],
    most: usize,
    began: Monotonic,
) -> std::fmt::Result {
    if findings.is_empty() {
        return writeln!(text, "None.\n");
    }
    for finding in findings.iter().take(most) {
        let at = finding.from.since(began).as_secs_f64();
        let Finding { counter: key, rule, what, .. } = finding;
        writeln!(text, "- {at:.3} s, key {key} of the load: {rule}: {what}")?;
    }
    let more = findings.len().saturating_sub(most);
    if more > 0 {
        writeln!(text, "- … and {more} more")?;
    }
    writeln!(text)
}

/// The length that a fault without a length counts as.
const INSTANT: Duration = Duration::from_secs(1);

const MOST_VIOLATIONS: usize = 40;

const MOST_ADMITTED: usize = 10;
