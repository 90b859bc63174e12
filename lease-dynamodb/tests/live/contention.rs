//! Many contenders at once.

use std::sync::Arc;

use futures_util::future::join_all;
use lease_core::FencingToken;
use lease_core::store::{LockStore, Obtained};
use lease_test_servers::claims::{claim, fresh_key};
use lease_test_servers::dynamodb::{Count, Server};
use tokio::sync::Barrier;

use crate::setup::{LONG, builder, ready};

const CONTENDERS: usize = 64;
const ROUNDS: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_64_contenders_wins_each_of_200_rounds() {
    let server = Server::dynoxide().await;
    let (count, config) = Count::of(server.config());
    let client = aws_sdk_dynamodb::Client::from_conf(config.build());
    ready(&server, &client).await;
    let key = fresh_key("race");
    let start = Arc::new(Barrier::new(CONTENDERS));
    let stores: Vec<_> =
        (0..CONTENDERS).map(|_| builder(&server, &client).build().unwrap()).collect();
    // Each store learns the time from an answer before the race.
    for store in &stores {
        assert_eq!(store.holder(&key).await.unwrap(), None);
    }
    count.take();

    let mut last = FencingToken::new(0).unwrap();
    for round in 0..ROUNDS {
        let contenders = stores.iter().enumerate().map(|(number, store)| {
            let (store, start) = (store.clone(), Arc::clone(&start));
            let claim = claim(&key, &format!("contender-{number}"), LONG);
            tokio::spawn(async move {
                start.wait().await;
                store.obtain(&claim).await.unwrap()
            })
        });
        let answers = join_all(contenders.collect::<Vec<_>>()).await;

        let mut winners = Vec::new();
        for answer in answers {
            match answer.unwrap() {
                Obtained::Granted(grant, _) => winners.push(grant),
                Obtained::Held(holder) => assert!(holder.token > Some(last), "round {round}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        let winner = winners.remove(0);
        assert!(winner.token > last, "round {round}");
        last = winner.token;
        // A contender whose read came before the write of the new holder sends a read and a write.
        let requests = count.take();
        assert!((CONTENDERS..=CONTENDERS * 2).contains(&requests), "round {round}: {requests}");
        stores[0].release(&winner, None).await.unwrap();
        count.take();
    }
}
