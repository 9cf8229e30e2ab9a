//! A worker's stream to its controller, against one that does as the test says: what the worker may
//! begin, what it tells of itself, and what becomes of both when the stream breaks.

use std::net::SocketAddr;
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};
use weft_client::rounds::{Next, RoundConfig, RoundControl, RoundError};
use weft_control::{Cohort, CohortId, RoundOrder};
use weft_rpc::convert::rounds::{cohort_to_proto, round_order_to_proto};
use weft_rpc::v1;
use weft_rpc::v1::worker_message::Message as Said;
use weft_rpc::v1::worker_reply::Message as Told;
use weft_rpc::v1::workers_server::{Workers, WorkersServer};

const PATIENCE: Duration = Duration::from_secs(20);

/// The reply side of the present stream.
type Replies = Arc<Mutex<Option<mpsc::Sender<Result<v1::WorkerReply, Status>>>>>;

/// A controller that a test plays.
struct Controller {
    endpoint: String,
    heard: std_mpsc::Receiver<Said>,
    replies: Replies,
    _stop: oneshot::Sender<()>,
}

struct Service {
    tell: std_mpsc::Sender<Said>,
    replies: Replies,
}

impl Controller {
    fn start() -> Self {
        let (tell, heard) = std_mpsc::channel();
        let replies = Replies::default();
        let service = Service { tell, replies: Arc::clone(&replies) };
        let (stop, stopped) = oneshot::channel();
        let (told, addr) = std_mpsc::channel::<SocketAddr>();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
                told.send(listener.local_addr().expect("bound")).expect("the test waits");
                let serve = tonic::transport::Server::builder()
                    .add_service(WorkersServer::new(service))
                    .serve_with_incoming(TcpListenerStream::new(listener));
                tokio::select! {
                    served = serve => served.expect("it serves"),
                    _ = stopped => {}
                }
            });
        });
        let endpoint = format!("http://{}", addr.recv().expect("it listens"));
        Self { endpoint, heard, replies, _stop: stop }
    }

    fn hear(&self) -> Said {
        self.heard.recv_timeout(PATIENCE).expect("the worker says something")
    }

    fn hello(&self) -> v1::WorkerHello {
        loop {
            if let Said::Hello(hello) = self.hear() {
                return hello;
            }
        }
    }

    fn position(&self) -> v1::RoundPosition {
        loop {
            if let Said::RoundPosition(position) = self.hear() {
                return position;
            }
        }
    }

    fn begun(&self) -> v1::RoundBegun {
        loop {
            if let Said::RoundBegun(begun) = self.hear() {
                return begun;
            }
        }
    }

    fn tell(&self, message: Told) {
        let replies = self.replies.lock().expect("not poisoned").clone().expect("a stream");
        let reply = v1::WorkerReply { message: Some(message) };
        replies.blocking_send(Ok(reply)).expect("the worker reads");
    }

    fn welcome(&self) {
        self.tell(Told::Cohort(cohort_to_proto(COHORT)));
    }

    fn order(&self, turn: u32, order: RoundOrder) {
        self.tell(Told::RoundOrder(round_order_to_proto(turn, order)));
    }

    fn refuse(&self, field: &str, problem: &str) {
        let (field, problem) = (field.to_owned(), problem.to_owned());
        self.tell(Told::Refused(v1::Refused { field, problem, ..v1::Refused::default() }));
    }

    /// Ends the present stream.
    fn hang_up(&self) {
        *self.replies.lock().expect("not poisoned") = None;
    }

    /// A worker of cohort 2, which begins with round 7, welcomed.
    fn worker(&self) -> RoundControl {
        let config = config(&self.endpoint);
        let connecting = thread::spawn(move || RoundControl::connect(&config));
        self.hello();
        self.welcome();
        connecting.join().expect("it does not panic").expect("it is welcome")
    }
}

fn config(endpoint: &str) -> RoundConfig {
    let config = RoundConfig::new(endpoint, 3).rank(1);
    RoundConfig { cohort: 2, next_round: 7, life: Some(77), ..config }
}

const COHORT: Cohort = Cohort { id: CohortId(2), workers: 4, workers_first: 2, from_round: 7 };

#[tonic::async_trait]
impl Workers for Service {
    type AttachStream = ReceiverStream<Result<v1::WorkerReply, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::WorkerMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let mut inbound = request.into_inner();
        let (replies, stream) = mpsc::channel(64);
        *self.replies.lock().expect("not poisoned") = Some(replies);
        let tell = self.tell.clone();
        tokio::spawn(async move {
            while let Ok(Some(message)) = inbound.message().await {
                let said = message.message.expect("workers say something");
                if tell.send(said).is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn set_band_policy(
        &self,
        _: Request<v1::SetBandPolicyRequest>,
    ) -> Result<Response<v1::SetBandPolicyReply>, Status> {
        Err(Status::unimplemented("nobody asks here"))
    }

    async fn hold(&self, _: Request<v1::HoldRequest>) -> Result<Response<v1::HoldReply>, Status> {
        Err(Status::unimplemented("nobody asks here"))
    }

    async fn pause_job(
        &self,
        _: Request<v1::PauseJobRequest>,
    ) -> Result<Response<v1::PauseJobReply>, Status> {
        Err(Status::unimplemented("nobody asks here"))
    }

    async fn resize_job(
        &self,
        _: Request<v1::ResizeJobRequest>,
    ) -> Result<Response<v1::ResizeJobReply>, Status> {
        Err(Status::unimplemented("nobody asks here"))
    }

    async fn resume_job(
        &self,
        _: Request<v1::ResumeJobRequest>,
    ) -> Result<Response<v1::ResumeJobReply>, Status> {
        Err(Status::unimplemented("nobody asks here"))
    }

    async fn register_job(
        &self,
        _: Request<v1::RegisterJobRequest>,
    ) -> Result<Response<v1::RegisterJobReply>, Status> {
        Err(Status::unimplemented("nobody asks here"))
    }

    async fn unregister_job(
        &self,
        _: Request<v1::UnregisterJobRequest>,
    ) -> Result<Response<v1::UnregisterJobReply>, Status> {
        Err(Status::unimplemented("nobody asks here"))
    }
}

/// Asks for what comes next on a thread, for the answer may take as long as the test likes.
fn ask(mut worker: RoundControl) -> thread::JoinHandle<(Result<Next, RoundError>, RoundControl)> {
    thread::spawn(move || (worker.next_round(4000), worker))
}

/// What came of that, within the test's patience.
fn answered(
    asked: thread::JoinHandle<(Result<Next, RoundError>, RoundControl)>,
) -> (Result<Next, RoundError>, RoundControl) {
    let until = Instant::now() + PATIENCE;
    while !asked.is_finished() {
        assert!(Instant::now() < until, "it is not answered");
        thread::sleep(Duration::from_millis(5));
    }
    asked.join().expect("it does not panic")
}

#[test]
fn a_worker_says_who_it_is_and_waits_until_it_is_welcome() {
    let controller = Controller::start();
    let config = config(&controller.endpoint);
    let connecting = thread::spawn(move || RoundControl::connect(&config));
    let hello = controller.hello();
    assert_eq!((hello.job, hello.rank, hello.life), (3, 1, 77));
    let position = hello.position.expect("a worker of an allreduce says where it is");
    assert_eq!((position.cohort, position.next), (2, 7));
    thread::sleep(Duration::from_millis(100));
    assert!(!connecting.is_finished(), "its lease is not in");
    controller.welcome();
    let worker = connecting.join().expect("it does not panic").expect("it is welcome");
    assert_eq!(worker.cohort(), COHORT);
}

#[test]
fn whoever_is_refused_hears_why_and_whoever_hears_nothing_gives_up_in_time() {
    let controller = Controller::start();
    let own = config(&controller.endpoint);
    let connecting = thread::spawn(move || RoundControl::connect(&own));
    controller.hello();
    controller.refuse("rank", "is nobody's");
    let error = connecting.join().expect("it does not panic").expect_err("it is refused");
    assert!(matches!(&error, RoundError::Refused(why) if why == "`rank` is nobody's"), "{error}");
    let begun = Instant::now();
    let short =
        RoundConfig { connect_timeout: Duration::from_millis(300), ..config(&controller.endpoint) };
    let error = RoundControl::connect(&short).expect_err("nobody answers");
    assert!(matches!(error, RoundError::Silent { .. }), "{error}");
    assert!((250..5000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
}

#[test]
fn no_round_begins_before_an_order_and_each_is_told() {
    let controller = Controller::start();
    let asked = ask(controller.worker());
    thread::sleep(Duration::from_millis(150));
    assert!(!asked.is_finished(), "it was told nothing");
    controller.order(1, RoundOrder::Go);
    let (next, mut worker) = asked.join().expect("it does not panic");
    assert_eq!(next.expect("a round"), Next::Round(7));
    let begun = controller.begun();
    assert_eq!((begun.round, begun.bytes, begun.messages), (7, 4000, None));
    for round in 8..11 {
        assert_eq!(worker.next_round(12).expect("a round"), Next::Round(round));
        assert_eq!(controller.begun().round, round);
    }
}

/// Where it is it says at once when it is to hold, and of a boundary only once the round before it
/// has ended: when it asks for the next.
#[test]
fn it_stands_at_the_boundary_only_when_the_round_before_has_ended() {
    let controller = Controller::start();
    let asked = ask(controller.worker());
    controller.order(1, RoundOrder::Go);
    let (_, worker) = asked.join().expect("it does not panic");
    controller.order(2, RoundOrder::Hold);
    let held = loop {
        let position = controller.position();
        if position.turn == 2 {
            break position;
        }
    };
    assert_eq!((held.halt(), held.next), (v1::Halt::Held, 8), "within its round, and at once");
    controller.order(3, RoundOrder::Stop(8));
    let running = controller.position();
    assert_eq!((running.turn, running.halt()), (3, v1::Halt::None), "round 7 has not ended");
    let asked = ask(worker);
    let stands = controller.position();
    assert_eq!((stands.turn, stands.next, stands.halt()), (3, 8, v1::Halt::Stopped));
    thread::sleep(Duration::from_millis(150));
    assert!(!asked.is_finished(), "the job is paused");
    controller.order(4, RoundOrder::Go);
    assert_eq!(asked.join().expect("no panic").0.expect("a round"), Next::Round(8));
}

/// The checkpoint counts as kept when the worker asks again, not when it was told to keep one.
#[test]
fn a_checkpoint_is_kept_before_that_is_told_and_then_the_worker_may_end() {
    let controller = Controller::start();
    let worker = controller.worker();
    controller.order(1, RoundOrder::Leave(7));
    let (next, worker) = ask(worker).join().expect("it does not panic");
    assert_eq!(next.expect("a checkpoint"), Next::Checkpoint(7));
    let until = Instant::now() + Duration::from_millis(300);
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        let Ok(said) = controller.heard.recv_timeout(left) else { break };
        let kept = matches!(&said, Said::RoundPosition(at) if at.halt() == v1::Halt::Left);
        assert!(!kept, "it is not on the disk yet");
    }
    let asked = ask(worker);
    let kept = controller.position();
    assert_eq!((kept.turn, kept.halt(), kept.next), (1, v1::Halt::Left, 7));
    assert!(!asked.is_finished(), "the others may be keeping theirs");
    controller.order(2, RoundOrder::Bye);
    assert_eq!(asked.join().expect("no panic").0.expect("an end"), Next::End);
}

/// The stream breaks and comes back: it is the same life, where it is now, and what it was told
/// before stands until it hears otherwise.
#[test]
fn a_worker_calls_again_and_goes_on_meanwhile() {
    let controller = Controller::start();
    let asked = ask(controller.worker());
    controller.order(1, RoundOrder::Go);
    let (_, mut worker) = asked.join().expect("it does not panic");
    controller.hang_up();
    assert_eq!(worker.next_round(1).expect("nobody said stop"), Next::Round(8));
    let hello = controller.hello();
    let position = hello.position.expect("where it is");
    assert_eq!((hello.life, position.next, position.cohort), (77, 9, 2));
    controller.welcome();
    controller.order(9, RoundOrder::Hold);
    let held = loop {
        let position = controller.position();
        if position.turn == 9 {
            break position;
        }
    };
    assert_eq!((held.next, held.halt()), (9, v1::Halt::Held));
    let asked = ask(worker);
    thread::sleep(Duration::from_millis(150));
    assert!(!asked.is_finished());
    // A refusal of something that crossed the end of the cohort is no end; `bye` is.
    controller.refuse("hello", "say hello before reporting rounds");
    thread::sleep(Duration::from_millis(150));
    assert!(!asked.is_finished());
    controller.refuse("cohort", "bye");
    assert_eq!(answered(asked).0.expect("an end"), Next::End);
}

/// Whoever waits hears at once that its cohort is over, and does not find out when it looks again.
#[test]
fn the_end_of_a_cohort_wakes_whoever_waits() {
    // It looks every 100 ms; the machine may be slow at times.
    let took = |_| {
        let controller = Controller::start();
        let worker = controller.worker();
        controller.order(1, RoundOrder::Hold);
        controller.position();
        let asked = ask(worker);
        // It waits by then, and has just begun to.
        thread::sleep(Duration::from_millis(10));
        let said = Instant::now();
        controller.refuse("cohort", "bye");
        let (next, _) = asked.join().expect("it does not panic");
        assert_eq!(next.expect("an end"), Next::End);
        said.elapsed()
    };
    let fastest = (0..5).map(took).min().expect("five times");
    assert!(fastest < Duration::from_millis(50), "{fastest:?}");
}

/// A worker that was started for a cohort that is over is told so when it first calls.
#[test]
fn a_worker_of_a_cohort_that_is_over_is_refused_at_once() {
    let controller = Controller::start();
    let config = config(&controller.endpoint);
    let connecting = thread::spawn(move || RoundControl::connect(&config));
    controller.hello();
    let said = Instant::now();
    controller.refuse("cohort", "bye");
    let error = connecting.join().expect("it does not panic").expect_err("it is over");
    assert!(
        matches!(&error, RoundError::Refused(why) if why.contains("cohort 2 is over")),
        "{error}"
    );
    assert!(said.elapsed() < Duration::from_secs(10), "{:?}", said.elapsed());
}

/// On a stream after the first, where it was not welcomed again, a refusal counts.
#[test]
fn a_worker_that_is_refused_when_it_calls_again_hears_so() {
    let controller = Controller::start();
    let asked = ask(controller.worker());
    controller.order(1, RoundOrder::Hold);
    thread::sleep(Duration::from_millis(50));
    controller.hang_up();
    controller.hello();
    controller.refuse("cohort", "is 2; the job's workers are cohort 1");
    let (next, _) = answered(asked);
    let error = next.expect_err("it is nobody's worker");
    assert!(matches!(&error, RoundError::Refused(why) if why.contains("is 2;")), "{error}");
}

/// A worker that is gone ends its stream: its controller counts on nobody who is not there.
#[test]
fn dropping_it_ends_the_stream() {
    let controller = Controller::start();
    let worker = controller.worker();
    drop(worker);
    let gone = Instant::now() + PATIENCE;
    let replies = controller.replies.lock().expect("not poisoned").clone().expect("a stream");
    while !replies.is_closed() {
        assert!(Instant::now() < gone, "the stream stays");
        thread::sleep(Duration::from_millis(10));
    }
}
