//! A server answers no request of a waiter for longer than half a ttl. Then it serves all these requests,
//! late and in order. The waiter should obtain the key with its next request. Lengths are in ticks of one
//! clock.

#[derive(Clone, Copy, Debug)]
struct Case {
    /// The waiter sends the next request after this time.
    retry: u32,
    silence: u32,
    /// The former lease ends on the server at this time.
    free: u32,
    again: Again,
    nonce: Nonce,
    late: Late,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Again {
    Heartbeat,
    /// The ttl counts from the send of the granted request.
    NamedSend,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Nonce {
    OfTheWait,
    /// A new nonce after each timeout, without a release of the old nonce.
    PerRequest,
    /// A new nonce after each timeout. A release of the old nonce follows its request.
    PerRequestReleased,
    /// The release overtakes the request, and finds nothing.
    PerRequestReleasedBefore,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Late {
    Dropped,
    /// A heartbeat confirms the grant, even after the grant's deadline.
    Confirmed,
}

#[derive(Clone, Copy, Debug)]
enum Request {
    Claim { nonce: u32, number: u32, sent: u32 },
    Release { nonce: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Value {
    nonce: u32,
    number: u32,
    sent: u32,
    expires: u32,
}

#[test]
fn one_nonce_has_the_key_within_one_retry() {
    let mut cases = 0;
    for late in [Late::Dropped, Late::Confirmed] {
        for case in all_cases(Again::Heartbeat, Nonce::OfTheWait, late) {
            let held = case.held_at();
            assert!(held <= case.silence + case.retry, "held at {held}: {case:?}");
            cases += 1;
        }
    }
    println!("silence: {cases} cases, all sound");
}

/// The release of each late claim arrives next.
#[test]
fn nonces_released_in_order_have_the_key_within_one_retry() {
    for case in all_cases(Again::Heartbeat, Nonce::PerRequestReleased, Late::Dropped) {
        let held = case.held_at();
        assert!(held <= case.silence + case.retry, "held at {held}: {case:?}");
    }
}

#[test]
fn new_nonce_after_silence_waits_for_the_old_nonce() {
    longest_wait(Again::Heartbeat, Nonce::PerRequest);
}

#[test]
fn release_before_its_claim_leaves_the_key_held() {
    longest_wait(Again::Heartbeat, Nonce::PerRequestReleasedBefore);
}

/// The granted request is so old that its ttl has passed.
#[test]
fn ttl_counted_from_the_named_send_delays_the_waiter() {
    longest_wait(Again::NamedSend, Nonce::OfTheWait);
}

#[track_caller]
fn longest_wait(again: Again, nonce: Nonce) {
    let waits = all_cases(again, nonce, Late::Dropped)
        .map(|case| (case.held_at().saturating_sub(case.silence + case.retry), case));
    let (wait, case) = waits.max_by_key(|(wait, _)| *wait).unwrap();
    println!("silence: {wait} of {TTL} ticks longer than one retry: {case:?}");
    assert!(wait >= TTL / 2, "{wait}: {case:?}");
}

fn all_cases(again: Again, nonce: Nonce, late: Late) -> impl Iterator<Item = Case> {
    (1..=TTL / 2).flat_map(move |retry| {
        (TTL / 2 + 1..=3 * TTL).flat_map(move |silence| {
            (0..=silence).map(move |free| Case { retry, silence, free, again, nonce, late })
        })
    })
}

impl Case {
    /// After the silence, requests and answers take no time.
    fn held_at(&self) -> u32 {
        let (mut queue, mut value) = (Vec::new(), None);
        let mut number = 0;
        for now in 0..self.silence + 3 * TTL {
            if now % self.retry == 0 {
                let nonce = if self.nonce == Nonce::OfTheWait { 0 } else { number };
                self.queue_request(&mut queue, nonce, number, now);
                number += 1;
            }
            if now < self.silence.max(self.free) {
                continue;
            }
            for request in queue.drain(..) {
                if self.serve(request, number, now, &mut value) {
                    return now;
                }
            }
        }
        u32::MAX
    }

    fn queue_request(&self, queue: &mut Vec<Request>, nonce: u32, number: u32, now: u32) {
        let claim = Request::Claim { nonce, number, sent: now };
        if self.nonce == Nonce::PerRequestReleasedBefore {
            queue.push(Request::Release { nonce });
        }
        if self.nonce == Nonce::PerRequestReleased
            && let Some(former) = nonce.checked_sub(1)
        {
            queue.push(Request::Release { nonce: former });
        }
        queue.push(claim);
    }

    /// Returns whether the waiter has the key. `next` is the number of the next request.
    fn serve(&self, request: Request, next: u32, now: u32, value: &mut Option<Value>) -> bool {
        value.take_if(|value| value.expires <= now);
        let (nonce, number, sent) = match request {
            Request::Release { nonce } => {
                value.take_if(|value| value.nonce == nonce);
                return false;
            }
            Request::Claim { nonce, number, sent } => (nonce, number, sent),
        };
        let timed_out = number + 1 < next && self.late == Late::Dropped;
        match value {
            None => {
                *value = Some(Value { nonce, number, sent, expires: now + TTL });
                let confirmed = self.late == Late::Confirmed;
                !timed_out && (now < sent + TTL || confirmed)
            }
            Some(value) if value.nonce == nonce && value.number != number => {
                let counts = match self.again {
                    Again::Heartbeat => true,
                    Again::NamedSend => now < value.sent + TTL,
                };
                !timed_out && counts
            }
            Some(_) => false,
        }
    }
}

const TTL: u32 = 12;
