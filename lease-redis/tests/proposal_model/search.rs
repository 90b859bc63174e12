//! Searches all states breadth first, so that the first path to a violation is a shortest path.
//!
//! The model checker `stateright` uses symmetry only in a depth-first search, whose paths are not
//! the shortest.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use crate::code::Code;
use crate::next::take_all;
use crate::setup::Setup;
use crate::state::State;
use crate::step::Step;
use crate::violation::Violation;

#[derive(Debug)]
pub(crate) struct Found<const N: usize> {
    pub(crate) states: usize,
    pub(crate) depth: usize,
    pub(crate) violation: Option<(Violation, Path<N>)>,
}

#[derive(Debug)]
pub(crate) struct Path<const N: usize> {
    first: State<N>,
    steps: Vec<(Step, State<N>)>,
}

/// The state before this state, and the index of the step.
struct Origin {
    parent: u32,
    turn: u16,
}

pub(crate) fn search<const N: usize>(setup: &Setup<N>, promises: &[Violation]) -> Found<N> {
    let orders = setup.orders();
    let mut seen = Seen::default();
    let mut origins: Vec<Origin> = Vec::new();
    let mut level: Vec<Code<N>> = Vec::new();
    let mut roots = Vec::new();
    for state in State::first_ones(setup) {
        let code = Code::of(&state, &orders);
        if seen.insert(code.fingerprint()) {
            roots.push(state);
            level.push(code);
            origins.push(Origin { parent: u32::MAX, turn: 0 });
        }
    }
    let (mut depth, mut taken) = (0, Vec::new());
    while !level.is_empty() {
        let start = origins.len() - level.len();
        let mut next = Vec::new();
        for (place, code) in level.iter().enumerate() {
            let parent = u32::try_from(start + place).unwrap();
            take_all(setup, code.state(), &mut taken);
            for (turn, taken) in (0..).zip(&taken) {
                if let Some(violation) = taken.violation
                    && promises.contains(&violation)
                {
                    let way = retrace(setup, &roots, &origins, start + place, violation);
                    let states = origins.len();
                    return Found { states, depth, violation: Some((violation, way)) };
                }
                let code = Code::of(&taken.state, &orders);
                if seen.insert(code.fingerprint()) {
                    next.push(code);
                    origins.push(Origin { parent, turn });
                }
            }
        }
        level = next;
        depth += 1;
    }
    Found { states: origins.len(), depth, violation: None }
}

fn retrace<const N: usize>(
    setup: &Setup<N>,
    roots: &[State<N>],
    origins: &[Origin],
    last: usize,
    violation: Violation,
) -> Path<N> {
    let orders = setup.orders();
    let mut turns = Vec::new();
    let mut place = last;
    while let Some(Origin { parent, turn }) =
        origins.get(place).filter(|origin| origin.parent != u32::MAX)
    {
        turns.push(usize::from(*turn));
        place = usize::try_from(*parent).unwrap();
    }
    let first = roots[place];
    let (mut code, mut state) = (Code::of(&first, &orders), first);
    let (mut steps, mut taken) = (Vec::new(), Vec::new());
    for turn in turns.into_iter().rev() {
        take_all(setup, code.state(), &mut taken);
        code = Code::of(&taken[turn].state, &orders);
        take_all(setup, state, &mut taken);
        let same = taken.iter().find(|taken| Code::of(&taken.state, &orders) == code).unwrap();
        state = same.state;
        steps.push((same.step, state));
    }
    take_all(setup, state, &mut taken);
    let end = taken.iter().find(|taken| taken.violation == Some(violation)).unwrap();
    steps.push((end.step, end.state));
    Path { first, steps }
}

impl<const N: usize> fmt::Display for Found<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.violation {
            None => write!(f, "{} states, {} steps deep, all sound", self.states, self.depth),
            Some((violation, way)) => {
                write!(f, "{violation:?} after {} states:\n{way}", self.states)
            }
        }
    }
}

impl<const N: usize> fmt::Display for Path<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    {:44}{}", "first state", self.first)?;
        for (number, (step, state)) in (1..).zip(&self.steps) {
            writeln!(f, "{number:3} {:44}{state}", step.to_string())?;
        }
        Ok(())
    }
}

/// A fingerprint is a hash already.
type Seen = HashSet<u64, BuildHasherDefault<Identity>>;

#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only fingerprints are hashed");
    }

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }
}
