//! Both ends of a session, with nothing between them but bodies.

use alloc::vec::Vec;

use weft_wire::hello::Hello;
use weft_wire::{GroupId, Nanos};

use super::super::client::{Client, ClientConfig, Standing};
use super::*;
use crate::random::SplitMix64;

const EPOCH: Epoch = Epoch(0x0703);
const RANK: usize = 2;
const LEN: usize = 104;

/// A host with one peer, which opens at once.
struct Hosting {
    host: Host,
    peer: Peer<&'static str>,
    cookie_down: Cookie,
    random: Random,
}

impl Hosting {
    fn new(seed: u64) -> Self {
        let mut random = Random::from(SplitMix64::new(seed));
        let secret = (random.next_u64(Draw::Secret(0)), random.next_u64(Draw::Secret(1)));
        let peer = Peer::new("port 7", Lives::default());
        let host = Host { job: JobId(1), row: 3, lane: 0, secret };
        Self { host, peer, cookie_down: Cookie::default(), random }
    }

    fn handle(&mut self, hello: &Hello) -> Result<Hello, DropReason> {
        self.host.hear(RANK, &self.peer, hello, LEN)?;
        Ok(match hello.phase {
            Phase::Join => {
                if self.peer.join(hello.life) {
                    self.peer.draw_cookie(EPOCH, 0, &mut self.random);
                    self.cookie_down =
                        Cookie::new(EPOCH, self.random.next_u32(Draw::CookieDown(0)));
                }
                let mut welcome = self.host.reply(RANK, &self.peer, hello, Phase::Welcome);
                self.peer.tell(EPOCH, self.cookie_down, &mut welcome);
                welcome
            }
            Phase::Close => {
                self.peer.end();
                self.host.reply(RANK, &self.peer, hello, Phase::Closed)
            }
            _ => self.host.reply(RANK, &self.peer, hello, Phase::Challenge),
        })
    }

    /// HELLO and JOIN of a life; the JOIN.
    fn join(&mut self, life: u64) -> Hello {
        let challenge = self.handle(&hello(life, Phase::Hello)).unwrap();
        assert_eq!((challenge.phase, challenge.life), (Phase::Challenge, life));
        let join = Hello { token: challenge.token, ..hello(life, Phase::Join) };
        assert_eq!(self.handle(&join).unwrap().phase, Phase::Welcome);
        join
    }
}

fn hello(life: u64, phase: Phase) -> Hello {
    Hello { life, ..Hello::new(phase) }
}

fn client(life: u64) -> Client {
    let config =
        ClientConfig { unanswered_max: 3, takes_late_welcome: true, ..ClientConfig::every(20, 0) };
    let mut client = Client::new(config, life);
    client.begin(0, Nanos(0));
    client
}

#[test]
fn a_repeated_join_is_welcomed_alike_and_a_join_of_an_ended_life_never() {
    let mut host = Hosting::new(1);
    let first = host.join(7);
    let welcome = host.handle(&first).unwrap();
    assert_eq!((welcome.token, welcome.epoch), (first.token, EPOCH), "its WELCOME was lost");
    assert_eq!(host.handle(&first).unwrap(), welcome);
    let second = host.join(8);
    assert_eq!(host.handle(&first), Err(DropReason::Token), "another life has joined");
    assert_ne!(host.handle(&second).unwrap().cookie_up, welcome.cookie_up);
    host.handle(&hello(8, Phase::Close)).unwrap();
    assert_eq!(host.handle(&second), Err(DropReason::Token), "it has closed");
    assert_eq!(Hosting::new(2).handle(&second), Err(DropReason::Token), "the host restarted");
    assert_eq!(host.handle(&hello(0, Phase::Join)), Err(DropReason::Token), "a life of nobody");
}

#[test]
fn a_token_is_good_for_its_rank_and_lane_alone() {
    let mut host = Hosting::new(1);
    let join = host.join(7);
    let peer = Peer::new("port 7", Lives::default());
    assert_eq!(host.host.hear(RANK, &peer, &join, LEN), Ok(()));
    assert_eq!(host.host.hear(RANK + 1, &peer, &join, LEN), Err(DropReason::Token));
    let other_lane = Host { lane: 1, ..host.host };
    assert_eq!(other_lane.hear(RANK, &peer, &join, LEN), Err(DropReason::Token));
}

#[test]
fn a_close_is_the_latest_lifes_and_may_be_repeated() {
    let mut host = Hosting::new(1);
    host.join(7);
    host.join(8);
    assert_eq!(host.handle(&hello(7, Phase::Close)), Err(DropReason::StaleEpoch));
    for _ in 0..2 {
        assert_eq!(host.handle(&hello(8, Phase::Close)).unwrap().phase, Phase::Closed);
        assert!(!host.peer.lives().has_present());
    }
}

#[test]
fn a_padded_hello_is_answered_with_as_many_bytes_as_came() {
    let host = Hosting::new(1);
    let padded = Hello { probe_len: 500, ..hello(7, Phase::Hello) };
    for (len, judged) in
        [(500, Ok(())), (499, Err(DropReason::Length)), (104, Err(DropReason::Length))]
    {
        assert_eq!(host.host.hear(RANK, &host.peer, &padded, len), judged);
    }
    assert_eq!(host.host.reply(RANK, &host.peer, &padded, Phase::Challenge).probe_len, 500);
}

#[test]
fn what_goes_down_only_is_refused() {
    let mut host = Hosting::new(1);
    for phase in [Phase::Challenge, Phase::Welcome, Phase::Waiting, Phase::Refused, Phase::Closed] {
        assert_eq!(host.handle(&hello(7, phase)), Err(DropReason::Handshake));
    }
}

#[test]
fn a_frame_is_the_peers_with_its_cookie_in_its_epoch_from_its_address() {
    let mut host = Hosting::new(1);
    host.join(7);
    let peer = &host.peer;
    let own = peer.cookie_up();
    let other = Cookie::new(EPOCH, own.0 ^ 1);
    let stale = Err(DropReason::StaleEpoch);
    for (cookie, is_open, judged) in [
        (own, true, Ok(())),
        (own, false, stale),
        (other, true, Err(DropReason::BadCookie)),
        (Cookie::new(Epoch(EPOCH.0 + 1), own.0), true, stale),
    ] {
        assert_eq!(peer.check_cookie(cookie, EPOCH, is_open), judged);
    }
    assert_eq!(peer.check_source("port 7"), Ok(()));
    assert_eq!(peer.check_source("port 8"), Err(DropReason::WrongSource));
}

/// Whatever is lost, doubled or late, also over a restart of the host.
#[test]
fn both_ends_agree_on_their_cookies_whatever_the_network_does() {
    for seed in 0..300 {
        let mut random = SplitMix64::new(seed);
        let mut chance = |of: u64| random.next_u64().is_multiple_of(of);
        let mut host = Hosting::new(seed + 1_000);
        let mut client = client(seed + 1);
        let mut wire: Vec<Hello> = Vec::new();
        for now in (0..8_000).map(Nanos) {
            if now == Nanos(4_000) {
                host = Hosting::new(seed + 2_000);
                client.begin(0, now);
                wire.retain(|body| body.phase != Phase::Challenge);
            }
            wire.extend(client.poll(now));
            if wire.is_empty() || !chance(10) {
                continue;
            }
            let body = if chance(4) { wire[0] } else { wire.remove(0) };
            match body.phase {
                _ if chance(3) => {}
                Phase::Hello | Phase::Join => wire.extend(host.handle(&body).ok()),
                Phase::Welcome if client.hear(&body, LEN, now).is_ok() => {
                    client.open(&body, GroupId::new(3, 1));
                }
                _ => drop(client.hear(&body, LEN, now)),
            }
            if client.standing() == Standing::Open {
                let terms = client.terms().unwrap();
                assert_eq!(terms.cookie_up, host.peer.cookie_up(), "seed {seed} at {now:?}");
                assert_eq!(terms.cookie_down, host.cookie_down, "seed {seed} at {now:?}");
            }
        }
        assert_eq!(client.standing(), Standing::Open, "seed {seed}");
    }
}
