//! What a run came to in progress, as Markdown.

use std::fmt::Write;
use std::time::Duration;

use crate::counted::GAP;
use crate::probe::{KEPT_TTL, PAUSE};
use crate::progress::{BOUND, Breach, FaultRow, LEAST_SHARE, Progress};
use crate::stamp::Stamp;

/// The section on progress.
pub(crate) fn report(progress: &Progress, began: Stamp) -> String {
    let mut text = String::new();
    // Writing to a text does not fail.
    let _ = write_report(&mut text, progress, began);
    text
}

fn write_report(text: &mut String, progress: &Progress, began: Stamp) -> std::fmt::Result {
    let share = progress.least_counted.map(|share| format!("{:.0} %", share * 100.0));
    writeln!(
        text,
        "## Progress\n\n\
         Faults are made one at a time. Probe processes obtain free keys, wait for free keys, and\n\
         keep one lease of {KEPT_TTL:?} on each shard; another probe starts during each fault.\n\n\
         - A free key is granted within {BOUND:?} of the moment at which the judge's own plain\n\
           connection reaches the shard's master.\n\
         - A lease is kept unless its own master is hurt.\n\
         - With a hung minority of a quorum, contenders are granted at least {:.0} % of the healthy\n\
           rate: the median of all times in which it hung, each beside the times before and after.\n\
         - With `maxmemory` reached, leases are kept, an attempt names `maxmemory`, and the bound\n\
           for a grant counts from the moment at which memory is freed.\n\n\
         **What counts as time.** The judge writes to each shard every {PAUSE:?} over a plain\n\
         connection, and a thread of each probe reports as often that it runs; all by\n\
         `CLOCK_MONOTONIC`. A gap of more than {GAP:?} in either is time in which the machine or\n\
         the store stood still: it counts against nobody. In this run {} of the time counts, on\n\
         the shard with the least. A lease that is lost counts as a breach if half of its ttl\n\
         before counts.\n",
        LEAST_SHARE * 100.0,
        share.unwrap_or_else(|| "none".to_owned()),
    )?;
    writeln!(
        text,
        "| fault | times | longest without a grant | … that counts | longest until the plain \
         connection reached a promoted master | longest until a new process is granted, counted \
         | leases lost on the shard that was hit |\n|---|--:|--:|--:|--:|--:|--:|"
    )?;
    for (fault, row) in &progress.faults {
        write_row(text, fault.name(), row)?;
    }
    writeln!(text)?;
    write_rates(text, progress)?;
    writeln!(text, "### Breaches of progress\n")?;
    if progress.breaches.is_empty() {
        return writeln!(text, "None.");
    }
    for breach in progress.breaches.iter().take(MOST_BREACHES) {
        write_breach(text, breach, began)?;
    }
    let more = progress.breaches.len().saturating_sub(MOST_BREACHES);
    if more > 0 {
        writeln!(text, "- … and {more} more")?;
    }
    Ok(())
}

fn write_row(text: &mut String, name: &str, row: &FaultRow) -> std::fmt::Result {
    let seconds = |length: Duration| format!("{:.2} s", length.as_secs_f64());
    let optional = |length: Option<Duration>| length.map_or_else(String::new, seconds);
    writeln!(
        text,
        "| {name} | {} | {} | {} | {} | {} | {} |",
        row.count,
        seconds(row.longest),
        seconds(row.longest_counted),
        optional(row.promoted),
        optional(row.newcomer),
        row.lost_where_hit,
    )
}

fn write_rates(text: &mut String, progress: &Progress) -> std::fmt::Result {
    if progress.ratios.is_empty() {
        return Ok(());
    }
    writeln!(text, "| grants a second, healthy | with a hung minority | share |\n|--:|--:|--:|")?;
    for ratio in &progress.ratios {
        writeln!(text, "| {:.1} | {:.1} | {:.2} |", ratio.healthy, ratio.hung, ratio.share())?;
    }
    writeln!(text)
}

fn write_breach(text: &mut String, breach: &Breach, began: Stamp) -> std::fmt::Result {
    let at = |moment: Stamp| moment.since(began).as_secs_f64();
    let (from, until) = (at(breach.from), at(breach.until));
    writeln!(text, "- {from:.3} s to {until:.3} s: {}: {}", breach.rule, breach.what)
}

/// The breaches that are shown: where a store makes no progress at all, there are hundreds.
const MOST_BREACHES: usize = 40;
