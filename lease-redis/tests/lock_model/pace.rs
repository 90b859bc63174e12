//! Heartbeats with two different ttls, in ticks of one clock. The search finds when a heartbeat must write
//! its number. The server applies the heartbeats of one holder in any order, or never.

use std::fmt;

use lease_test_servers::search::{Model, Taken, fingerprint, search};

#[derive(Clone, Copy, Debug)]
struct Setup {
    beats: usize,
    writes: Writes,
    counts: Counts,
    expiry: Expiry,
    end: u8,
}

/// The server refuses a heartbeat if a later number is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Writes {
    Always,
    Never,
    /// A heartbeat with a shorter ttl than the heartbeat before it.
    WhenShorter,
    /// A heartbeat after a shorter heartbeat, until the client knows that a number was written
    /// since.
    AfterShorter,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counts {
    /// The client relies no longer than one ttl from the send of the last answered heartbeat, and of each
    /// later heartbeat.
    Unanswered,
    /// The client relies for one ttl from the send of the last answered heartbeat.
    Answered,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expiry {
    Set,
    /// A heartbeat sends PEXPIRE with GT, which never makes the expiry earlier.
    OnlyLater,
}

#[derive(Clone, Copy, Hash, Debug)]
struct State {
    now: u8,
    expires: u8,
    number: u8,
    sent: u8,
    /// Zero is the grant.
    answered: u8,
    /// The largest number that the client knows to be written.
    written: u8,
    beats: [Beat; MOST_BEATS + 1],
}

#[derive(Clone, Copy, Hash, Default, Debug)]
struct Beat {
    phase: Phase,
    at: u8,
    ttl: u8,
    writes: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
enum Phase {
    #[default]
    Nothing,
    Sent,
    Extended,
    Answered,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Violation {
    ExpiresWhileRelied,
}

#[derive(Debug)]
struct Step(&'static str, u8);

impl Model for Setup {
    type State = State;
    type Step = Step;
    type Violation = Violation;

    fn first_state(&self) -> State {
        let mut beats = [Beat::default(); MOST_BEATS + 1];
        beats[0] = Beat { phase: Phase::Answered, at: 0, ttl: LONG, writes: true };
        State { now: 0, expires: LONG, number: 0, sent: 0, answered: 0, written: 0, beats }
    }

    fn take_all(&self, state: &State, taken: &mut Vec<Taken<Self>>) {
        taken.clear();
        let mut then = |step, state: State| {
            let expired = state.now >= state.expires;
            let broken = expired && self.relied_until(&state) > state.now;
            let violation = broken.then_some(Violation::ExpiresWhileRelied);
            taken.push(Taken { step, state, violation });
        };
        if state.now < self.end {
            then(Step("one tick passes", 1), State { now: state.now + 1, ..*state });
        }
        let relied = self.relied_until(state) > state.now;
        if relied && usize::from(state.sent) < self.beats {
            for (name, ttl) in [("a short heartbeat is sent", SHORT), ("a long one is sent", LONG)]
            {
                then(Step(name, state.sent + 1), self.send(*state, ttl));
            }
        }
        for number in 1..=state.sent {
            match state.beats[usize::from(number)].phase {
                Phase::Sent => {
                    then(Step("a heartbeat arrives", number), self.arrive(*state, number));
                }
                Phase::Extended if relied => {
                    then(Step("its answer arrives", number), answer(*state, number));
                }
                _ => (),
            }
        }
    }

    fn fingerprint(&self, state: &State) -> u64 {
        fingerprint(state)
    }
}

impl Setup {
    fn of(writes: Writes) -> Self {
        Self { beats: 3, writes, counts: Counts::Unanswered, expiry: Expiry::Set, end: 8 }
    }

    fn relied_until(&self, state: &State) -> u8 {
        let beats = state.beats.iter().enumerate().skip(state.answered.into());
        let mut relied = u8::MAX;
        for (number, beat) in beats.take_while(|(_, beat)| beat.phase != Phase::Nothing) {
            if number == usize::from(state.answered) || self.counts == Counts::Unanswered {
                relied = relied.min(beat.at + beat.ttl);
            }
        }
        relied
    }

    fn send(&self, mut state: State, ttl: u8) -> State {
        let before = state.beats[usize::from(state.sent)];
        let since = &state.beats[usize::from(state.written)..=usize::from(state.sent)];
        let writes = match self.writes {
            Writes::Always => true,
            Writes::Never => false,
            Writes::WhenShorter => ttl < before.ttl,
            Writes::AfterShorter => since.iter().skip(1).any(|earlier| earlier.ttl < ttl),
        };
        state.sent += 1;
        state.beats[usize::from(state.sent)] =
            Beat { phase: Phase::Sent, at: state.now, ttl, writes };
        state
    }

    fn arrive(&self, mut state: State, number: u8) -> State {
        let beat = &mut state.beats[usize::from(number)];
        if number <= state.number || state.now >= state.expires {
            // The server refuses the heartbeat, so the client cannot count its answer.
            beat.phase = Phase::Answered;
            return state;
        }
        beat.phase = Phase::Extended;
        let later = state.now + beat.ttl;
        state.expires = match self.expiry {
            Expiry::Set => later,
            Expiry::OnlyLater => later.max(state.expires),
        };
        if beat.writes {
            state.number = number;
        }
        state
    }
}

fn answer(mut state: State, number: u8) -> State {
    let beat = &mut state.beats[usize::from(number)];
    beat.phase = Phase::Answered;
    if beat.writes {
        state.written = state.written.max(number);
    }
    state.answered = state.answered.max(number);
    state
}

#[test]
fn numbered_heartbeats_of_two_ttls_keep_the_key() {
    sound("all numbers", Setup::of(Writes::Always));
    sound("numbers after a shorter one", Setup::of(Writes::AfterShorter));
    let later = Setup { expiry: Expiry::OnlyLater, ..Setup::of(Writes::Never) };
    sound("PEXPIRE GT without numbers", later);
}

#[test]
fn unnumbered_heartbeat_expires_a_held_key() {
    broken("no numbers", Setup::of(Writes::Never));
    broken("numbers of shorter ones", Setup::of(Writes::WhenShorter));
}

#[test]
fn unanswered_shorter_heartbeat_expires_a_held_key() {
    broken("answers alone", Setup { counts: Counts::Answered, ..Setup::of(Writes::Always) });
}

#[test]
#[ignore = "minutes: the full size"]
fn full_size_of_two_ttls() {
    for writes in [Writes::Always, Writes::AfterShorter] {
        sound("four heartbeats", Setup { beats: 4, end: 12, ..Setup::of(writes) });
    }
    let later = Setup { expiry: Expiry::OnlyLater, ..Setup::of(Writes::Never) };
    sound("four heartbeats, PEXPIRE GT", Setup { beats: 4, end: 12, ..later });
}

#[track_caller]
fn sound(what: &str, setup: Setup) {
    let found = search(&setup, &[Violation::ExpiresWhileRelied]);

    println!("two ttls, {what}: {found}");
    assert!(found.violation.is_none(), "{what}: {found}");
}

#[track_caller]
fn broken(what: &str, setup: Setup) {
    let found = search(&setup, &[Violation::ExpiresWhileRelied]);

    println!("two ttls, {what}: {found}");
    assert!(found.violation.is_some(), "{what}: {found}");
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}, expires at {}", self.now, self.expires)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0, self.1)
    }
}

const MOST_BEATS: usize = 4;
const LONG: u8 = 4;
const SHORT: u8 = 2;
