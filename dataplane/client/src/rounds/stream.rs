//! The thread that speaks gRPC to the controller for [`super::RoundControl`], and dials again when
//! the stream breaks. Decides nothing.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use weft_control::CohortId;
use weft_rpc::convert::rounds;
use weft_rpc::tls::{self, CallRuntime, DialError, Dialler};
use weft_rpc::v1;
use weft_rpc::v1::worker_message::Message as Said;
use weft_rpc::v1::worker_reply::Message as Heard;
use weft_rpc::v1::workers_client::WorkersClient;

use super::{Begun, Nudge, RoundConfig, RoundError, Shared, cohort_id};

/// Starts the thread. It ends when the returned sender is dropped.
pub(super) fn start(
    config: &RoundConfig,
    shared: Arc<Shared>,
) -> Result<mpsc::Sender<Nudge>, RoundError> {
    let problem = |error: &dyn std::fmt::Display| RoundError::Controller(error.to_string());
    let dialler = Dialler::new(&config.endpoint, config.tls.as_ref())
        .map_err(|error| problem(&error))?
        .keep_alive(SILENCE / 2);
    let life = match config.life {
        Some(life) => life,
        None => getrandom::u64().map_err(|error| problem(&error))?,
    };
    let runtime = CallRuntime::new().map_err(|error| problem(&error))?;
    let hello = v1::WorkerHello {
        job: config.job.into(),
        name: None,
        rank: config.rank.into(),
        life: life.max(1),
        position: None,
    };
    let (nudge, nudged) = mpsc::channel(NUDGES_MAX);
    let cohort = cohort_id(config);
    thread::Builder::new()
        .name("weft-rounds".to_owned())
        .spawn(move || runtime.block_on(serve(&dialler, (hello, cohort), nudged, &shared)))
        .map_err(|error| problem(&error))?;
    Ok(nudge)
}

/// How a stream ended.
enum End {
    /// The worker is gone.
    Worker,
    /// The controller will not have it.
    Refused(String),
    /// Its cohort is over.
    Over,
    Broken,
}

impl Shared {
    /// Notes how a stream ended, and wakes who waits; true if there is to be none after it.
    fn note(&self, ended: End) -> bool {
        let now_ns = self.now_ns();
        let mut state = self.lock();
        let is_last = match ended {
            End::Worker => return true,
            End::Refused(problem) => {
                state.refused = Some(problem);
                true
            }
            End::Over => {
                state.rounds.handle_over();
                true
            }
            End::Broken => {
                state.rounds.handle_lost(now_ns);
                false
            }
        };
        drop(state);
        self.heard.notify_all();
        is_last
    }
}

async fn serve(
    dialler: &Dialler,
    hello: (v1::WorkerHello, CohortId),
    mut nudged: mpsc::Receiver<Nudge>,
    shared: &Shared,
) {
    loop {
        let ended = attach(dialler, &hello, &mut nudged, shared).await;
        if shared.note(ended) {
            return;
        }
        tokio::time::sleep(REDIAL).await;
    }
}

async fn attach(
    dialler: &Dialler,
    (hello, cohort): &(v1::WorkerHello, CohortId),
    nudged: &mut mpsc::Receiver<Nudge>,
    shared: &Shared,
) -> End {
    let (said, outbound) = mpsc::channel(NUDGES_MAX);
    let position = shared.lock().rounds.position();
    let position = Some(rounds::position_to_proto(*cohort, position));
    let hello = Said::Hello(v1::WorkerHello { position, ..hello.clone() });
    if said.send(message(hello)).await.is_err() {
        return End::Broken;
    }
    let dial = dialler.dial(|channel| async {
        WorkersClient::new(channel).attach(ReceiverStream::new(outbound)).await
    });
    let mut heard = match dial.await {
        Ok(stream) => stream.into_inner(),
        Err(DialError::Answer(status)) if status.code() == tonic::Code::InvalidArgument => {
            return End::Refused(status.message().to_owned());
        }
        Err(error) => return tls::refusal(&error).map_or(End::Broken, End::Refused),
    };
    let mut is_welcome = false;
    loop {
        tokio::select! {
            reply = heard.message() => {
                let Ok(Some(reply)) = reply else { return End::Broken };
                if let Some(end) = take(reply, &mut is_welcome, shared) {
                    return end;
                }
                shared.heard.notify_all();
            }
            begun = nudged.recv() => {
                let Some(begun) = begun else { return End::Worker };
                if let Some(Begun { round, bytes, messages }) = begun {
                    let messages = messages.map(rounds::messages_to_proto);
                    let begun = Said::RoundBegun(v1::RoundBegun { round, bytes, messages });
                    if said.send(message(begun)).await.is_err() {
                        return End::Broken;
                    }
                }
            }
        }
        let position = {
            let mut state = shared.lock();
            let is_between = state.is_between;
            state.rounds.poll_position(is_between)
        };
        if let Some(position) = position {
            let position = Said::RoundPosition(rounds::position_to_proto(*cohort, position));
            if said.send(message(position)).await.is_err() {
                return End::Broken;
            }
        }
    }
}

/// Takes in what the controller says; the end of the stream, if it is that.
fn take(reply: v1::WorkerReply, is_welcome: &mut bool, shared: &Shared) -> Option<End> {
    match reply.message? {
        Heard::Cohort(said) => {
            // One of another version of Weft's is not understood, and never welcomed.
            let mut state = shared.lock();
            state.cohort = rounds::cohort(&said).ok();
            state.rounds.handle_attached();
            *is_welcome = true;
        }
        Heard::RoundOrder(said) => {
            if let Ok((turn, order)) = rounds::round_order(&said) {
                shared.lock().rounds.handle_order(turn, order);
            }
        }
        Heard::Refused(refused) if refused.field == "cohort" && refused.problem == "bye" => {
            return Some(End::Over);
        }
        // What crossed the cohort's end on its way; that it is over is told next.
        Heard::Refused(_) if *is_welcome => {}
        Heard::Refused(refused) => {
            return Some(End::Refused(format!("`{}` {}", refused.field, refused.problem)));
        }
        _ => {}
    }
    None
}

fn message(said: Said) -> v1::WorkerMessage {
    v1::WorkerMessage { message: Some(said) }
}

/// Rounds that wait for the stream.
const NUDGES_MAX: usize = 256;
/// How long the controller may say nothing before its stream counts as broken.
const SILENCE: Duration = Duration::from_secs(2);
/// How long until it is dialled again.
const REDIAL: Duration = Duration::from_millis(100);
