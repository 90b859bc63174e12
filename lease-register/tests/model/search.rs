//! Runs the contenders once for each sequence of choices that reaches a new state.

use std::collections::HashSet;
use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::contender::Contender;
use crate::world::{Action, Setup, TTL, World};

/// The result of a search.
pub(crate) enum Found {
    Nothing { runs: usize, states: usize },
    Violation { runs: usize, what: String },
}

/// The choices of one run: which of how many actions was taken.
#[derive(Default)]
struct Choices {
    path: Vec<(usize, usize)>,
    taken: usize,
    /// The states that were reached before.
    reached: HashSet<u64>,
}

impl Choices {
    /// Whether the next choice is new, but was made before in an equal state.
    fn is_known(&mut self, state: impl Fn() -> u64) -> bool {
        self.taken == self.path.len() && !self.reached.insert(state())
    }

    fn choose(&mut self, actions: &[Action]) -> Action {
        if self.taken == self.path.len() {
            self.path.push((0, actions.len()));
        }
        let (choice, _) = self.path[self.taken];
        self.taken += 1;
        actions[choice]
    }

    /// Prepares the next run. Returns false after the last one.
    fn advance(&mut self) -> bool {
        self.taken = 0;
        while let Some((choice, count)) = self.path.pop() {
            if choice + 1 < count {
                self.path.push((choice + 1, count));
                return true;
            }
        }
        false
    }
}

pub(crate) fn search(setup: &Setup) -> Found {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let (mut choices, mut runs) = (Choices::default(), 0);
    runtime.block_on(async {
        loop {
            runs += 1;
            if let Some(what) = run(*setup, &mut choices).await {
                return Found::Violation { runs, what };
            }
            if !choices.advance() || runs == LIMIT {
                return Found::Nothing { runs, states: choices.reached.len() };
            }
        }
    })
}

/// Runs two contenders to their end. Returns the first violation.
async fn run(setup: Setup, choices: &mut Choices) -> Option<String> {
    let world = World::new(setup);
    let mut left = setup;
    let contender = |number| Contender::new(number, &world, setup.breach);
    let mut clients = [contender(0).contend(2).boxed(), contender(1).contend(2).boxed()];
    let mut ended = [false; 2];
    loop {
        for (client, ended) in clients.iter_mut().zip(&mut ended) {
            *ended = *ended || is_over(client);
        }
        if let Some(violation) = violation(&world) {
            return Some(violation);
        }
        if ended == [true; 2] {
            break;
        }
        let is_asleep = |number: usize| !ended[number] && world.is_idle(number);
        if is_asleep(0) || is_asleep(1) {
            // A pause after conflicts.
            tokio::time::advance(Duration::from_secs(1)).await;
            continue;
        }
        if choices.is_known(|| world.state().hash(left)) {
            return None;
        }
        let actions = world.state().actions(left);
        let action = choices.choose(&actions);
        match action {
            Action::Tick => left.ticks -= 1,
            Action::Delete => left.deletions -= 1,
            Action::Apply(_) | Action::ApplyLate(_) => (),
            _ => left.faults -= 1,
        }
        world.state().act(action);
    }
    a_third_lessee_obtains_the_key(setup, &world).await.or_else(|| violation(&world))
}

/// Late requests may still arrive. Then a third lessee must obtain the key after a ttl.
async fn a_third_lessee_obtains_the_key(mut left: Setup, world: &World) -> Option<String> {
    (left.faults, left.ticks, left.deletions) = (0, 0, 0);
    let mut third = Contender::new(2, world, None);
    for _ in 0..2 {
        let mut attempt = third.obtain(1).boxed();
        let mut granted = None;
        while granted.is_none() {
            granted = (&mut attempt).now_or_never();
            let actions = world.state().actions(left);
            match actions.first() {
                Some(action) => world.state().act(*action),
                None if granted.is_none() => {
                    tokio::time::advance(Duration::from_secs(1)).await;
                }
                None => (),
            }
        }
        drop(attempt);
        if granted.flatten().is_some() {
            return None;
        }
        world.state().now += TTL;
    }
    let trace = world.state().trace.join(", ");
    Some(format!("no progress: a third lessee does not obtain the key: {trace}"))
}

fn violation(world: &World) -> Option<String> {
    let mut state = world.state();
    state.judge_holders();
    let what = state.violation.clone()?;
    Some(format!("{what}: {}", state.trace.join(", ")))
}

fn is_over(client: &mut BoxFuture<'_, ()>) -> bool {
    Pin::new(client).now_or_never().is_some()
}

/// A complete search takes longer than tests may: it has millions of states. Each control finds its violation within
/// half as many runs.
const LIMIT: usize = 25_000;
