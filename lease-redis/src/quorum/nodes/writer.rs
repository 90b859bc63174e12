//! Sends one batch to a node as one write: a script that releases keys, then a script that votes on claims.

use redis::Value;

use crate::connection::node::{Node, Permit};
use crate::connection::request::Request;
use crate::error::ServerFault;
use crate::quorum::release::ReleaseRequest;
use crate::quorum::scripts;
use crate::quorum::voting::election::VoteRequest;
use crate::scripts::{Call, millis, text};

pub(crate) async fn write(node: &Node, claims: Vec<VoteRequest>, releases: Vec<ReleaseRequest>) {
    let votes = node.has_run_for(node.rejoin_delay());
    if votes || claims.is_empty() || releases.is_empty() {
        return write_together(node, claims, releases).await;
    }
    // A node that does not vote yet refuses the claims, but must apply the releases.
    tokio::join!(
        write_together(node, Vec::new(), releases),
        write_together(node, claims, Vec::new()),
    );
}

async fn write_together(node: &Node, claims: Vec<VoteRequest>, releases: Vec<ReleaseRequest>) {
    let release = (!releases.is_empty()).then(|| release_call(node, &releases));
    let groups = by_ttl(claims);
    let claim_calls = groups.iter().map(|claims| claim_call(node, claims));
    let calls: Vec<_> = release.into_iter().chain(claim_calls).collect();
    let sent = node.now();
    let mut replies = send(node, &calls).await.into_iter();
    if !releases.is_empty() {
        let answers = answers_in(node, "release", replies.next(), releases.len());
        for (release, answer) in releases.into_iter().zip(answers) {
            release.answer(answer.and_then(|answer| node.read_bool("release", &answer)));
        }
    }
    for claims in groups {
        let answers = answers_in(node, "claim", replies.next(), claims.len());
        for (claim, answer) in claims.into_iter().zip(answers) {
            claim.answer(answer.and_then(|answer| node.read_vote("claim", &answer, sent)));
        }
    }
}

/// Returns one reply per script. If the estimate of the node's time is old, the write also reads the time.
async fn send(node: &Node, calls: &[Call]) -> Vec<Result<Value, ServerFault>> {
    let reads_time = node.time_is_old();
    if let ([call], false) = (calls, reads_time) {
        return vec![node.call_at_once(call).await];
    }
    let mut pipeline = redis::pipe();
    for call in calls {
        pipeline.add_command(call.by_hash().clone());
    }
    if reads_time {
        pipeline.cmd("TIME");
    }
    let min_run = calls.iter().map(Call::min_run).max().unwrap_or_default();
    let sent = node.now();
    let replies = match node.send(Request::Pipeline(&pipeline, min_run), Permit::NotRequired).await
    {
        Ok(Value::Array(replies)) => replies,
        Ok(_) => return vec![Err(node.unreadable("claim")); calls.len()],
        Err(fault) => return vec![Err(fault); calls.len()],
    };
    if let Some(micros) = replies.get(calls.len()).and_then(read_time) {
        node.record_time(sent, micros);
    }
    let mut answers = Vec::new();
    for (call, reply) in calls.iter().zip(replies) {
        answers.push(match reply {
            // The server does not know this script yet, or only this script failed.
            Value::ServerError(_) => node.call_at_once(call).await,
            reply => Ok(reply),
        });
    }
    answers
}

/// A call of the script has one ttl. A batch usually has one group.
fn by_ttl(mut claims: Vec<VoteRequest>) -> Vec<Vec<VoteRequest>> {
    let mut groups = Vec::new();
    while let Some(first) = claims.first() {
        let ttl = first.proposal().ttl.clone();
        let (same, others) = claims.into_iter().partition(|claim| claim.proposal().ttl == ttl);
        groups.push(same);
        claims = others;
    }
    groups
}

fn claim_call(node: &Node, claims: &[VoteRequest]) -> Call {
    let proposals = || claims.iter().map(VoteRequest::proposal);
    let ttl = proposals().next().map_or("", |it| it.ttl.as_str());
    let keys: Vec<_> = proposals().map(|it| it.key.as_str()).collect();
    let call = scripts::CLAIM.on(keys).number(millis(node.retention)).after(node.rejoin_delay());
    proposals().fold(call.arg(ttl), |call, it| call.arg(it.text.as_str()))
}

fn release_call(node: &Node, releases: &[ReleaseRequest]) -> Call {
    let all = || releases.iter().map(ReleaseRequest::release);
    let keys: Vec<_> = all().map(|it| it.key.as_str()).collect();
    let call = scripts::RELEASE.on(keys).number(millis(node.retention));
    all().fold(call, |call, it| call.arg(it.text.as_str()).arg(it.above.as_str()))
}

fn answers_in(
    node: &Node,
    script: &str,
    reply: Option<Result<Value, ServerFault>>,
    count: usize,
) -> Vec<Result<Value, ServerFault>> {
    match reply {
        Some(Ok(Value::Array(answers))) if answers.len() == count => {
            answers.into_iter().map(Ok).collect()
        }
        Some(Err(fault)) => vec![Err(fault); count],
        _ => vec![Err(node.unreadable(script)); count],
    }
}

fn read_time(reply: &Value) -> Option<u64> {
    let Value::Array(parts) = reply else { return None };
    let [seconds, micros] = &parts[..] else { return None };
    let number = |part| text(part)?.parse::<u64>().ok();
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)
}
