//! Encodes a state in a few words of memory: one for each node, one for all claims.

use crate::state::{
    Claim, Freed, HeartbeatState, Link, MOST_CLAIMS, Node, Phase, RESERVED, State, Vote,
};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Code<const N: usize> {
    claims: u128,
    nodes: [u64; N],
}

impl<const N: usize> Code<N> {
    /// States that differ only in the names of nodes and claims have the same code. Claims are
    /// interchangeable if one of the permutations in `orders` exchanges them.
    pub(crate) fn of(state: &State<N>, orders: &[[usize; MOST_CLAIMS]]) -> Self {
        let mut least: Option<Self> = None;
        for order in orders {
            let claims = claims_word(state, order);
            if least.is_some_and(|least| least.claims < claims) {
                continue;
            }
            let mut nodes = state.nodes.map(|node| node_word(&node, order));
            nodes.sort_unstable();
            let code = Self { claims, nodes };
            least = Some(least.map_or(code, |least| least.min(code)));
        }
        least.unwrap()
    }

    pub(crate) fn state(&self) -> State<N> {
        let mut word = Word(self.claims);
        let claims = [(); MOST_CLAIMS].map(|()| Claim {
            phase: PHASES[usize::from(word.take(3))],
            token: word.take(4),
            earlier: word.take(4),
            floor: word.take(4),
            earlier_granted: word.take(1) == 1,
            may_repeat: word.take(1) == 1,
            may_send_heartbeat: word.take(1) == 1,
            beat_earlier: word.take(1) == 1,
            followed: word.take(1) == 1,
            renews: word.take(1) == 1,
            may_release: word.take(1) == 1,
            release_earlier: word.take(1) == 1,
            only_first: word.take(1) == 1,
            released_first: word.take(1) == 1,
            may_send_again: word.take(1) == 1,
        });
        let (restarts, restores) = (word.take(2), word.take(2));
        State { nodes: self.nodes.map(node), claims, restarts, restores }
    }

    /// Among hundreds of millions of states, no collision is expected.
    pub(crate) fn fingerprint(&self) -> u64 {
        let low = u64::try_from(self.claims & u128::from(u64::MAX)).unwrap();
        let high = u64::try_from(self.claims >> 64).unwrap();
        let mut hash = mix(mix(low).rotate_left(23) ^ high);
        for word in self.nodes {
            hash = mix(hash.rotate_left(23) ^ word);
        }
        hash
    }
}

fn claims_word<const N: usize>(state: &State<N>, order: &[usize; MOST_CLAIMS]) -> u128 {
    let mut word = Word(0);
    word.put(state.restores, 2);
    word.put(state.restarts, 2);
    for place in order.iter().rev() {
        let claim = &state.claims[*place];
        word.put(u8::from(claim.may_send_again), 1);
        word.put(u8::from(claim.released_first), 1);
        word.put(u8::from(claim.only_first), 1);
        word.put(u8::from(claim.release_earlier), 1);
        word.put(u8::from(claim.may_release), 1);
        word.put(u8::from(claim.renews), 1);
        word.put(u8::from(claim.followed), 1);
        word.put(u8::from(claim.beat_earlier), 1);
        word.put(u8::from(claim.may_send_heartbeat), 1);
        word.put(u8::from(claim.may_repeat), 1);
        word.put(u8::from(claim.earlier_granted), 1);
        word.put(claim.floor, 4);
        word.put(claim.earlier, 4);
        word.put(claim.token, 4);
        word.put(claim.phase as u8, 3);
    }
    word.0
}

fn node_word(node: &Node, order: &[usize; MOST_CLAIMS]) -> u64 {
    let mut names = [0, 0, 0, 0, RESERVED];
    for (new, old) in (1..).zip(order) {
        names[old + 1] = new;
    }
    let mut word = Word(0);
    for place in order.iter().rev() {
        let link = &node.links[*place];
        word.put(node.awaited >> place & 1, 1);
        word.put(node.counting >> place & 1, 1);
        word.put(link.freed as u8, 2);
        word.put(link.withdrawals, 2);
        word.put(link.heartbeat as u8, 2);
        word.put(u8::from(link.duplicated), 1);
        word.put(link.vote as u8, 2);
        word.put(u8::from(link.first), 1);
    }
    word.put(u8::from(node.absent), 1);
    word.put(node.former, 4);
    word.put(node.bound, 4);
    word.put(node.counter, 4);
    word.put(node.held, 4);
    word.put(names[usize::from(node.holder)], 3);
    u64::try_from(word.0).unwrap()
}

fn node(word: u64) -> Node {
    let mut word = Word(word.into());
    let mut node = Node {
        holder: word.take(3),
        held: word.take(4),
        counter: word.take(4),
        bound: word.take(4),
        former: word.take(4),
        absent: word.take(1) == 1,
        ..Node::default()
    };
    for place in 0..MOST_CLAIMS {
        node.links[place] = Link {
            first: word.take(1) == 1,
            vote: VOTES[usize::from(word.take(2))],
            duplicated: word.take(1) == 1,
            heartbeat: HEARTBEATS[usize::from(word.take(2))],
            withdrawals: word.take(2),
            freed: FREED[usize::from(word.take(2))],
        };
        node.counting |= word.take(1) << place;
        node.awaited |= word.take(1) << place;
    }
    node
}

/// The number that was put last is taken first.
struct Word(u128);

impl Word {
    fn put(&mut self, number: u8, bits: u32) {
        assert!(number < 1 << bits, "{number} has more than {bits} bits");
        self.0 = self.0 << bits | u128::from(number);
    }

    fn take(&mut self, bits: u32) -> u8 {
        let number = self.0 & ((1 << bits) - 1);
        self.0 >>= bits;
        u8::try_from(number).unwrap()
    }
}

/// The finalizer of `SplitMix64`: <https://prng.di.unimi.it/splitmix64.c>.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

const PHASES: [Phase; 6] =
    [Phase::Idle, Phase::Asking, Phase::Granted, Phase::Over, Phase::Reserving, Phase::Abandoned];

const VOTES: [Vote; 3] = [Vote::Nothing, Vote::Asked, Vote::Granted];

const HEARTBEATS: [HeartbeatState; 3] =
    [HeartbeatState::Nothing, HeartbeatState::Sent, HeartbeatState::Extended];

const FREED: [Freed; 4] = [Freed::Nothing, Freed::Releasing, Freed::Released, Freed::Reserved];
