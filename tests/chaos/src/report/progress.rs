//! The progress section of the report.

use std::fmt::Write;
use std::time::Duration;

use crate::judge::counted::GAP;
use crate::judge::progress::{BOUND, Breach, FaultRow, LEAST_SHARE, Progress};
use crate::monotonic::Monotonic;
use crate::probe::{KEPT_TTL, PAUSE};

pub(crate) fn report(progress: &Progress, began: Monotonic) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_report(&mut text, progress, began);
    text
}

fn write_report(text: &mut String, progress: &Progress, began: Monotonic) -> std::fmt::Result {
    let share = progress.least_counted.map(|share| format!("{:.0} %", share * 100.0));
    writeln!(
        text,
        "## Progress\n\n\
         Faults are made one at a time. Probe processes obtain free keys, wait for free keys, and\n\
         keep one lease of {KEPT_TTL:?} on each shard; another probe starts during each fault.\n\n\
         - A free key is granted within {BOUND:?} of the moment at which the judge's own plain\n\
           connection reaches the shard's master.\n\
         - A lease is kept unless the fault affects its own master.\n\
         - With a hung minority of a quorum, keys are granted at {:.0} % of the healthy rate or more:\n\
           the median of all hung times, each compared with the times before and after it.\n\
         - With `maxmemory` reached, leases are kept, an attempt names `maxmemory`, and the bound for\n\
           a grant counts from the moment at which memory is freed.\n\n\
         **What counts as time.** The judge writes to each shard every {PAUSE:?} over a plain\n\
         connection, and a thread of each probe reports at the same rate that it runs. All times\n\
         are of `CLOCK_MONOTONIC`. During a gap of more than {GAP:?} in either, the machine or the\n\
         store stood still, and the time does not count. In this run {} of the time counts, on the\n\
         shard with the smallest share. A lost lease is a breach if half of the ttl before it\n\
         counts.\n",
        LEAST_SHARE * 100.0,
        share.unwrap_or_else(|| "none".to_owned()),
    )?;
    writeln!(
        text,
        "| fault | count | longest time without a grant | the same, counted | longest time until the \
         plain connection reached a promoted master | longest time until a new process was granted \
         a key, counted | leases lost on the affected shard |\n|---|--:|--:|--:|--:|--:|--:|"
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
    writeln!(text, "| grants per second, healthy | with a hung minority | share |\n|--:|--:|--:|")?;
    for ratio in &progress.ratios {
        writeln!(text, "| {:.1} | {:.1} | {:.2} |", ratio.healthy, ratio.hung, ratio.share())?;
    }
    writeln!(text)
}

fn write_breach(text: &mut String, breach: &Breach, began: Monotonic) -> std::fmt::Result {
    let at = |moment: Monotonic| moment.since(began).as_secs_f64();
    let (from, until) = (at(breach.from), at(breach.until));
    writeln!(text, "- {from:.3} s to {until:.3} s: {}: {}", breach.rule, breach.what)
}

/// A store without any progress has hundreds of breaches.
const MOST_BREACHES: usize = 40;
