//! What operators say to the daemon over gRPC: each word is answered once, as itself, and when it
//! is saved.

use std::time::Duration;

use weft_config::controller::{ControllerConfig, HostConfig, PlaceConfig, ReduceConfig};
use weft_controller::daemon::Daemon;
use weft_rpc::v1;
use weft_rpc::v1::status_client::StatusClient;
use weft_rpc::v1::worker_reply::Message as Heard;
use weft_rpc::v1::workers_client::WorkersClient;

use crate::common::{
    Box, PATIENCE, Worker, config, controller, more_job, one_granted, request, with_state,
};

/// Two operators: the first word counts, and is answered when the job stands still.
#[tokio::test]
async fn a_pause_is_answered_at_the_standstill_and_each_word_once() {
    let channel = controller(config()).await;
    let (mut server, mut worker, group) = one_granted(&channel).await;
    let mut client = WorkersClient::new(channel.clone());
    let pause = |name: &str| v1::PauseJobRequest { name: name.into() };
    let resume = |name: &str| v1::ResumeJobRequest { name: name.into() };
    let mut other = client.clone();
    let paused = tokio::spawn(async move { other.pause_job(pause("digits")).await });
    let mut status = StatusClient::new(channel.clone());
    let mut state =
        async || status.read(v1::StatusRequest {}).await.unwrap().into_inner().jobs[0].state();
    while state().await != v1::JobState::Pausing {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!paused.is_finished(), "what was granted has not finished");
    let twice = client.pause_job(pause("digits")).await.unwrap_err();
    assert_eq!(twice.code(), tonic::Code::FailedPrecondition);
    assert!(twice.message().contains("pausing already"), "{twice}");
    server.commit(&group).await;
    let stood = tokio::time::timeout(PATIENCE, paused).await.unwrap().unwrap().unwrap();
    assert!(stood.into_inner().standstill_ns > 0);
    assert_eq!(state().await, v1::JobState::Paused);
    // Nothing is granted, until it goes on.
    let Some(Heard::Delivered(_)) = worker.hear().await else { panic!("not delivered") };
    worker.ask(request(2)).await;
    client.resume_job(resume("digits")).await.unwrap();
    server.install().await;
    assert!(matches!(worker.hear().await, Some(Heard::Grant(_))));
    let running = client.resume_job(resume("digits")).await.unwrap_err();
    assert_eq!(running.code(), tonic::Code::FailedPrecondition);
    let unknown = client.pause_job(pause("none")).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
    let pushed = v1::ResizeJobRequest { name: "digits".into(), workers: 1 };
    let pushed = client.resize_job(pushed).await.unwrap_err();
    assert_eq!(pushed.code(), tonic::Code::FailedPrecondition);
}

/// Pause, resume, pause: whoever asked for the first one hears that it came to nothing.
#[tokio::test]
async fn of_words_that_come_at_once_each_is_answered_as_itself() {
    let channel = controller(config()).await;
    let (mut server, _worker, group) = one_granted(&channel).await;
    let client = WorkersClient::new(channel.clone());
    let pause = || v1::PauseJobRequest { name: "digits".into() };
    let (mut first, mut between, mut last) = (client.clone(), client.clone(), client);
    let words = async {
        let resume = v1::ResumeJobRequest { name: "digits".into() };
        tokio::join!(first.pause_job(pause()), between.resume_job(resume), async {
            let paused = last.pause_job(pause()).await;
            // In whatever order they came.
            if paused.is_err() { last.pause_job(pause()).await } else { paused }
        })
    };
    let commit = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.commit(&group).await;
    };
    let ((first, between, last), ()) = tokio::join!(words, commit);
    for outcome in [first.map(drop), between.map(drop), last.map(drop)] {
        let code = outcome.map_or_else(|status| status.code(), |()| tonic::Code::Ok);
        assert_ne!(code, tonic::Code::Unavailable, "the controller is there");
    }
}

/// Nobody hears of a word that the next life would not know.
#[tokio::test]
async fn a_word_is_answered_when_it_is_saved() {
    let (_directory, folder, config) = with_state();
    let state_file = folder.join("controller.json");
    let channel = controller(config).await;
    let _server = Box::attach(&channel, 0, 0).await;
    let mut client = WorkersClient::new(channel.clone());
    // The disk is gone.
    std::fs::remove_dir_all(&folder).unwrap();
    let mut other = client.clone();
    let pause = v1::PauseJobRequest { name: "digits".into() };
    let paused = tokio::spawn(async move { other.pause_job(pause).await });
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!paused.is_finished(), "it is not saved");
    let resume = v1::ResumeJobRequest { name: "digits".into() };
    std::fs::create_dir(&folder).unwrap();
    let paused = tokio::time::timeout(PATIENCE, paused).await.unwrap().unwrap();
    paused.unwrap();
    assert!(std::fs::read_to_string(&state_file).unwrap().contains("paused"));
    // A resume, too, is on the disk before it is answered.
    client.resume_job(resume).await.unwrap();
    assert!(!std::fs::read_to_string(&state_file).unwrap().contains("\"paused\""));
}

/// As above; of a refusal too, for it is of a word that may not outlive this controller.
#[tokio::test]
async fn a_job_comes_and_goes_for_its_operator_when_that_is_saved() {
    let (_directory, folder, config) = with_state();
    let state_file = folder.join("controller.json");
    let channel = controller(config).await;
    let client = WorkersClient::new(channel.clone());
    let more = more_job();
    let code = |outcome: Result<(), tonic::Status>| outcome.err().map(|status| status.code());
    let register = || {
        let (mut client, more) = (client.clone(), more.clone());
        tokio::spawn(async move { client.register_job(more).await.map(drop) })
    };
    let unregister = || {
        let mut client = client.clone();
        let more = v1::UnregisterJobRequest { name: "more".into() };
        tokio::spawn(async move { client.unregister_job(more).await.map(drop) })
    };
    type Word = tokio::task::JoinHandle<Result<(), tonic::Status>>;
    let ended = async |word: Word| tokio::time::timeout(PATIENCE, word).await.unwrap().unwrap();
    let is_kept = || std::fs::read_to_string(&state_file).unwrap().contains("\"more\"");
    for is_coming in [true, false] {
        // The disk is gone.
        std::fs::remove_dir_all(&folder).unwrap();
        let word = || if is_coming { register() } else { unregister() };
        let (first, again) = (word(), word());
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert!(!first.is_finished() && !again.is_finished(), "it is not saved");
        std::fs::create_dir(&folder).unwrap();
        let outcomes = [code(ended(first).await), code(ended(again).await)];
        assert_eq!(is_kept(), is_coming, "it was answered");
        let refused = if is_coming { tonic::Code::AlreadyExists } else { tonic::Code::NotFound };
        assert!(outcomes.contains(&None) && outcomes.contains(&Some(refused)), "{outcomes:?}");
    }
}

/// The second would overwrite the state of the first.
#[tokio::test]
async fn a_state_file_is_one_controllers() {
    let directory = tempfile::tempdir().unwrap();
    let state_file = Some(directory.path().join("state.json").to_str().unwrap().to_owned());
    let config = ControllerConfig { state_file, ..config() };
    let first = Daemon::bind(config.clone()).await.unwrap();
    let second = Daemon::bind(config.clone()).await.unwrap_err();
    assert_eq!(second.exit_status(), 3);
    let said = second.to_string();
    assert!(said.contains("another weft-controller") && said.contains("state.json"), "{said}");
    // One that ended in order lets go of it.
    first.run(async {}).await.unwrap();
    Daemon::bind(config).await.unwrap();
}

/// A word that cannot be is refused with the numbers of whoever said it; a worker that is of
/// another kind of job than it says hears which.
#[tokio::test]
async fn what_cannot_be_is_refused_as_it_was_said() {
    let place = PlaceConfig { host: "w0".into(), address: "127.0.0.1:23000".parse().unwrap() };
    let reduce = ReduceConfig::new("sums", 2, "a0", (vec![place], 1), -20);
    let hosts = ["w0", "w1", "s0", "a0"].map(HostConfig::named).into();
    let config = ControllerConfig { hosts, reduces: vec![reduce], ..config() };
    let channel = controller(config).await;
    let mut client = WorkersClient::new(channel.clone());
    for workers in [2, 70_000, 1 << 31, u32::MAX] {
        let word = v1::ResizeJobRequest { name: "sums".into(), workers };
        let refused = client.resize_job(word).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
        let wanted = format!("workers: {workers} are wanted, and the job has 1 places");
        assert!(refused.message().starts_with(&wanted), "{refused}");
    }
    let halt = v1::Halt::None.into();
    let position = v1::RoundPosition { halt, ..v1::RoundPosition::default() };
    for (job, position, problem) in [
        (2, None, "is missing; `sums` is an allreduce job"),
        (1, Some(position), "is of no use; `digits` is a push job"),
    ] {
        let hello = v1::WorkerHello { job, name: None, rank: 0, life: 7, position };
        let mut worker = Worker::attach(&channel, hello).await;
        let Some(Heard::Refused(refused)) = worker.hear().await else { panic!("not refused") };
        assert_eq!(refused.field, "position", "{refused:?}");
        assert!(refused.problem.starts_with(problem), "{refused:?}");
    }
}
