//! The faults of other libraries, one test each, by the library's id: RS go-redsync, RSL rslock,
//! RSN redisson, NRL node-redlock, RLN `RedLock.net`, R3 distributed-lock. Those that are rows of
//! the README's table, too, are beside these: `minority.rs`, `partitions.rs`, `requests.rs`,
//! `promotion.rs`, `pauses.rs`; those of a quorum alone in `tests/quorum.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use lease_core::{
    Beat, BootClock, Clock, Grant, Heartbeat, LeaseKey, LockStore, LossCause, Obtained,
    StoreErrorKind,
};
use lease_redis::{RedisQuorum, RedisStore};
use lease_tests::claims::{self, fresh_key, soon};
use lease_tests::proxy::{Proxy, Wire};
use lease_tests::redis::{RedisCluster, RedisServer, available, independent};
use tokio::task::JoinSet;

use crate::setting::{
    COUNTER, HOLDER, TTL, claim, eventually, flush, has_it, key, lease, locker, obtain,
    obtain_in_the_end, quorum, text, urls,
};

const TIMEOUT: Duration = Duration::from_millis(300);

/// Three servers: a store on the first, and a quorum of all. Each test tries both, one after the
/// other.
struct Both {
    servers: Vec<RedisServer>,
    single: Arc<dyn LockStore>,
    several: Arc<dyn LockStore>,
}

impl Both {
    async fn start() -> Option<Self> {
        if !available() {
            return None;
        }
        let servers = independent(3);
        let single = RedisStore::builder(servers[0].url()).with_timeout(TIMEOUT);
        let several = RedisQuorum::builder(urls(&servers)).without_quarantine();
        Some(Self {
            single: Arc::new(single.connect().await.unwrap()),
            several: Arc::new(several.with_timeout(TIMEOUT).connect().await.unwrap()),
            servers,
        })
    }

    /// Each store, on servers that know nothing.
    fn each(&self) -> impl Iterator<Item = Arc<dyn LockStore>> {
        [&self.single, &self.several].into_iter().map(|store| {
            flush(&self.servers);
            Arc::clone(store)
        })
    }

    fn hang(&self) {
        self.servers[..2].iter().for_each(RedisServer::hang);
    }

    fn go_on(&self) {
        self.servers[..2].iter().for_each(RedisServer::go_on);
    }
}

/// RS: extending and unlocking had no time-out of their own. NRL: a release was retried with
/// whatever policy, possibly for ever.
#[tokio::test]
async fn heartbeats_and_releases_are_given_up_in_time() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let grant = obtain(&*store, "a").await;
        both.hang();
        let clock = BootClock::new();
        let began = clock.now();

        let beat = store.heartbeat(&grant, Beat::new(1)).await.unwrap_err();
        let release = store.release(&grant, None).await.unwrap_err();

        let took = clock.now().since(began);
        assert!(took < TIMEOUT * 4, "{took:?}");
        assert!(beat.is_retryable() && release.is_retryable());
        both.go_on();
        eventually("it answers again", async || store.holder(&key()).await.ok()).await;
    }
}

/// RS and RLN: an extension made a key again that was not there, so whoever had lost it held it
/// again, after another held and freed it.
#[tokio::test]
async fn a_heartbeat_never_makes_a_key_again_that_another_held_and_freed() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let short = Duration::from_millis(50);
        let former = claims::obtain(&*store, &key(), "a", short).await;
        let next = obtain_in_the_end(&*store, "b").await;
        store.release(&next, None).await.unwrap();

        let answer = store.heartbeat(&former, Beat::new(1)).await.unwrap();

        assert_eq!(answer, Heartbeat::Lost(LossCause::Superseded));
        assert!(both.servers.iter().all(|server| !has_it(server)));
    }
}

/// RS: a ttl below a millisecond was none, and the key was held for ever.
#[tokio::test]
async fn a_ttl_below_a_millisecond_runs_out() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let tiny = claims::claim(&key(), "a", Duration::from_nanos(1));

        // On a quorum it has run out before a majority has answered, and that is said.
        match store.obtain(&tiny).await {
            Ok(Obtained::Granted(grant, _)) => assert_eq!(grant.nonce, tiny.nonce),
            Ok(Obtained::Held(holder)) => panic!("held by {holder:?}"),
            Err(error) => {
                let said = text(&error);
                assert!(said.contains("too late") || said.contains("too soon"), "{said}");
            }
        }

        obtain_in_the_end(&*store, "b").await;
    }
}

/// RS: one mutex was not to be used by several goroutines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_store_serves_many_tasks_of_which_one_at_a_time_has_the_key() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let (inside, last) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let locker = locker(Arc::clone(&store), TTL);
            let (inside, last) = (Arc::clone(&inside), Arc::clone(&last));
            tasks.spawn(async move {
                for _ in 0..5 {
                    let lease = soon(locker.wait_until_obtained(&key())).await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                    let token = lease.token().get();
                    assert!(last.swap(token, Ordering::SeqCst) < token);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    lease.release().await.unwrap();
                }
            });
        }

        soon(tasks.join_all()).await;
    }
}

/// RSL: a grant that took too long was refused, and stayed on the servers.
#[tokio::test]
async fn a_grant_that_comes_too_late_to_be_of_use_is_taken_back() {
    if !available() {
        return;
    }
    let servers = independent(3);
    let mut proxies = Vec::new();
    for server in &servers {
        proxies.push(Proxy::start(server.address(), Wire::Redis).await.unwrap());
    }
    let urls = proxies.iter().map(|proxy| format!("redis://{}", proxy.address()));
    // Half of the ttl is as good as over, for whoever trusts clocks as little as this.
    let builder = RedisQuorum::builder(urls).with_clock_rate_error(0.49).without_quarantine();
    let store = builder.with_timeout(TTL).connect().await.unwrap();
    let late = claims::claim(&key(), "a", Duration::from_secs(4));
    let nonce = late.nonce.to_string();
    let mut held: Vec<_> = proxies.iter().map(|proxy| proxy.hold_next_with(&nonce)).collect();
    let asking = tokio::spawn(async move { store.obtain(&late).await });
    for one in &mut held {
        soon(one.arrived()).await;
    }

    // As long as the claim may take to be of use: what is waited for is time itself.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    for one in held {
        soon(one.deliver()).await;
    }

    let refused = soon(asking).await.unwrap().unwrap_err();
    assert!(text(&refused).contains("too late to be of use"), "{}", text(&refused));
    // Unlike one that has run out, what is withdrawn is not remembered as granted.
    eventually("taken back", async || {
        let forgot = |server: &RedisServer| {
            !has_it(server) && server.command(&format!("HEXISTS {COUNTER} granted")) == "0"
        };
        servers.iter().all(forgot).then_some(())
    })
    .await;
}

/// RSL: whoever waited did so for ever, whatever the error was.
#[tokio::test]
async fn waiting_ends_with_an_error_that_waiting_does_not_mend() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        both.servers.iter().for_each(|it| drop(it.command(&format!("SET {HOLDER} foreign"))));

        let error = soon(locker(store, TTL).wait_until_obtained(&key())).await.unwrap_err();

        assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{}", text(&error));
    }
}

/// RSL: a delay of zero panicked.
#[tokio::test]
async fn a_time_of_zero_is_refused_in_words() {
    let Some(both) = Both::start().await else { return };
    let single = RedisStore::builder(both.servers[0].url()).with_timeout(Duration::ZERO);
    let several = RedisQuorum::builder(urls(&both.servers)).with_timeout(Duration::ZERO);

    for refused in [single.connect().await.map(drop), several.connect().await.map(drop)]
        .map(Result::unwrap_err)
    {
        assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
        assert!(text(&refused).contains("time-out 0ns is out of range"), "{}", text(&refused));
    }
}

/// RSL: whether a key is free was asked of the first server that answered, and one that could not
/// be reached had said "free".
#[tokio::test]
async fn a_key_is_free_when_a_majority_says_so_and_silence_says_nothing() {
    let Some(mut both) = Both::start().await else { return };
    let store = Arc::clone(&both.several);
    let grant = obtain(&*store, "a").await;
    // The nodes of a first grant have counted differently, and hear of its token one by one.
    let agreed = |server: &RedisServer| {
        let told = |field| server.command(&format!("HGET {HOLDER} {field}"));
        [told("token"), told("shown")].contains(&grant.token.to_string())
    };
    eventually("two agree", async || both.servers[1..].iter().all(agreed).then_some(())).await;
    both.servers[0].command("FLUSHALL");

    let holder = store.holder(&key()).await.unwrap();
    assert_eq!(holder.unwrap().token, grant.token, "two of three know better");

    both.servers[1].kill();
    both.servers[2].kill();
    let unknown =
        eventually("the connections break", async || store.holder(&key()).await.err()).await;
    assert_eq!(unknown.kind(), StoreErrorKind::Unavailable);
    both.servers[0].kill();
    let unknown = both.single.holder(&key()).await.unwrap_err();
    assert_eq!(unknown.kind(), StoreErrorKind::Unavailable);
}

/// RSL: the work stood still while its lock was extended.
#[tokio::test]
async fn work_goes_on_while_a_heartbeat_is_on_its_way() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let locker = locker(store, Duration::from_secs(2));
        let lease = lease(&locker).await;
        both.hang();
        let mut steps = 0_u32;

        let lost = soon(lease.run_until_lost(async {
            loop {
                tokio::time::sleep(Duration::from_millis(10)).await;
                steps += 1;
            }
        }))
        .await;
        let lost: Result<(), _> = lost;

        assert_eq!(lost.unwrap_err().cause, LossCause::Expired);
        // Two seconds have 200 steps; a machine that is busy takes some away.
        assert!(steps > 60, "{steps}");
        both.go_on();
    }
}

/// RSL: a lock that was dropped was held until its ttl had passed.
#[tokio::test]
async fn a_dropped_lease_is_free_at_once() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let locker = locker(store, TTL);

        drop(lease(&locker).await);

        eventually("free", async || {
            both.servers.iter().all(|server| !has_it(server)).then_some(())
        })
        .await;
        locker.close().await;
    }
}

/// RSN: one dead shard kept all locks after it from being renewed.
#[tokio::test]
async fn heartbeats_of_one_shard_do_not_wait_for_another_that_hangs() {
    if !available() {
        return;
    }
    let cluster = RedisCluster::start(0);
    for node in &cluster.nodes {
        node.command("CONFIG SET cluster-require-full-coverage no");
    }
    let store = RedisStore::cluster(cluster.urls()).with_timeout(TIMEOUT).connect().await.unwrap();
    let mut beats = Vec::new();
    for number in 0..60 {
        let key = LeaseKey::new(format!("job-{number}")).unwrap();
        beats.push((claims::obtain(&store, &key, "a", TTL).await, Beat::new(1)));
    }
    let on_it =
        |grant: &Grant| cluster.nodes[1].command(&format!("EXISTS lease:{{{}}}", grant.key)) == "1";
    let dead: Vec<_> = beats.iter().map(|(grant, _)| on_it(grant)).collect();
    let alive = dead.iter().filter(|dead| !**dead).count();
    assert!((1..60).contains(&alive), "{alive} of 60 are elsewhere");
    cluster.nodes[1].hang();
    let clock = BootClock::new();
    let began = clock.now();

    let mut extended = 0;
    let mut answers = store.heartbeat_all(&beats);
    while let Some((place, answer)) = answers.next().await {
        if dead[place] {
            assert!(answer.unwrap_err().is_retryable());
        } else {
            assert_eq!(answer.unwrap(), Heartbeat::Extended);
            extended += 1;
            let took = clock.now().since(began);
            assert!(extended < alive || took < TIMEOUT, "the last came after {took:?}");
        }
    }

    assert_eq!(extended, alive);
}

/// RSN: what counted the tokens was given the lease's ttl, and began again.
#[tokio::test]
async fn the_counter_outlives_the_lease_whatever_its_ttl() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let short = Duration::from_millis(500);
        let grant = claims::obtain(&*store, &key(), "a", short).await;
        store.heartbeat(&grant, Beat::new(1)).await.unwrap();

        let left: u64 = both.servers[0].command(&format!("PTTL {COUNTER}")).parse().unwrap();
        assert!(left > 6 * 24 * 60 * 60 * 1000, "{left} ms");

        eventually("it has run out", async || (!has_it(&both.servers[0])).then_some(())).await;
        let counted: u64 =
            both.servers[0].command(&format!("HGET {COUNTER} token")).parse().unwrap();
        assert!(counted >= grant.token.get(), "{counted} after {}", grant.token);
        let next = obtain_in_the_end(&*store, "b").await;
        assert!(next.token > grant.token, "{} after {}", next.token, grant.token);
    }
}

/// RSN: nobody was told when a lock was lost.
#[tokio::test]
async fn a_lease_that_its_servers_lost_is_told_of() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let lease = lease(&locker(store, Duration::from_secs(3))).await;

        both.servers.iter().for_each(|server| drop(server.command(&format!("DEL {HOLDER}"))));

        let lost = soon(lease.lost()).await;
        assert_eq!(lost.cause, LossCause::Expired);
    }
}

/// RSN: a lock was renewed after its release (issue 7272).
#[tokio::test]
async fn a_released_lease_has_no_more_heartbeats() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let locker = locker(store, Duration::from_secs(1));
        let other = soon(locker.wait_until_obtained(&"other".parse().unwrap())).await.unwrap();
        let beats = || both.servers[0].command("HGET lease:{other} beat").parse::<u64>().ok();

        lease(&locker).await.release().await.unwrap();
        let before = both.servers[0].command("INFO commandstats");
        let seen = beats().unwrap();

        // The other lease's heartbeats tell that time enough has passed.
        eventually("heartbeats", async || (beats()? > seen + 4).then_some(())).await;
        assert!(!has_it(&both.servers[0]), "{before}");
        drop(other);
    }
}

/// RSN: every lock of a multi-lock was given a new ttl, whoever had it.
#[tokio::test]
async fn a_heartbeat_of_a_former_holder_extends_nothing() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let brief = claims::obtain(&*store, &key(), "a", Duration::from_millis(50)).await;
        let second = Duration::from_secs(5);
        let next = eventually("granted", async || {
            match store.obtain(&claims::claim(&key(), "b", second)).await.unwrap() {
                Obtained::Granted(grant, _) => Some(grant),
                Obtained::Held(_) => None,
            }
        })
        .await;
        let mut former = brief;
        former.ttl = TTL;

        let answer = store.heartbeat(&former, Beat::new(1)).await.unwrap();

        assert_eq!(answer, Heartbeat::Lost(LossCause::Superseded));
        for server in &both.servers {
            let left: i128 = server.command(&format!("PTTL {HOLDER}")).parse().unwrap();
            assert!(left <= 5000, "{left} ms");
        }
        assert_eq!(store.heartbeat(&next, Beat::new(1)).await.unwrap(), Heartbeat::Extended);
    }
}

/// RSN: the time that locking took was believed in, too.
#[tokio::test]
async fn the_time_that_obtaining_took_is_not_believed_in() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let way = Proxy::start(server.address(), Wire::Redis).await.unwrap();
    let url = format!("redis://{}", way.address());
    let store = RedisStore::builder(url).with_timeout(TTL).connect().await.unwrap();
    let slow = Duration::from_millis(700);
    way.set_delay(slow);
    // Of `RedisStore`'s own: 300 ms for clocks, and what it took.
    let ttl = Duration::from_secs(30);

    let lease = lease(&locker(store, ttl)).await;

    let left = lease.remaining();
    assert!(left <= ttl.mul_f64(0.99).saturating_sub(slow), "{left:?}");
}

/// RSN: each lock that was waited for took a connection, until there were no more.
#[tokio::test]
async fn a_hundred_watches_share_one_connection_per_server() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        for server in &both.servers {
            server.command("CLIENT KILL TYPE pubsub");
        }
        let mut watches = Vec::new();
        for _ in 0..100 {
            let key = fresh_key("job");
            watches.push(eventually("watched", async || store.watch(&key).await.ok()).await);
        }

        let listeners = both.servers[0].command("CLIENT LIST TYPE pubsub");
        assert_eq!(listeners.lines().count(), 1, "{listeners}");
    }
}

/// NRL: several keys at once did not work in a Cluster, whose scripts take those of one slot.
#[tokio::test]
async fn heartbeats_of_many_keys_span_the_slots_of_a_cluster() {
    if !available() {
        return;
    }
    let cluster = RedisCluster::start(0);
    let store = RedisStore::cluster(cluster.urls()).connect().await.unwrap();
    let mut beats = Vec::new();
    for number in 0..100 {
        let key = LeaseKey::new(format!("job-{number}")).unwrap();
        beats.push((claims::obtain(&store, &key, "a", TTL).await, Beat::new(1)));
    }

    let answers: Vec<_> = store.heartbeat_all(&beats).collect().await;

    assert_eq!(answers.len(), 100);
    for (place, answer) in answers {
        assert_eq!(answer.unwrap(), Heartbeat::Extended, "heartbeat {place}");
    }
}

/// R3: the renewal's task panicked at its second round, and nobody was told.
#[tokio::test]
async fn heartbeats_go_on_after_some_that_failed() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let lease = lease(&locker(store, Duration::from_secs(3))).await;
        let beats = || both.servers[0].command(&format!("HGET {HOLDER} beat")).parse::<u64>().ok();
        let mut state = lease.state();

        for round in 0..2 {
            both.hang();
            let at_risk = state.wait_for(|state| *state == lease_core::LeaseState::AtRisk);
            soon(at_risk).await.unwrap();
            both.go_on();
            let seen = beats().unwrap();
            eventually("heartbeats", async || (beats()? > seen + 2).then_some(())).await;
            assert!(lease.is_held(), "round {round}");
        }
    }
}

/// R3: a claim that got no majority left its keys on the servers that had granted it. Here it is
/// kept while nobody can tell what became of it, and freed as soon as a majority can.
#[tokio::test]
async fn a_claim_that_got_no_majority_leaves_nothing_behind() {
    if !available() {
        return;
    }
    let mut servers = independent(5);
    let store = quorum(&servers).await;
    let locker = locker(store.clone(), TTL);
    for server in &mut servers[..3] {
        server.kill();
    }

    locker.obtain(&key()).await.unwrap_err();
    eventually("two have granted it", async || {
        (has_it(&servers[3]) && has_it(&servers[4])).then_some(())
    })
    .await;
    servers[..3].iter_mut().for_each(RedisServer::start_again);

    eventually("freed", async || servers.iter().all(|it| !has_it(it)).then_some(())).await;
    obtain_in_the_end(&store, "b").await;
}

/// R3: servers that answered after the majority were neither renewed nor freed.
#[tokio::test]
async fn a_server_that_answers_late_is_extended_and_freed_like_the_others() {
    if !available() {
        return;
    }
    let servers = independent(3);
    let store = quorum(&servers).await;
    servers[2].hang();
    let grant = obtain(&store, "a").await;
    servers[2].go_on();
    eventually("heard of", async || has_it(&servers[2]).then_some(())).await;
    servers[2].command(&format!("PEXPIRE {HOLDER} 20000"));

    store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    eventually("extended", async || {
        let left = servers[2].command(&format!("PTTL {HOLDER}")).parse::<u64>().ok()?;
        (left > 20_000).then_some(())
    })
    .await;
    store.release(&grant, None).await.unwrap();

    eventually("freed", async || (!has_it(&servers[2])).then_some(())).await;
    assert!(matches!(store.obtain(&claim("b")).await.unwrap(), Obtained::Granted(..)));
}

/// R3: there was no deadline. A holder that hears nothing stops believing by itself.
#[tokio::test]
async fn a_holder_that_hears_nothing_stops_believing_by_its_own_clock() {
    let Some(both) = Both::start().await else { return };
    for store in both.each() {
        let ttl = Duration::from_secs(2);
        let lease = lease(&locker(store, ttl)).await;
        let clock = BootClock::new();
        let began = clock.now();
        both.hang();

        let lost = soon(lease.lost()).await;

        let took = clock.now().since(began);
        assert_eq!(lost.cause, LossCause::Expired);
        // A heartbeat may have come just before it hung.
        assert!(took <= ttl, "{took:?}");
        both.go_on();
        drop(lease);
    }
}
