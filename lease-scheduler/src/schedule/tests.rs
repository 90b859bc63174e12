//! Tests of ticks around clock changes, and of searches that start at any time.

use jiff::civil::date;
use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Returns the ticks from `from` up to and including `to`.
fn ticks(schedule: &Schedule, from: &str, to: &str) -> Vec<Timestamp> {
    let (before, to) = (at(from) - SignedDuration::from_nanos(1), at(to));
    let later = |tick: &Timestamp| schedule.next(*tick);
    std::iter::successors(schedule.next(before), later).take_while(|tick| *tick <= to).collect()
}

/// Returns the ticks in local time.
fn seen(schedule: &Schedule, from: &str, to: &str) -> Vec<String> {
    let zone = TimeZone::get("Europe/Berlin").unwrap();
    let there = |tick: Timestamp| tick.to_zoned(zone.clone()).strftime("%d %H:%M %Z").to_string();
    ticks(schedule, from, to).into_iter().map(there).collect()
}

fn berlin(expression: &str) -> Schedule {
    Schedule::cron(expression, "Europe/Berlin").unwrap()
}

#[test]
fn unreadable_expression_is_rejected_with_its_text() {
    let refused = |result: Result<Schedule, InvalidInput>| result.unwrap_err().to_string();

    let text = refused(Schedule::cron("every day at noon", "UTC"));
    assert!(text.starts_with("cron expression \"every day at noon\" cannot be read: "), "{text}");
    let text = refused(Schedule::cron("61 * * * *", "UTC"));
    assert!(text.contains("61 * * * *"), "{text}");
    let text = refused(Schedule::cron("", "UTC"));
    assert!(text.contains("\"\""), "{text}");
    let text = refused(Schedule::cron("0 3 * * *", "Europe/Atlantis"));
    assert!(text.contains("Europe/Atlantis"), "{text}");
    assert_eq!(
        refused(Schedule::cron("0 0 30 2 *", "UTC")),
        "cron expression \"0 0 30 2 *\" has no time since 1970: no such day",
    );
}

#[test]
fn interval_of_zero_is_rejected() {
    let refused = |result: Result<Schedule, InvalidInput>| result.unwrap_err().to_string();

    assert_eq!(
        refused(Schedule::every(Duration::ZERO)),
        "interval 0ns is out of range: a millisecond to a thousand years",
    );
    let second = Duration::from_secs(1);
    assert_eq!(
        refused(Schedule::every_with_jitter(second, second)),
        "jitter 1s is out of range: it must be shorter than the interval, 1s",
    );
    assert!(Schedule::every(Duration::MAX).is_err());
}

#[test]
fn nightly_job_runs_once_if_its_hour_is_skipped() {
    // At 2:00 on 29 March, clocks are set forward to 3:00.
    let nights = seen(&berlin("30 2 * * *"), "2026-03-28T00:00:00Z", "2026-03-30T12:00:00Z");

    assert_eq!(nights, ["28 02:30 CET", "29 03:00 CEST", "30 02:30 CEST"]);
}

#[test]
fn nightly_job_runs_once_if_its_hour_is_repeated() {
    // At 3:00 on 25 October, clocks are set back to 2:00.
    let nights = seen(&berlin("30 2 * * *"), "2026-10-24T00:00:00Z", "2026-10-26T12:00:00Z");

    assert_eq!(nights, ["24 02:30 CEST", "25 02:30 CEST", "26 02:30 CET"]);
}

#[test]
fn half_hourly_job_runs_each_half_hour_through_clock_changes() {
    let spring = seen(&berlin("*/30 * * * *"), "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z");
    assert_eq!(spring, ["29 01:30 CET", "29 03:00 CEST", "29 03:30 CEST"]);

    let autumn = seen(&berlin("*/30 * * * *"), "2026-10-25T00:00:00Z", "2026-10-25T01:30:00Z");
    assert_eq!(autumn, ["25 02:00 CEST", "25 02:30 CEST", "25 02:00 CET", "25 02:30 CET"]);
}

#[test]
fn listed_times_run_once_if_their_hour_is_skipped() {
    let spring =
        |expression| seen(&berlin(expression), "2026-03-28T23:00:00Z", "2026-03-29T21:00:00Z");

    assert_eq!(spring("0 2,14 * * *"), ["29 03:00 CEST", "29 14:00 CEST"]);
    assert_eq!(spring("0,30 2 * * *"), ["29 03:00 CEST"], "both times share the end of the gap");
    assert_eq!(spring("0,30 2-3 * * *"), ["29 03:00 CEST", "29 03:30 CEST"]);
    assert_eq!(spring("15-45/15 2 * * *"), ["29 03:00 CEST"]);
    assert_eq!(spring("30 5 2 * * *"), ["29 03:00 CEST"]);
}

#[test]
fn listed_times_run_once_if_their_hour_is_repeated() {
    let autumn =
        |expression| seen(&berlin(expression), "2026-10-24T22:00:00Z", "2026-10-25T22:00:00Z");

    assert_eq!(autumn("0 2,14 * * *"), ["25 02:00 CEST", "25 14:00 CET"]);
    assert_eq!(autumn("0,30 2 * * *"), ["25 02:00 CEST", "25 02:30 CEST"]);
    assert_eq!(autumn("0 1-3 * * *"), ["25 01:00 CEST", "25 02:00 CEST", "25 03:00 CET"]);
}

/// Steps of an asterisk follow the wall clock, as in Vixie's cron.
#[test]
fn stepped_asterisk_follows_the_wall_clock() {
    let spring = seen(&berlin("0 */2 * * *"), "2026-03-28T23:00:00Z", "2026-03-29T04:00:00Z");
    assert_eq!(spring, ["29 00:00 CET", "29 04:00 CEST", "29 06:00 CEST"]);

    let autumn = seen(&berlin("0 */2 * * *"), "2026-10-24T22:00:00Z", "2026-10-25T03:00:00Z");
    assert_eq!(autumn, ["25 00:00 CEST", "25 02:00 CEST", "25 02:00 CET", "25 04:00 CET"]);
}

/// In Greenland the clock goes from 22:59 on Saturday to midnight.
#[test]
fn time_in_a_gap_before_midnight_runs_at_midnight() {
    let schedule = Schedule::cron("30 23 * * SAT", "America/Scoresbysund").unwrap();

    let night = ticks(&schedule, "2026-03-27T00:00:00Z", "2026-03-31T00:00:00Z");

    assert_eq!(night, [at("2026-03-29T01:00:00Z")]);
}

/// Cron requires both fields for days if one contains an asterisk.
#[test]
fn stepped_days_and_weekdays_must_both_fit() {
    let days = |expression| {
        let schedule = Schedule::cron(expression, "UTC").unwrap();
        let ticks = ticks(&schedule, "2026-11-01T00:00:00Z", "2026-11-30T23:00:00Z");
        ticks.iter().map(|tick| tick.strftime("%-d").to_string()).collect::<Vec<_>>().join(" ")
    };

    assert_eq!(days("0 0 */2 * MON"), "9 23", "Mondays with an odd date");
    assert_eq!(days("0 0 1 * */3"), "1", "the first, if it is a Sunday, Wednesday or Saturday");
    assert_eq!(days("0 0 1 * MON"), "1 2 9 16 23 30", "the first, and Mondays");
    assert_eq!(days("0 0 * * MON"), "2 9 16 23 30");
}

#[test]
fn skipped_calendar_day_has_no_tick_and_ends_no_schedule() {
    // Samoa went from 29 December 2011 to the 31st.
    let nightly = Schedule::cron("30 2 * * *", "Pacific/Apia").unwrap();
    let zone = TimeZone::get("Pacific/Apia").unwrap();
    let nights: Vec<_> = ticks(&nightly, "2011-12-28T22:00:00Z", "2012-01-01T10:00:00Z")
        .into_iter()
        .map(|tick| tick.to_zoned(zone.clone()).strftime("%d %H:%M").to_string())
        .collect();

    assert_eq!(nights, ["29 02:30", "31 02:30", "01 02:30"]);
    // A time less than three hours before the end of the gap has no tick either.
    let late = Schedule::cron("30 22,23 30 12 *", "Pacific/Apia").unwrap();
    assert_eq!(ticks(&late, "2011-12-01T00:00:00Z", "2012-11-30T00:00:00Z"), []);
    // From each start before, in and after the gap, the search finds a tick.
    for expression in ["* * * * *", "30 2 * * *", "*/15 * * * *", "0 */2 * * *", "0 0 30 12 *"] {
        let schedule = Schedule::cron(expression, "Pacific/Apia").unwrap();
        for hours in 0..72 {
            let from = at("2011-12-28T22:00:00Z") + SignedDuration::from_hours(hours);
            assert!(schedule.next(from).is_some(), "{expression} after {from}");
        }
    }
}

#[test]
fn seconds_years_names_and_last_days_are_parsed() {
    let first = |expression| berlin(expression).next(at("2026-11-21T00:00:00Z")).unwrap();

    assert_eq!(first("*/10 * * * * *"), at("2026-11-21T00:00:10Z"));
    assert_eq!(first("0 0 12 1 JAN * 2030"), at("2030-01-01T11:00:00Z"));
    assert_eq!(first("0 12 L * *"), at("2026-11-30T11:00:00Z"));
    assert_eq!(first("@daily"), at("2026-11-21T23:00:00Z"));
    assert_eq!(first("0 12 * * MON"), at("2026-11-23T11:00:00Z"));
    assert_eq!(
        Schedule::cron("0 0 0 1 1 * 2020", "UTC").unwrap().next(at("2026-01-01T00:00:00Z")),
        None
    );
}

#[test]
fn once_has_one_tick_and_on_demand_has_none() {
    let moment = at("2026-11-21T03:00:00Z");
    let once = Schedule::once(moment);

    assert_eq!(once.next(at("2026-11-21T02:59:59.999999999Z")), Some(moment));
    assert_eq!(once.next(moment), None);
    assert_eq!(Schedule::on_demand().next(moment), None);
}

#[test]
fn jitter_depends_on_job_and_not_on_process() {
    let minute = Duration::from_secs(60);
    let schedule = Schedule::every_with_jitter(minute, minute / 2).unwrap();
    let of = |name: &str| schedule.clone().for_job(&name.parse().unwrap());
    let an_hour = |name| ticks(&of(name), "2026-11-21T00:00:00Z", "2026-11-21T01:00:00Z");
    let late = |tick: &Timestamp| tick.as_millisecond().rem_euclid(60_000);

    assert_eq!(an_hour("a"), an_hour("a"));
    assert_ne!(an_hour("a"), an_hour("b"));
    // All versions of this crate must return the same ticks, so the test pins these figures.
    assert_eq!(an_hour("a").iter().map(late).take(3).collect::<Vec<_>>(), [29_883, 16_014, 20_791]);
    let lates: Vec<_> = an_hour("a").iter().map(late).collect();
    assert_eq!(lates.len(), 60);
    assert!(lates.iter().all(|late| (0..30_000).contains(late)), "{lates:?}");
    assert!(lates.iter().max() > Some(&25_000) && lates.iter().min() < Some(&5_000), "{lates:?}");
}

#[test]
fn tick_is_due_until_it_is_run_or_missed() {
    let hourly = Schedule::every(Duration::from_secs(3600)).unwrap();
    let eleven = at("2026-11-21T11:00:00Z");
    let due = |now: &str, missed| hourly.due(eleven, at(now), missed);
    let skip = Misfire::StartWithin(Duration::from_secs(60));

    assert_eq!(due("2026-11-21T11:59:59.9Z", skip), None);
    assert_eq!(due("2026-11-21T12:00:00Z", skip), Some(at("2026-11-21T12:00:00Z")));
    assert_eq!(due("2026-11-21T12:00:59Z", skip), Some(at("2026-11-21T12:00:00Z")));
    assert_eq!(due("2026-11-21T12:01:00Z", skip), None);
    assert_eq!(due("2026-11-21T12:30:00Z", Misfire::CatchUpOnce), Some(at("2026-11-21T12:00:00Z")));
    // The last of several missed ticks is due. A tick that has run is not due again, even if the clock is
    // set back.
    assert_eq!(due("2026-11-21T15:10:00Z", Misfire::CatchUpOnce), Some(at("2026-11-21T15:00:00Z")));
    assert_eq!(due("2026-11-21T09:00:00Z", Misfire::CatchUpOnce), None);
}

#[test]
fn last_missed_tick_of_a_hundred_years_is_found_fast() {
    let each_second = Schedule::cron("* * * * * *", "UTC").unwrap();
    let rarely = Schedule::cron("* * * 1 1 *", "UTC").unwrap();
    let (then, now) = (at("1970-01-01T00:00:00Z"), at("2070-07-01T12:00:00.5Z"));

    assert_eq!(each_second.latest(then, now), Some(at("2070-07-01T12:00:00Z")));
    assert_eq!(rarely.latest(then, now), Some(at("2070-01-01T23:59:59Z")));
}

#[test]
fn schedule_with_an_end_has_a_last_tick() {
    let last = |expression| match Schedule::cron(expression, "Europe/Berlin").unwrap().0 {
        When::Cron { last, .. } => last,
        _ => Timestamp::MIN,
    };

    assert_eq!(last("0 0 12 1 * * 2001-2003"), at("2003-12-01T11:00:00Z"));
    assert_eq!(last("* * * * * * 1999"), at("1999-12-31T22:59:59Z"));
    assert_eq!(last("0 0 3 29 2 +MON"), Timestamp::MAX);
    assert_eq!(last("0 0 3 1 1 * 2001,4999"), Timestamp::MAX);
}

/// Generates times around clock changes, in zones that change by an hour, half an hour or a whole day. Also
/// generates any other times.
fn moments() -> impl Strategy<Value = Timestamp> {
    let nights = [(2026, 3, 29), (2026, 10, 25), (2026, 4, 5), (2026, 10, 4), (2011, 12, 30)];
    let night = proptest::sample::select(nights.to_vec()).prop_map(|(year, month, day)| {
        date(year, month, day).at(0, 0, 0, 0).in_tz("UTC").unwrap().timestamp()
    });
    let near = (night, -129_600_000_i64..129_600_000)
        .prop_map(|(night, millis)| night + SignedDuration::from_millis(millis));
    let any = (0_i64..4_000_000_000_000).prop_map(|ms| Timestamp::from_millisecond(ms).unwrap());
    prop_oneof![3 => near, 1 => any]
}

fn schedules() -> impl Strategy<Value = Schedule> {
    let expressions = [
        "* * * * *",
        "30 2 * * *",
        "*/15 * * * *",
        "0 */2 * * *",
        "0 0 * * *",
        "15,45 1-3 * * *",
        "*/7 * * * * *",
        "0 3 L * *",
        "59 23 * * SUN",
        "0 2 29 3 *",
        "0,30 2,3 * * *",
        "0 0-23 * * *",
    ];
    let zones = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "America/New_York"];
    let crons =
        (proptest::sample::select(expressions.to_vec()), proptest::sample::select(zones.to_vec()))
            .prop_map(|(expression, zone)| Schedule::cron(expression, zone).unwrap());
    let intervals = (1_u64..100_000_000, 0_u64..100).prop_map(|(millis, percent)| {
        let interval = Duration::from_millis(millis);
        let jitter = Duration::from_millis(millis * percent / 100);
        let schedule = Schedule::every_with_jitter(interval, jitter).unwrap();
        schedule.for_job(&"a job".parse().unwrap())
    });
    prop_oneof![3 => crons, 1 => intervals]
}

/// A search for an impossible date takes seconds.
#[test]
fn impossible_date_is_rejected_without_a_search() {
    let searches = || cron::SEARCHES.with(std::cell::Cell::get);

    for expression in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2 * 2027"] {
        Schedule::cron(expression, "UTC").unwrap_err();
    }
    assert_eq!(searches(), 0);

    Schedule::cron("0 0 29 2 *", "UTC").unwrap();
    assert!(searches() > 0, "a possible date is searched for");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// At each time between two ticks, the later tick is next. So all machines of a fleet agree on the ticks.
    #[test]
    fn next_tick_does_not_depend_on_the_start(
        schedule in schedules(), start in moments(), part in 0_i32..1000,
    ) {
        let Some(tick) = schedule.next(start) else { return Ok(()) };
        prop_assert!(tick > start);
        let Some(following) = schedule.next(tick) else { return Ok(()) };
        prop_assert!(following > tick);

        let between = tick + following.duration_since(tick) / 1000 * part;
        prop_assert_eq!(schedule.next(between), Some(following));
        prop_assert_eq!(schedule.next(tick - SignedDuration::from_nanos(1)), Some(tick));
        prop_assert_eq!(schedule.next(following - SignedDuration::from_nanos(1)), Some(following));
    }

    #[test]
    fn latest_tick_has_no_tick_after_it(
        schedule in schedules(), from in moments(), to in moments(),
    ) {
        let found = schedule.latest(from, to);

        match found {
            Some(tick) => {
                prop_assert!(from < tick && tick <= to);
                prop_assert!(schedule.next(tick).is_none_or(|next| next > to));
                prop_assert_eq!(schedule.next(tick - SignedDuration::from_nanos(1)), Some(tick));
            }
            None => prop_assert!(schedule.next(from).is_none_or(|next| next > to)),
        }
    }
}

#[test]
fn stored_text_is_read_back() {
    let second = Duration::from_secs(1);
    let schedules = [
        Schedule::cron("0 3 * * mon-fri", "Europe/Berlin").unwrap(),
        Schedule::cron("*/10 0 3 1 1 * 2030", "UTC").unwrap(),
        Schedule::every(Duration::from_millis(1500)).unwrap(),
        Schedule::every_with_jitter(second * 600, second * 7).unwrap(),
        Schedule::once("2026-11-21T03:00:00.5Z".parse().unwrap()),
        Schedule::on_demand(),
    ];
    for schedule in schedules {
        let text = schedule.stored_text();

        let read = Schedule::from_stored_text(&text).unwrap();

        assert_eq!(read.stored_text(), text);
        let from = "2026-11-20T12:00:00Z".parse().unwrap();
        assert_eq!(read.next(from), schedule.next(from), "{text}");
    }
    for wrong in ["", "daily", "every x ns, jitter 0 ns", "once at noon", "0 3 * * * in Nowhere"] {
        assert_eq!(Schedule::from_stored_text(wrong), None, "{wrong}");
    }
}
