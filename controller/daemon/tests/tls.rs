//! Who may call, and what: every call by every role, certificates that are not accepted, calls
//! without TLS, and a renewal while streams are open.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status, Streaming};
use weft_config::TlsSection;
use weft_config::controller::{ControllerConfig, HostConfig, JobConfig};
use weft_controller::daemon::Daemon;
use weft_rpc::certs::{Authority, Issued, Validity};
use weft_rpc::identity::Identity;
use weft_rpc::tls::{Dialler, TlsFiles, refusal};
use weft_rpc::v1;
use weft_rpc::v1::nodes_client::NodesClient;
use weft_rpc::v1::status_client::StatusClient;
use weft_rpc::v1::worker_message::Message as Said;
use weft_rpc::v1::worker_reply::Message as Heard;
use weft_rpc::v1::workers_client::WorkersClient;

const PATIENCE: Duration = Duration::from_secs(20);

#[expect(clippy::disallowed_methods, reason = "certificates are valid by the time of day")]
fn now_unix_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap()
}

fn days(days: u32) -> Validity {
    Validity::days(now_unix_s(), days)
}

fn config(listen: &str) -> ControllerConfig {
    ControllerConfig {
        hosts: ["w0", "w1", "s0"].map(HostConfig::named).into(),
        jobs: vec![JobConfig::new("digits", 1, 1000, ["w0", "w1"], "s0")],
        ..ControllerConfig::new(listen.parse().unwrap())
    }
}

/// A CA and the folder with what it signed.
struct Pki {
    folder: tempfile::TempDir,
    authority: Authority,
    ca: Issued,
}

impl Pki {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (authority, ca) = Authority::create("test", days(10)).unwrap();
        std::fs::write(folder.path().join("ca.pem"), &ca.cert).unwrap();
        let pki = Self { folder, authority, ca };
        pki.issue("controller", "weft:role/controller", days(5));
        pki
    }

    fn issue(&self, name: &str, uri: &str, validity: Validity) -> TlsFiles {
        let identity: Identity = uri.parse().unwrap();
        let hosts = match identity {
            Identity::Controller => vec!["127.0.0.1".to_owned()],
            _ => Vec::new(),
        };
        let issued = self.authority.issue(&identity, &hosts, validity, None).unwrap();
        let files = self.files(name);
        replace(&files.key, &issued.key);
        replace(&files.cert, &issued.cert);
        files
    }

    fn files(&self, name: &str) -> TlsFiles {
        TlsFiles::in_folder(self.folder.path(), name)
    }

    /// A channel with a new certificate for this role.
    async fn channel(&self, at: &str, uri: &str) -> Channel {
        let files = self.issue("caller", uri, days(5));
        dial(at, &files).await.unwrap()
    }
}

fn replace(path: &Path, text: &str) {
    let beside: PathBuf = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, path).unwrap();
}

async fn dial(at: &str, files: &TlsFiles) -> Result<Channel, weft_rpc::tls::DialError> {
    let endpoint = format!("https://{at}");
    Dialler::new(&endpoint, Some(files)).unwrap().dial(|channel| async { Ok(channel) }).await
}

fn section(files: &TlsFiles) -> TlsSection {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    TlsSection { ca: text(&files.ca), cert: text(&files.cert), key: text(&files.key) }
}

/// A controller with this certificate; returns where it listens.
async fn controller(tls: Option<&TlsFiles>) -> String {
    let config = ControllerConfig { tls: tls.map(section), ..config("127.0.0.1:0") };
    let daemon = Daemon::bind(config).await.unwrap();
    let addr = daemon.addr;
    tokio::spawn(daemon.run(std::future::pending()));
    addr.to_string()
}

fn register(job: u32) -> v1::RegisterJobRequest {
    v1::RegisterJobRequest {
        name: format!("job{job}"),
        job,
        dimension: 10,
        worker_hosts: vec!["w0".into()],
        server: "s0".into(),
        ..v1::RegisterJobRequest::default()
    }
}

type Replies = Streaming<v1::WorkerReply>;

async fn attach_worker(
    channel: &Channel,
    job: u32,
    rank: u32,
) -> Result<(mpsc::Sender<v1::WorkerMessage>, Replies), Status> {
    let (said, outbound) = mpsc::channel(8);
    let hello = v1::WorkerHello { job, name: None, rank, life: 7, position: None };
    said.send(v1::WorkerMessage { message: Some(Said::Hello(hello)) }).await.unwrap();
    let mut client = WorkersClient::new(channel.clone());
    let heard = client.attach(ReceiverStream::new(outbound)).await?.into_inner();
    Ok((said, heard))
}

async fn attach_node(channel: &Channel, name: &str) -> Result<Streaming<v1::Command>, Status> {
    let (said, outbound) = mpsc::channel(8);
    let role = v1::JobRole {
        job: 1,
        role: v1::Role::Server.into(),
        address: "127.0.0.1:22341".into(),
        ..v1::JobRole::default()
    };
    let hello = v1::NodeHello {
        name: name.into(),
        roles: if name == "s0" { vec![role] } else { Vec::new() },
        life: 3,
        ..v1::NodeHello::default()
    };
    let message = Some(v1::node_message::Message::Hello(hello));
    said.send(v1::NodeMessage { message }).await.unwrap();
    let heard = NodesClient::new(channel.clone()).attach(ReceiverStream::new(outbound)).await?;
    // The stream lives as long as what is said on it may go on.
    tokio::spawn(async move {
        tokio::time::sleep(PATIENCE).await;
        drop(said);
    });
    Ok(heard.into_inner())
}

async fn hear(replies: &mut Replies) -> Heard {
    let reply = tokio::time::timeout(PATIENCE, replies.message()).await.expect("in time");
    reply.unwrap().expect("a reply").message.unwrap()
}

#[tokio::test]
async fn every_call_is_for_one_role_alone() {
    let pki = Pki::new();
    let at = controller(Some(&pki.files("controller"))).await;
    for (role, may) in [
        ("worker", [true, false, false, false, false]),
        ("node", [false, true, false, false, false]),
        ("operator", [false, false, true, true, true]),
    ] {
        let channel = pki.channel(&at, &format!("weft:role/{role}")).await;
        let outcomes = [
            attach_worker(&channel, 1, 0).await.map(|_| ()),
            attach_node(&channel, "s0").await.map(|_| ()),
            WorkersClient::new(channel.clone()).register_job(register(2)).await.map(|_| ()),
            WorkersClient::new(channel.clone())
                .unregister_job(v1::UnregisterJobRequest { name: "job2".into() })
                .await
                .map(|_| ()),
            StatusClient::new(channel.clone()).read(v1::StatusRequest {}).await.map(|_| ()),
        ];
        for (call, (outcome, may)) in outcomes.into_iter().zip(may).enumerate() {
            match outcome {
                Ok(()) => assert!(may, "{role} made call {call}"),
                Err(status) => {
                    assert!(!may, "{role} could not make call {call}: {status}");
                    assert_eq!(status.code(), Code::PermissionDenied);
                    assert!(status.message().contains(&format!("weft:role/{role}")), "{status}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_pinned_certificate_is_for_its_job_rank_and_name_alone() {
    let pki = Pki::new();
    let at = controller(Some(&pki.files("controller"))).await;
    let operator = pki.channel(&at, "weft:role/operator").await;
    WorkersClient::new(operator).register_job(register(2)).await.unwrap();
    for (uri, job, rank, refused) in [
        ("weft:role/worker", 1, 1, None),
        ("weft:role/worker/job/1", 1, 0, None),
        ("weft:role/worker/job/1/rank/0", 1, 0, None),
        ("weft:role/worker/job/2", 1, 0, Some("job")),
        ("weft:role/worker/job/2/rank/0", 1, 0, Some("job")),
        ("weft:role/worker/job/1/rank/0", 1, 1, Some("rank")),
    ] {
        let channel = pki.channel(&at, uri).await;
        let (_said, mut heard) = attach_worker(&channel, job, rank).await.unwrap();
        match (tokio::time::timeout(PATIENCE, heard.message()).await.unwrap(), refused) {
            (Ok(Some(reply)), _) => match (reply.message.unwrap(), refused) {
                (Heard::Welcome(_), None) => {}
                (Heard::Refused(said), Some(field)) => assert_eq!(said.field, field),
                (other, _) => panic!("{uri}: {other:?}"),
            },
            (other, _) => panic!("{uri}: {other:?}"),
        }
    }
    for (uri, name, may) in [
        ("weft:role/node", "w0", true),
        ("weft:role/node/name/w1", "w1", true),
        ("weft:role/node/name/w1", "s0", false),
    ] {
        let channel = pki.channel(&at, uri).await;
        let mut commands = attach_node(&channel, name).await.unwrap();
        let first = commands.message().await.unwrap().unwrap().command.unwrap();
        match first {
            v1::command::Command::Welcome(_) => assert!(may, "{uri} attached as {name}"),
            v1::command::Command::Refused(refused) => {
                assert!(!may, "{uri} could not attach as {name}: {refused:?}");
                assert_eq!(refused.field, "name");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// What a call fails with, wherever it fails.
async fn failure(at: &str, files: &TlsFiles) -> String {
    let channel = match dial(at, files).await {
        Ok(channel) => channel,
        Err(error) => return refusal(&error).unwrap_or_else(|| format!("no refusal: {error}")),
    };
    let status = StatusClient::new(channel).read(v1::StatusRequest {}).await.unwrap_err();
    refusal(&status).unwrap_or_else(|| format!("no refusal: {status:?}"))
}

#[tokio::test]
async fn certificates_that_are_not_accepted_are_said_to_be_so() {
    let (pki, other) = (Pki::new(), Pki::new());
    let at = controller(Some(&pki.files("controller"))).await;

    let ended = Validity { from_unix_s: now_unix_s() - 1000, until_unix_s: now_unix_s() - 10 };
    let said = failure(&at, &pki.issue("ended", "weft:role/operator", ended)).await;
    assert!(said.contains("CertificateExpired"), "{said}");

    // Of another CA, by one who trusts this one.
    let mut files = other.issue("stranger", "weft:role/operator", days(5));
    files.ca = pki.files("controller").ca;
    let said = failure(&at, &files).await;
    assert!(said.contains("does not accept the certificate"), "{said}");

    // The other way round: the caller trusts another CA.
    let said = failure(&at, &other.issue("caller", "weft:role/operator", days(5))).await;
    assert!(said.contains("the controller's certificate is not accepted"), "{said}");

    // A controller's certificate is for being called, not for calling.
    let said = failure(&at, &pki.issue("called", "weft:role/controller", days(5))).await;
    assert!(said.contains("does not accept the certificate"), "{said}");

    // Nor is a worker's for being called.
    let worker = controller(Some(&pki.issue("worker", "weft:role/worker", days(5)))).await;
    let said = failure(&worker, &pki.issue("caller", "weft:role/operator", days(5))).await;
    assert!(said.contains("the controller's certificate is not accepted"), "{said}");

    // None at all.
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&pki.ca.cert));
    let endpoint = Endpoint::from_shared(format!("https://{at}")).unwrap();
    let channel = endpoint.tls_config(config).unwrap().connect().await.unwrap();
    let status = StatusClient::new(channel).read(v1::StatusRequest {}).await.unwrap_err();
    assert!(refusal(&status).unwrap().contains("CertificateRequired"), "{status:?}");

    // None of these reached a service; a good one does, and finds them counted.
    let channel = pki.channel(&at, "weft:role/operator").await;
    StatusClient::new(channel).read(v1::StatusRequest {}).await.unwrap();
}

#[tokio::test]
async fn a_call_without_tls_is_told_what_to_do() {
    let pki = Pki::new();
    let at = controller(Some(&pki.files("controller"))).await;
    let channel = Channel::from_shared(format!("http://{at}")).unwrap().connect().await;
    let status = match channel {
        Ok(channel) => {
            let outcome = StatusClient::new(channel).read(v1::StatusRequest {}).await;
            refusal(&outcome.unwrap_err())
        }
        Err(error) => refusal(&error),
    };
    assert!(status.as_ref().unwrap().contains("https://"), "{status:?}");

    // As other implementations of HTTP/2 see it: a GOAWAY that says so.
    let mut stream = tokio::net::TcpStream::connect(&at).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut answer = [0; 26];
    stream.read_exact(&mut answer).await.unwrap();
    let (settings, go_away) = answer.split_at(9);
    assert_eq!(settings, [0, 0, 0, 4, 0, 0, 0, 0, 0]);
    assert_eq!((go_away[3], &go_away[9..13], &go_away[13..]), (7, &[0; 4][..], &[0, 0, 0, 12][..]));
    let mut text = vec![0; usize::from(go_away[2]) - 8];
    stream.read_exact(&mut text).await.unwrap();
    assert!(String::from_utf8(text).unwrap().contains("over TLS alone"));

    // The other way round.
    let at = controller(None).await;
    let said = failure(&at, &pki.issue("caller", "weft:role/operator", days(5))).await;
    assert!(said.contains("does not speak TLS"), "{said}");
}

#[tokio::test]
async fn a_renewal_drops_no_stream_and_is_used_from_then_on() {
    let (old, new) = (Pki::new(), Pki::new());
    // Both CAs are good while one takes the other's place.
    let both = format!("{}{}", old.ca.cert, new.ca.cert);
    replace(&old.files("controller").ca, &both);
    let files = old.files("controller");
    let at = controller(Some(&files)).await;
    let channel = old.channel(&at, "weft:role/worker").await;
    let (said, mut heard) = attach_worker(&channel, 1, 0).await.unwrap();
    assert!(matches!(hear(&mut heard).await, Heard::Welcome(_)));
    // Trusts the new CA alone.
    let caller = new.issue("caller", "weft:role/operator", days(5));
    let said_before = failure(&at, &caller).await;
    assert!(said_before.contains("the controller's certificate is not accepted"), "{said_before}");

    // Half a renewal: the key does not fit. What was there stays in use.
    let renewed = new.files("controller");
    replace(&files.key, &std::fs::read_to_string(&renewed.key).unwrap());
    let old_caller = old.issue("caller", "weft:role/operator", days(5));
    let mut reader = StatusClient::new(dial(&at, &old_caller).await.unwrap());
    reader.read(v1::StatusRequest {}).await.unwrap();

    replace(&files.cert, &std::fs::read_to_string(&renewed.cert).unwrap());
    let mut reader = StatusClient::new(dial(&at, &caller).await.unwrap());
    reader.read(v1::StatusRequest {}).await.unwrap();
    // The stream of before goes on, there and back.
    let cancel = Said::Cancel(v1::Cancel { update_id: 9 });
    said.send(v1::WorkerMessage { message: Some(cancel) }).await.unwrap();
    assert!(matches!(hear(&mut heard).await, Heard::Refused(_)));
}

/// More than there are places for, and all of them silent: each that comes finds one.
#[tokio::test]
async fn streams_that_never_say_hello_turn_no_other_away() {
    let at = format!("http://{}", controller(None).await);
    let mut silent = Vec::new();
    for _ in 0..3 {
        let channel = Channel::from_shared(at.clone()).unwrap().connect().await.unwrap();
        for _ in 0..100 {
            let (said, outbound) = mpsc::channel::<v1::WorkerMessage>(1);
            let mut client = WorkersClient::new(channel.clone());
            let heard = client.attach(ReceiverStream::new(outbound)).await.unwrap();
            silent.push((said, heard));
        }
    }
    let channel = Channel::from_shared(at).unwrap().connect().await.unwrap();
    let (_said, mut heard) = attach_worker(&channel, 1, 0).await.unwrap();
    assert!(matches!(hear(&mut heard).await, Heard::Welcome(_)));
    // The oldest gave way.
    let first = &mut silent[0].1;
    let Heard::Refused(refused) = hear(first.get_mut()).await else { panic!("not refused") };
    assert_eq!(refused.field, "hello");
}

#[tokio::test]
async fn a_listener_for_others_needs_tls_or_a_word() {
    let pki = Pki::new();
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused = Daemon::bind(config(listen)).await.unwrap_err();
        assert_eq!(refused.exit_status(), 2);
        let refused = refused.to_string();
        for word in ["listen", "loopback", "tls", "insecure"] {
            assert!(refused.contains(word), "{refused}");
        }
    }
    Daemon::bind(ControllerConfig { insecure: true, ..config("0.0.0.0:0") }).await.unwrap();
    Daemon::bind(config("127.0.0.2:0")).await.unwrap();
    Daemon::bind(config("[::ffff:127.0.0.1]:0")).await.unwrap();
    let mut config = config("0.0.0.0:0");
    config.tls = Some(section(&pki.files("controller")));
    Daemon::bind(config.clone()).await.unwrap();
    config.insecure = true;
    assert!(Daemon::bind(config.clone()).await.unwrap_err().to_string().contains("insecure"));
    config.insecure = false;
    config.tls = Some(section(&pki.files("nobody")));
    let refused = Daemon::bind(config).await.unwrap_err().to_string();
    assert!(refused.contains("nobody.pem"), "{refused}");
}
