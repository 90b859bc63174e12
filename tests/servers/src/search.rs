//! Searches all states of a model breadth first, so that a violation is found by a shortest path.
//!
//! The model checker `stateright` uses symmetry only in a depth-first search, whose paths are not
//! the shortest.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "indices are in range by construction, and fit into their types"
)]

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A protocol with its faults: its first state, and the steps that are possible in each state.
pub trait Model {
    /// A state of the protocol.
    type State: Copy + fmt::Debug + fmt::Display;
    /// An event that leads from one state to another.
    type Step: fmt::Debug + fmt::Display;
    /// A promise that a step breaks.
    type Violation: Copy + PartialEq + fmt::Debug;

    /// Returns the state in which each path begins.
    fn first_state(&self) -> Self::State;

    /// Replaces the contents of `taken` by all steps that are possible in `state`.
    fn take_all(&self, state: &Self::State, taken: &mut Vec<Taken<Self>>);

    /// Returns the fingerprint of `state`. The search visits only one state with each fingerprint.
    fn fingerprint(&self, state: &Self::State) -> u64;
}

/// A step and the state after it.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "models construct it")]
pub struct Taken<M: Model + ?Sized> {
    /// The step.
    pub step: M::Step,
    /// The state after the step.
    pub state: M::State,
    /// The promise that the step breaks, if any.
    pub violation: Option<M::Violation>,
}

/// The result of a search.
#[derive(Debug)]
#[non_exhaustive]
pub struct Found<M: Model> {
    /// The number of visited states.
    pub states: usize,
    /// The largest number of steps on a shortest path to a state.
    pub depth: usize,
    /// The first promise that was broken, and the path to it.
    pub violation: Option<(M::Violation, Path<M>)>,
}

/// The steps to a violation, each with the state after it.
#[derive(Debug)]
pub struct Path<M: Model>(Vec<(M::Step, M::State)>);

/// The first path to a state: the index of the previous state, and the index of the step from
/// there.
struct Origin {
    parent: u32,
    turn: u16,
}

/// Searches until a promise in `promises` is broken or all states were visited.
///
/// # Panics
///
/// Panics if the model has more than four billion states.
pub fn search<M: Model>(model: &M, promises: &[M::Violation]) -> Found<M> {
    let first = model.first_state();
    let mut seen = Seen::default();
    seen.insert(model.fingerprint(&first));
    let mut origins = vec![Origin { parent: u32::MAX, turn: 0 }];
    let mut level = vec![first];
    let (mut depth, mut taken) = (0, Vec::new());
    while !level.is_empty() {
        let start = origins.len() - level.len();
        let mut next = Vec::new();
        for (place, state) in level.iter().enumerate() {
            let parent = u32::try_from(start + place).unwrap();
            model.take_all(state, &mut taken);
            for (turn, taken) in (0..).zip(&taken) {
                if let Some(violation) = taken.violation
                    && promises.contains(&violation)
                {
                    let path = retrace(model, &origins, start + place, turn);
                    let states = origins.len();
                    return Found { states, depth, violation: Some((violation, path)) };
                }
                if seen.insert(model.fingerprint(&taken.state)) {
                    next.push(taken.state);
                    origins.push(Origin { parent, turn });
                }
            }
        }
        level = next;
        depth += 1;
    }
    Found { states: origins.len(), depth, violation: None }
}

fn retrace<M: Model>(model: &M, origins: &[Origin], mut place: usize, last: u16) -> Path<M> {
    let mut turns = vec![last];
    while origins[place].parent != u32::MAX {
        turns.push(origins[place].turn);
        place = usize::try_from(origins[place].parent).unwrap();
    }
    let (mut state, mut steps) = (model.first_state(), Vec::new());
    let mut taken = Vec::new();
    for turn in turns.into_iter().rev() {
        model.take_all(&state, &mut taken);
        let next = taken.swap_remove(usize::from(turn));
        state = next.state;
        steps.push((next.step, state));
    }
    Path(steps)
}

impl<M: Model> fmt::Display for Found<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.violation {
            None => write!(f, "{} states, {} steps deep, all sound", self.states, self.depth),
            Some((violation, path)) => {
                write!(f, "{violation:?} after {} states:\n{path}", self.states)
            }
        }
    }
}

impl<M: Model> fmt::Display for Path<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (step, state)) in (1..).zip(&self.0) {
            writeln!(f, "{number:3} {:50}{state}", step.to_string())?;
        }
        Ok(())
    }
}

/// A hash of a state's fields. Among hundreds of millions of states, no collision is expected.
#[inline]
pub fn fingerprint(state: &impl Hash) -> u64 {
    let mut bytes = Bytes { hash: 0, word: 0, length: 0 };
    state.hash(&mut bytes);
    bytes.finish()
}

/// Hashes eight bytes at a time, since all fields of a state are bytes.
struct Bytes {
    hash: u64,
    word: u64,
    length: u32,
}

// Inlined into the test programs, which are optimized.
impl Hasher for Bytes {
    #[inline]
    fn finish(&self) -> u64 {
        mix(self.hash.rotate_left(23) ^ self.word ^ u64::from(self.length))
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.word = self.word << 8 | u64::from(byte);
        self.length += 1;
        if self.length.is_multiple_of(8) {
            self.hash = mix(self.hash.rotate_left(23) ^ self.word);
            self.word = 0;
        }
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u8(u8::try_from(number).unwrap());
    }

    #[inline]
    fn write_isize(&mut self, variant: isize) {
        self.write_u8(u8::try_from(variant).unwrap());
    }
}

/// The finalizer of `SplitMix64`: <https://prng.di.unimi.it/splitmix64.c>.
#[inline]
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// A fingerprint is a hash, so the set does not hash it again.
type Seen = HashSet<u64, BuildHasherDefault<Identity>>;

#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only fingerprints are hashed");
    }

    #[inline]
    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }
}
