//! Measures the client's cost of DynamoDB requests. The server sends canned replies.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::contestants::on_dynamodb;
use super::cycles::{count_of, cycles_by_tasks};
use crate::cores::SeparateCores;
use crate::lock::Lock;
use crate::machine::processor_time;
use crate::race::Race;
use crate::report::{Better, Table};
use crate::server_process::CannedDynamoDb;

pub(crate) async fn on_canned_replies(rounds: usize) -> Vec<Table> {
    let (server, _apart) = SeparateCores::start(async { CannedDynamoDb::start() }).await;
    let locks = on_dynamodb(server.address()).await;
    let server = Mutex::new(server);
    let mut tables = Vec::new();
    for tasks in [1, 64] {
        let mut race = Race::default();
        for lock in &locks {
            let server = &server;
            race.enter_several(lock.name(), move || async move {
                costs(Arc::clone(lock), tasks, &mut *server.lock().await).await
            });
        }
        let [processor, bytes, requests] = race.run_several(rounds).await;
        tables.push(Table {
            name: format!("canned-processor-{tasks}"),
            title: format!(
                "Client's processor time per obtain and release on DynamoDB, {}",
                count_of(tasks)
            ),
            unit: "µs",
            better: Better::Less,
            scores: processor,
        });
        if tasks == 1 {
            for (name, unit, scores) in
                [("bytes", "bytes", bytes), ("requests", "requests", requests)]
            {
                tables.push(Table {
                    name: format!("canned-{name}"),
                    title: format!("Sent {name} per obtain and release on DynamoDB"),
                    unit,
                    better: Better::Less,
                    scores,
                });
            }
        }
    }
    tables
}

/// The client's processor time in microseconds, the sent bytes and the requests, each per cycle.
async fn costs(lock: Arc<dyn Lock>, tasks: usize, server: &mut CannedDynamoDb) -> Option<[f64; 3]> {
    let before = server.received();
    let processor = processor_time();
    let cycles = cycles_by_tasks(lock, tasks, CYCLES).await?;
    let processor = processor_time() - processor;
    let after = server.received();
    let number = |count: u64| f64::from(u32::try_from(count).unwrap());
    let bytes = number(after.bytes - before.bytes);
    let requests = number(after.requests - before.requests);
    Some([processor * 1e6, bytes, requests].map(|all| all / cycles.count()))
}

const CYCLES: usize = 1_920;
