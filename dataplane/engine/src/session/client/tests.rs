use alloc::vec::Vec;

use weft_wire::{Cookie, Epoch};

use super::*;

const GROUP: GroupId = GroupId::new(3, 1);

impl Client {
    pub(crate) fn has_joined(&self) -> bool {
        self.has_joined
    }

    pub(crate) fn is_asking(&self) -> bool {
        self.is_asking
    }
}

fn config() -> ClientConfig {
    ClientConfig { unanswered_max: 3, takes_late_welcome: true, ..ClientConfig::every(20, 0) }
}

fn opening(config: ClientConfig) -> Client {
    let mut client = Client::new(config, 7);
    client.begin(0, Nanos(0));
    client
}

/// What is due, whenever that is, and when.
fn due(client: &mut Client) -> (Hello, Nanos) {
    let now = client.timeout();
    (client.poll(now).expect("something is due"), now)
}

fn next_phases(client: &mut Client, count: usize) -> Vec<Phase> {
    (0..count).map(|_| due(client).0.phase).collect()
}

fn word(phase: Phase, token: u64) -> Hello {
    Hello { life: 7, token, ..Hello::new(phase) }
}

fn welcome(token: u64, cookie: u32) -> Hello {
    let terms = Hello { epoch: Epoch(1), session: 9, ..word(Phase::Welcome, token) };
    Hello { cookie_up: Cookie(cookie), cookie_down: Cookie(cookie + 1), ..terms }
}

fn hear(client: &mut Client, hello: Hello) -> Result<(), DropReason> {
    client.hear(&hello, 104, Nanos(1_000))
}

/// A client that a WELCOME to `token` has opened.
fn open(config: ClientConfig, token: u64) -> Client {
    let mut client = opening(config);
    due(&mut client);
    hear(&mut client, word(Phase::Challenge, token)).unwrap();
    due(&mut client);
    hear(&mut client, welcome(token, 40)).unwrap();
    assert!(!client.open(&welcome(token, 40), GROUP));
    client
}

const UNASKED: Result<(), DropReason> = Err(DropReason::Unsolicited);

#[test]
fn a_session_opens_in_two_round_trips() {
    let mut client = opening(config());
    let (hello, at) = due(&mut client);
    assert_eq!((hello, at), (word(Phase::Hello, 0), Nanos(0)));
    assert_eq!(client.poll(Nanos(19)), None);
    hear(&mut client, word(Phase::Challenge, 5)).unwrap();
    assert_eq!(due(&mut client).0, word(Phase::Join, 5));
    assert_eq!((client.standing(), client.has_joined()), (Standing::Opening, true));
    hear(&mut client, welcome(5, 40)).unwrap();
    assert!(!client.open(&welcome(5, 40), GROUP));
    assert_eq!((client.standing(), client.timeout()), (Standing::Open, Nanos::MAX));
    let terms = client.terms().unwrap();
    assert_eq!((terms.group, terms.cookie_up, client.session()), (GROUP, Cookie(40), 9));
}

#[test]
fn no_word_to_another_life_is_believed() {
    let mut client = opening(config());
    due(&mut client);
    for life in [6, 8, 0] {
        let hello = Hello { life, ..word(Phase::Challenge, 5) };
        assert_eq!(hear(&mut client, hello), Err(DropReason::Handshake));
    }
    assert!(!client.has_token());
    // Nor is what goes up only.
    for phase in [Phase::Hello, Phase::Join, Phase::Close] {
        assert_eq!(hear(&mut client, word(phase, 5)), Err(DropReason::Handshake));
    }
    client.begin_life(8, Nanos(0));
    due(&mut client);
    assert_eq!(hear(&mut client, word(Phase::Challenge, 5)), Err(DropReason::Handshake));
}

/// It was to an earlier host, to an earlier handshake, or has opened this one already.
#[test]
fn a_welcome_is_believed_to_the_join_that_it_answers_alone() {
    let mut client = opening(config());
    due(&mut client);
    assert_eq!(hear(&mut client, welcome(0, 40)), UNASKED, "before the JOIN");
    hear(&mut client, word(Phase::Challenge, 5)).unwrap();
    assert_eq!(hear(&mut client, welcome(5, 40)), UNASKED, "before the JOIN");
    due(&mut client);
    assert_eq!(hear(&mut client, welcome(4, 40)), UNASKED, "another token");
    hear(&mut client, welcome(5, 40)).unwrap();
    client.open(&welcome(5, 40), GROUP);
    assert_eq!(hear(&mut client, welcome(5, 40)), UNASKED, "a copy");
    client.begin(9, Nanos(0));
    due(&mut client);
    assert_eq!(hear(&mut client, welcome(5, 40)), UNASKED, "a copy, after a restart");
}

#[test]
fn a_welcome_may_be_late_for_who_takes_it_then() {
    for takes_late_welcome in [true, false] {
        let mut client = opening(ClientConfig { takes_late_welcome, ..config() });
        due(&mut client);
        hear(&mut client, word(Phase::Challenge, 5)).unwrap();
        let join = Phase::Join;
        assert_eq!(next_phases(&mut client, 4), [join, join, join, Phase::Hello]);
        assert_eq!(hear(&mut client, welcome(5, 40)).is_ok(), takes_late_welcome);
    }
}

#[test]
fn a_token_is_doubted_after_joins_without_an_answer_and_waiting_is_one() {
    let mut client = opening(config());
    due(&mut client);
    hear(&mut client, word(Phase::Challenge, 5)).unwrap();
    for _ in 0..9 {
        assert_eq!(due(&mut client).0.phase, Phase::Join);
        hear(&mut client, word(Phase::Waiting, 5)).unwrap();
    }
    assert_eq!(next_phases(&mut client, 4)[2..], [Phase::Join, Phase::Hello]);
    // The host that is there now says another one.
    hear(&mut client, word(Phase::Challenge, 6)).unwrap();
    assert_eq!(due(&mut client).0.token, 6);
}

#[test]
fn a_challenge_with_the_same_token_is_a_copy_and_another_one_is_another_hosts() {
    let mut client = opening(config());
    due(&mut client);
    hear(&mut client, word(Phase::Challenge, 5)).unwrap();
    assert_eq!(hear(&mut client, word(Phase::Challenge, 5)), UNASKED);
    due(&mut client);
    assert_eq!(hear(&mut client, word(Phase::Challenge, 5)), UNASKED);
    hear(&mut client, word(Phase::Challenge, 6)).unwrap();
    assert_eq!(due(&mut client), (word(Phase::Join, 6), Nanos(1_000)));
}

#[test]
fn pauses_grow_and_begin_again_with_the_token_or_with_the_doubt() {
    for (doubt_shortens_pauses, at) in [(false, 1_220), (true, 1_160)] {
        let mut client = opening(ClientConfig { doubt_shortens_pauses, ..config() });
        let sent: Vec<u64> = (0..5).map(|_| due(&mut client).1.0).collect();
        assert_eq!(sent, [0, 20, 60, 140, 220]);
        hear(&mut client, word(Phase::Challenge, 5)).unwrap();
        let sent: Vec<u64> = (0..5).map(|_| due(&mut client).1.0).collect();
        assert_eq!(sent, [1_000, 1_020, 1_060, 1_140, at], "the fourth is a HELLO");
    }
}

#[test]
fn the_handshake_waits_for_a_padded_answer_and_gives_it_its_own_time() {
    let mut client = opening(ClientConfig { probe_len: 500, ..config() });
    let lens: Vec<u16> = (0..4).map(|_| due(&mut client).0.probe_len).collect();
    assert_eq!(lens, [500, 0, 500, 0]);
    assert_eq!(client.timeout(), Nanos(220));
    client.hear(&word(Phase::Challenge, 5), 104, Nanos(150)).unwrap();
    assert!(client.probe().is_in_doubt() && !client.has_token());
    assert_eq!((client.timeout(), client.asked_at()), (Nanos(170), Nanos(150)), "it hurries");
    assert_eq!(due(&mut client).0.probe_len, 500);
    let padded = Hello { probe_len: 500, ..word(Phase::Challenge, 5) };
    client.hear(&padded, 500, Nanos(180)).unwrap();
    assert_eq!((client.has_token(), client.asked_at()), (true, Nanos(180)));
    // The path is known from now on.
    client.begin(0, Nanos(200));
    assert_eq!(due(&mut client).0.probe_len, 0);
}

#[test]
fn a_path_without_long_datagrams_is_told_from_one_that_loses_them() {
    let mut client = opening(ClientConfig { probe_len: 500, ..config() });
    for _ in 0..41 {
        if due(&mut client).0.probe_len == 0 {
            let now = client.timeout();
            client.hear(&word(Phase::Challenge, 5), 104, now).unwrap();
        }
    }
    assert!(client.probe().has_failed());
    let padded = Hello { probe_len: 500, ..word(Phase::Challenge, 5) };
    client.hear(&padded, 500, client.timeout()).unwrap();
    assert!(!client.probe().has_failed() && client.has_token());
}

#[test]
fn an_open_session_believes_nothing_that_it_has_not_asked_for() {
    let unknown = Hello { reason: Reason::UnknownGroup, ..word(Phase::Refused, 0) };
    let other = Hello { reason: Reason::OtherSession, ..unknown };
    let words = [
        word(Phase::Challenge, 6),
        word(Phase::Waiting, 5),
        welcome(5, 40),
        word(Phase::Closed, 0),
        unknown,
        other,
    ];
    let mut client = open(config(), 5);
    for hello in words {
        assert_eq!(hear(&mut client, hello), UNASKED, "{hello:?}");
    }
    // One that asks believes what answers a HELLO.
    client.ask(Nanos(500));
    assert_eq!(due(&mut client), (word(Phase::Hello, 0), Nanos(500)));
    let believed = words.map(|hello| hear(&mut open_and_asking(), hello).is_ok());
    assert_eq!(believed, [true, false, false, false, true, false]);
    client.stop_asking();
    assert_eq!((client.standing(), client.timeout()), (Standing::Open, Nanos::MAX));
    assert_eq!(hear(&mut client, word(Phase::Challenge, 6)), UNASKED);
}

fn open_and_asking() -> Client {
    let mut client = open(config(), 5);
    client.ask(Nanos(500));
    due(&mut client);
    client
}

#[test]
fn a_host_that_never_lost_the_session_says_the_same_terms() {
    for (cookie, is_same) in [(40, true), (50, false)] {
        let mut client = open_and_asking();
        hear(&mut client, word(Phase::Challenge, 6)).unwrap();
        assert_eq!((client.standing(), client.is_asking()), (Standing::Open, true));
        assert_eq!(due(&mut client).0, Hello { session: 9, ..word(Phase::Join, 6) });
        hear(&mut client, welcome(6, cookie)).unwrap();
        assert_eq!(client.open(&welcome(6, cookie), GROUP), is_same);
        assert!(!client.is_asking());
    }
}

/// The host forms the session by what the JOIN says is held.
#[test]
fn a_join_that_says_what_is_held_suspends_the_session() {
    let mut client = open(ClientConfig { join_suspends: true, ..config() }, 5);
    client.ask(Nanos(500));
    due(&mut client);
    assert_eq!(client.standing(), Standing::Open);
    hear(&mut client, word(Phase::Challenge, 6)).unwrap();
    assert_eq!((client.standing(), client.is_asking()), (Standing::Opening, false));
    assert_eq!(next_phases(&mut client, 4)[2..], [Phase::Join, Phase::Hello]);
    assert_eq!(client.standing(), Standing::Opening);
}

#[test]
fn asking_twice_is_asking_once() {
    let mut client = open_and_asking();
    let at = client.timeout();
    client.ask(Nanos(501));
    assert_eq!((client.timeout(), client.asked_at()), (at, Nanos(500)));
}

#[test]
fn unheard_closes_are_repeated_asked_about_or_given_up() {
    let (close, hello) = (Phase::Close, Phase::Hello);
    for (unheard_close, phases) in [
        (UnheardClose::Repeat, [close; 8]),
        (UnheardClose::AskBetween, [close, close, close, hello, close, hello, close, hello]),
        (UnheardClose::BeginAnew, [close, close, close, hello, hello, hello, hello, hello]),
    ] {
        let mut client = open(ClientConfig { unheard_close, ..config() }, 5);
        client.close(Nanos(700));
        assert_eq!(next_phases(&mut client, 8), phases, "{unheard_close:?}");
        let believes = hear(&mut client, word(Phase::Challenge, 6)).is_ok();
        assert_eq!(believes, unheard_close != UnheardClose::Repeat);
    }
}

#[test]
fn who_asks_between_closes_takes_an_answer_that_comes_after_the_first() {
    for unheard_close in [UnheardClose::Repeat, UnheardClose::AskBetween] {
        let mut client = open(ClientConfig { unheard_close, ..config() }, 5);
        client.ask(Nanos(500));
        due(&mut client);
        client.close(Nanos(501));
        let believes = hear(&mut client, word(Phase::Challenge, 6)).is_ok();
        assert_eq!(believes, unheard_close == UnheardClose::AskBetween);
    }
}

#[test]
fn a_close_names_what_the_last_welcome_agreed_and_an_answer_counts_as_heard() {
    let mut client = open(ClientConfig { unheard_close: UnheardClose::AskBetween, ..config() }, 5);
    client.close(Nanos(700));
    for _ in 0..9 {
        let (body, _) = due(&mut client);
        let (epoch, cookie_up) = (Epoch(1), Cookie(40));
        assert_eq!(body, Hello { epoch, cookie_up, ..word(Phase::Close, 0) });
        hear(&mut client, word(Phase::Closed, 0)).unwrap();
    }
    client.end();
    assert_eq!((client.standing(), client.timeout()), (Standing::Closed, Nanos::MAX));
    assert_eq!(client.poll(Nanos::MAX), None);
    assert_eq!(hear(&mut client, word(Phase::Closed, 0)), UNASKED);
}

#[test]
fn only_an_open_session_closes_or_asks() {
    for mut client in [Client::new(config(), 7), opening(config())] {
        let standing = client.standing();
        client.close(Nanos(1));
        client.ask(Nanos(1));
        client.stop_asking();
        assert_eq!((client.standing(), client.is_asking()), (standing, false));
    }
}
