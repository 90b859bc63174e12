//! Lessees of ours and candidates of client-go's own `leaderelection` on one Lease object of a real API server.
//!
//! `./test kubernetes` runs it: KUBECONFIG names the server, and `LEASE_CLIENT_GO` the program in `tests/kubernetes/candidate`.
//! Without it, the test is skipped.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed step fails the test, which prints its figures"
)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use lease_core::store::micros_since_1970;
use lease_core::{LeaseOptions, Locker};
use lease_kubernetes::{KubernetesRegister, KubernetesStore};
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::{sleep, timeout};

/// A time in which a process led, in microseconds since 1970.
#[derive(Debug, Clone)]
struct Term {
    leader: String,
    from: u64,
    /// `None` while it leads.
    to: Option<u64>,
}

type Terms = Arc<Mutex<Vec<Term>>>;

fn begin(terms: &Terms, leader: &str, from: u64) {
    terms.lock().unwrap().push(Term { leader: leader.to_owned(), from, to: None });
}

fn end(terms: &Terms, leader: &str, to: u64) {
    let mut terms = terms.lock().unwrap();
    let open = terms.iter_mut().rev().find(|term| term.leader == leader && term.to.is_none());
    if let Some(open) = open {
        open.to = Some(to);
    }
}

/// A process of client-go, which is killed when this is dropped.
struct Candidate(Child);

impl Candidate {
    fn start(program: &str, namespace: &str, name: &str, terms: &Terms) -> Self {
        let mut command = Command::new(program);
        command.args([namespace, "job", name]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (name, terms) = (name.to_owned(), Arc::clone(terms));
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let (what, at) = line.split_once(' ').unwrap();
                let note = if what == "leads" { begin } else { end };
                note(&terms, &name, at.parse().unwrap());
            }
            // It was killed.
            end(&terms, &name, micros_since_1970());
        });
        Self(child)
    }

    /// Lets the process release its lease.
    fn terminate(mut self) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").arg(id).status().unwrap().success());
        drop(self.0.wait());
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Leads again and again.
async fn lead(namespace: String, name: &'static str, terms: Terms, tokens: Arc<Mutex<Vec<u64>>>) {
    let mut random: StdRng = rand::make_rng();
    let register = KubernetesRegister::connect(&namespace).await.unwrap();
    let locker = Locker::new(KubernetesStore::new(register)).with_lessee(name.parse().unwrap());
    let locker = locker.with_options(LeaseOptions::new(TTL).unwrap());
    loop {
        let Ok(lease) = locker.wait_until_obtained(&"job".parse().unwrap()).await else { continue };
        begin(&terms, name, micros_since_1970());
        tokens.lock().unwrap().push(lease.token().get());
        let work = Duration::from_millis(random.random_range(0..4000));
        drop(lease.run_until_lost(sleep(work)).await);
        end(&terms, name, micros_since_1970());
        drop(lease.release().await);
        sleep(Duration::from_millis(random.random_range(0..3000))).await;
    }
}

/// The pairs of terms that overlap, of which one is ours.
fn overlaps(terms: &[Term]) -> Vec<(Term, Term)> {
    let is_ours = |term: &Term| term.leader.starts_with("rust");
    let ends = |term: &Term| term.to.unwrap_or(u64::MAX);
    let mut found = Vec::new();
    for (place, one) in terms.iter().enumerate() {
        for other in terms.iter().skip(place + 1) {
            let overlap = one.from < ends(other) && other.from < ends(one);
            if overlap && (is_ours(one) || is_ours(other)) {
                found.push((one.clone(), other.clone()));
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_of_ours_leads_beside_client_go() {
    let Ok(program) = std::env::var("LEASE_CLIENT_GO") else { return };
    let seconds = std::env::var("LEASE_SECONDS").map_or(120, |seconds| seconds.parse().unwrap());
    let namespace = format!("beside-{}", micros_since_1970());
    let (terms, tokens) = (Terms::default(), Arc::default());
    let ours = ["rust-1", "rust-2"].map(|name| {
        tokio::spawn(lead(namespace.clone(), name, Arc::clone(&terms), Arc::clone(&tokens)))
    });
    let names = ["go-1", "go-2"];
    let mut candidates = [None, None];
    let mut random: StdRng = rand::make_rng();

    // Starts candidates, and ends them in one of two ways.
    let faults = async {
        loop {
            let place = random.random_range(0..2);
            match candidates[place].take() {
                None => {
                    let name = names[place];
                    candidates[place] = Some(Candidate::start(&program, &namespace, name, &terms));
                }
                Some(candidate) if random.random_bool(0.5) => candidate.terminate(),
                Some(killed) => drop(killed),
            }
            sleep(Duration::from_millis(random.random_range(500..4000))).await;
        }
    };
    let _elapsed = timeout(Duration::from_secs(seconds), faults).await;

    for task in ours {
        task.abort();
    }
    let (terms, tokens) = (terms.lock().unwrap().clone(), tokens.lock().unwrap().clone());
    let theirs = terms.iter().filter(|term| term.leader.starts_with("go")).count();
    println!("{} terms of ours, {theirs} of client-go in {seconds} s", tokens.len());
    assert!(tokens.is_sorted_by(|one, next| one < next), "tokens grow: {tokens:?}");
    assert!(overlaps(&terms).is_empty(), "{:#?}", overlaps(&terms));
    assert!(tokens.len() > 2 && theirs > 2, "both lead in turn: {terms:#?}");
}

/// Control: the judge finds a term of ours beside another one, and no others.
#[test]
fn overlapping_term_is_detected() {
    let term = |leader: &str, from, to| Term { leader: leader.to_owned(), from, to };
    let theirs = [term("go-1", 1, Some(5)), term("go-2", 4, Some(9)), term("go-1", 9, None)];

    assert!(overlaps(&theirs).is_empty(), "client-go alone is not judged");
    for (from, to, count) in [(0, 1, 0), (0, 2, 1), (4, 5, 2), (6, 8, 1), (10, 11, 1), (0, 20, 3)] {
        let all = [&theirs[..], &[term("rust-1", from, Some(to))]].concat();
        assert_eq!(overlaps(&all).len(), count, "{from} to {to}");
    }
}

/// As the candidates.
const TTL: Duration = Duration::from_secs(4);
