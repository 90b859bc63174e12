//! What a child is told, and what it says: one thing at a time, from its start to its end.

use std::error::Error;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::children::{Children, Settings};
use super::ends::{Ends, Words};
use super::failure::ChildFailure;
use super::pipe::Pipe;
use super::progress::Progress;
use super::stderr::drain;
use crate::checkpoint::Checkpointer;
use crate::multilang::{Action, FromChild, Generation, ToChild};
use crate::repeats::{Repeats, Telling};
use crate::shard::ShardId;

/// Talks with one child, which ends with this.
pub(super) struct Conversation {
    shard: ShardId,
    settings: Settings,
    pipe: Pipe,
    progress: Progress,
    /// Answers of the child to nothing.
    unasked: Repeats,
    /// Whether the child is to be told that its lease is lost, before it is left alone.
    owes_the_end: bool,
    ends: Arc<Ends>,
    /// In which words it was told of its end.
    told_of_end: Option<Words>,
    /// Whether it may have failed for those alone: the next is told in others.
    had_other_words: bool,
    abandoned: CancellationToken,
    failed: CancellationToken,
}

/// What a child is to be told, and whom to tell that it is done.
pub(super) struct Request {
    pub(super) message: ToChild,
    /// For the checkpoints that the child asks for meanwhile.
    pub(super) checkpointer: Option<Checkpointer>,
    /// For the child to read what it is told, and again to answer; `None` where it has all the time
    /// that it likes.
    pub(super) limit: Option<Duration>,
    pub(super) done: oneshot::Sender<Result<(), ChildFailure>>,
}

impl Conversation {
    /// Starts a child. What comes with it reads its stderr.
    pub(super) fn begin(
        children: &Children,
        shard: &ShardId,
        abandoned: CancellationToken,
    ) -> Result<(Self, impl Future<Output = ()> + Send + use<>), ChildFailure> {
        let settings = children.settings.clone();
        let (pipe, stderr) = Pipe::start(shard, &settings.command).map_err(|source| {
            children.failed.cancel();
            ChildFailure::NotStarted { command: settings.command.to_string(), source }
        })?;
        info!(%shard, pid = pipe.child(), "child started");
        let conversation = Self {
            shard: shard.clone(),
            settings,
            pipe,
            progress: Progress::new(shard.clone()),
            unasked: Repeats::default(),
            owes_the_end: false,
            ends: Arc::clone(&children.ends),
            told_of_end: None,
            had_other_words: false,
            abandoned,
            failed: children.failed.clone(),
        };
        Ok((conversation, drain(stderr, shard.clone())))
    }

    /// Goes on until nobody can ask for anything any more, and the child has ended.
    pub(super) async fn run(
        mut self,
        mut requests: mpsc::Receiver<Request>,
        stderr: JoinHandle<()>,
    ) {
        loop {
            select! {
                // What is to be done first: a child that has very much to say does not put it off.
                biased;
                request = requests.recv() => {
                    let Some(Request { message, checkpointer, limit, done }) = request else {
                        break self.take_leave().await;
                    };
                    let performed = self.perform(&message, checkpointer, limit).await;
                    let has_failed = performed.is_err();
                    let performed = match performed {
                        Ok(()) => Ok(()),
                        Err(failure) => Err(self.fail(failure, message.action()).await),
                    };
                    // Whoever asked may not want to know any more.
                    drop(done.send(performed));
                    if has_failed {
                        break;
                    }
                }
                said = self.pipe.hear() => {
                    if let Err(failure) = self.hear_unasked(said).await {
                        let failure = self.fail(failure, None).await;
                        if let Some(request) = requests.recv().await {
                            drop(request.done.send(Err(failure)));
                        }
                        break;
                    }
                }
            }
        }
        let reader = stderr.abort_handle();
        // What the child has started may have it open still.
        if timeout(LAST_WORDS, stderr).await.is_err() {
            reader.abort();
        }
        debug!(shard = %self.shard, "child is gone");
    }

    /// Tells the child `message`, and waits until it says that it is done, or nobody waits for its
    /// work any more. `limit` begins anew with each checkpoint.
    async fn perform(
        &mut self,
        message: &ToChild,
        checkpointer: Option<Checkpointer>,
        limit: Option<Duration>,
    ) -> Result<(), ChildFailure> {
        let Some(action) = message.action() else { return Ok(()) };
        // The first generation has no word for that: it is told of the loss of its lease.
        let has_word = self.pipe.generation() > Generation::G0;
        if action == Action::ShutdownRequested && !has_word {
            return Ok(());
        }
        let farewell = self.settings.farewell;
        let given_up = given_up(self.abandoned.clone(), farewell);
        let performed = select! {
            biased;
            () = given_up => Err(ChildFailure::TooSlow { action, limit: farewell }),
            performed = self.talk(message, action, checkpointer, limit) => performed,
        };
        if let Some(words) = self.told_of_end.take() {
            self.learn(words, action, &performed).await;
        }
        performed
    }

    /// What a child makes of the words for its end tells which the next is told.
    async fn learn(&mut self, words: Words, action: Action, performed: &Result<(), ChildFailure>) {
        let is_end = action == Action::ShardEnded;
        match performed {
            // Some answer whatever they are told, also what they do not know.
            Ok(()) if words == Words::Shutdown && is_end && self.progress.owes_the_end().await => {
                self.ends.failed(words);
            }
            Ok(()) => self.ends.worked(words),
            // It knows them.
            Err(ChildFailure::WrongAnswer { .. }) => (),
            Err(_) => {
                let next = self.ends.failed(words);
                self.had_other_words = words == Words::OfEach && next == Words::Shutdown;
                if self.had_other_words {
                    let shard = &self.shard;
                    warn!(%shard, "child did not answer its end: the next is told of a `shutdown`");
                }
            }
        }
    }

    async fn talk(
        &mut self,
        message: &ToChild,
        action: Action,
        checkpointer: Option<Checkpointer>,
        limit: Option<Duration>,
    ) -> Result<(), ChildFailure> {
        // A child that asks for a checkpoint late, and says of nothing in particular, means what it
        // has read. What it says before all of `message` is written, it says without having read
        // that: so it is answered first, and what `message` brings is not the child's before then.
        for _ in 0..MOST_LATE {
            let Some(said) = self.pipe.hear_now().await? else { break };
            self.answer(said, limit).await?;
        }
        let words = self.ends.next(self.pipe.generation());
        let in_words = words.say(message);
        self.pipe.write(in_words.as_ref().unwrap_or(message), limit).await?;
        if matches!(action, Action::ShardEnded | Action::LeaseLost) {
            self.told_of_end = Some(words);
        }
        for said in self.pipe.take_heard() {
            self.answer(said, limit).await?;
        }
        self.progress.told(message, checkpointer);
        self.owes_the_end = match action {
            Action::Initialize => true,
            Action::ShardEnded | Action::LeaseLost | Action::Shutdown => false,
            Action::ProcessRecords | Action::ShutdownRequested => self.owes_the_end,
        };
        loop {
            let said = match limit {
                Some(limit) => {
                    let too_slow = |_elapsed| ChildFailure::TooSlow { action, limit };
                    timeout(limit, self.pipe.hear()).await.map_err(too_slow)??
                }
                None => self.pipe.hear().await?,
            };
            match said {
                FromChild::Status { response_for }
                    if is_answer(response_for.as_deref(), action) =>
                {
                    return Ok(());
                }
                FromChild::Status { response_for: answered } => {
                    return Err(ChildFailure::WrongAnswer { action, answered });
                }
                asked @ FromChild::Checkpoint(_) => self.answer(asked, limit).await?,
            }
        }
    }

    /// A child may ask for a checkpoint after it has said that it is done, as some do.
    async fn hear_unasked(
        &mut self,
        said: Result<FromChild, ChildFailure>,
    ) -> Result<(), ChildFailure> {
        let said = said?;
        let (limit, farewell) = (self.settings.answer_limit, self.settings.farewell);
        let given_up = given_up(self.abandoned.clone(), farewell);
        select! {
            biased;
            () = given_up => Err(ChildFailure::NotReading { limit: farewell }),
            answered = self.answer(said, limit) => answered,
        }
    }

    /// Gives the child what it asks for.
    async fn answer(
        &mut self,
        said: FromChild,
        limit: Option<Duration>,
    ) -> Result<(), ChildFailure> {
        match said {
            FromChild::Checkpoint(asked) => {
                let reply = self.progress.keep(asked).await;
                self.pipe.write(&ToChild::Checkpoint(reply), limit).await
            }
            FromChild::Status { response_for } => {
                if self.unasked.once_more() != Telling::Quietly {
                    warn!(shard = %self.shard, ?response_for, "child answered what nobody had asked");
                }
                Ok(())
            }
        }
    }

    /// Ends a child that is of no use any more.
    async fn fail(&mut self, failure: ChildFailure, action: Option<Action>) -> ChildFailure {
        let has_ended = match &failure {
            ChildFailure::Ended(_) => true,
            ChildFailure::Pipe(error) => error.kind() == io::ErrorKind::BrokenPipe,
            _ => false,
        };
        let failure =
            if has_ended { ChildFailure::Ended(self.pipe.end(LAST_WORDS).await) } else { failure };
        let shard = &self.shard;
        warn!(%shard, ?action, error = &failure as &dyn Error, "child failed, it is killed");
        self.pipe.kill().await;
        // Of one that was to end, nobody expects anything any more.
        let was_to_end = matches!(action, Some(Action::ShutdownRequested | Action::LeaseLost));
        if !was_to_end && !self.had_other_words && !self.abandoned.is_cancelled() {
            self.failed.cancel();
        }
        failure
    }

    /// Tells the child that its lease is lost, if it was told of no other end; then waits for its.
    async fn take_leave(&mut self) {
        let farewell = self.settings.farewell;
        if self.owes_the_end
            && let Err(failure) = self.perform(&ToChild::LeaseLost, None, Some(farewell)).await
        {
            self.fail(failure, Some(Action::LeaseLost)).await;
            return;
        }
        let shard = self.shard.clone();
        if let Some(status) = self.pipe.close(farewell).await {
            info!(%shard, %status, "child ended");
        } else {
            warn!(%shard, limit = ?farewell, "child did not end, it is killed");
            self.pipe.kill().await;
        }
    }
}

/// Completes once nobody has waited for a child's work for as long as `farewell`.
async fn given_up(abandoned: CancellationToken, farewell: Duration) {
    abandoned.cancelled().await;
    sleep(farewell).await;
}

/// Old children call every end a shutdown.
fn is_answer(answered: Option<&str>, action: Action) -> bool {
    let is_end =
        matches!(action, Action::LeaseLost | Action::ShardEnded | Action::ShutdownRequested);
    answered == Some(action.as_str()) || is_end && answered == Some(Action::Shutdown.as_str())
}

/// What a child may say between two things that it is told, before it is told the next.
const MOST_LATE: usize = 64;

/// For what is left to be done when a child has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
