//! Handshakes against the MTU: after a restart a WELCOME says which of four windows of steps are
//! wanted, and no table lets it outgrow the MTU.

use alloc::vec;

use weft_wire::Nanos;
use weft_wire::frame::Endpoint;
use weft_wire::hello::{Hello, Phase as Step};

use super::rig::*;
use crate::drops::DropReason;
use crate::role::Verdict;
use crate::table::{BoxConfig, RowConfig, Table, TableError, frame_len_max};

fn config_of(mtu: u16, window: u16, shards: u16) -> BoxConfig {
    let mut config = config(vec![RowConfig { window, ..row(0, 0, 2) }]);
    config.jobs[0].slots_max = window.into();
    BoxConfig { mtu, shards, ..config }
}

fn ipv6(mut config: BoxConfig) -> BoxConfig {
    config.local = Endpoint { addr: "[fd00::100]:22341".parse().unwrap(), ..config.local };
    for (member, host) in config.rows[0].members.iter_mut().zip(1_u16..) {
        member.addr = ([0xfd00, 0, 0, 0, 0, 0, 0, host], 7000).into();
    }
    config
}

#[test]
fn a_window_whose_handshake_exceeds_the_mtu_is_refused() {
    for (mtu, largest_ipv4, largest_ipv6) in [
        (576, 512, 512),
        (1155, 1024, 1024),
        (1156, 2048, 1024),
        (1175, 2048, 1024),
        (1176, 2048, 2048),
    ] {
        for (is_ipv6, largest) in [(false, largest_ipv4), (true, largest_ipv6)] {
            for shards in [1, 2] {
                for window in (0..=11).map(|log2| 1 << log2) {
                    let config = config_of(mtu, window * shards, shards);
                    let refused = Table::new(if is_ipv6 { ipv6(config) } else { config }).err();
                    let field = refused.map(|TableError { field, .. }| field);
                    let expected = (window > largest).then_some("window");
                    assert_eq!(field, expected, "MTU {mtu}, IPv6 {is_ipv6}, window {window}");
                }
            }
        }
    }
}

/// The largest window of an MTU of 576, a restarted box, and a buffer that is no longer than the
/// MTU: everybody gets the WELCOME.
#[test]
fn a_welcome_after_a_restart_fits_the_mtu() {
    let config = config_of(576, 512, 1);
    let mut restarted = aggregator(config.clone(), 7);
    let mut group = [0, 1].map(|rank| Member::new(&config.rows[0], rank, 5));
    group.iter_mut().for_each(|member| member.session = 77);
    // Rank 0 holds every other step of four windows, rank 1 none.
    let held = [0x55; 256];
    for pass in 0..2 {
        for (rank, member) in group.iter_mut().enumerate() {
            let held: &[u8] = if rank == 0 { &held } else { &[0] };
            let answer = member.join(&mut restarted, Some((0, held)));
            assert!(answer.len <= frame_len_max(576), "{} bytes", answer.len);
            let hello = answer.hello.unwrap();
            if pass == 1 {
                assert_eq!((hello.phase, hello.step_bits), (Step::Welcome, 4 * 512));
            }
        }
    }
}

/// A port whose buffers are too short for the table is a fault that shows.
#[test]
fn an_answer_that_finds_no_room_is_counted() {
    let config = config(vec![row(0, 0, 2)]);
    let mut restarted = aggregator(config.clone(), 7);
    let mut group = [0, 1].map(|rank| Member::new(&config.rows[0], rank, 5));
    group.iter_mut().for_each(|member| member.session = 77);
    group[0].join(&mut restarted, Some((1, &[0])));
    group[1].join(&mut restarted, Some((0, &[0])));
    let hello = group[1].hello(Hello::new(Step::Hello), &[]);
    let token = send(&mut restarted, hello).unwrap().hello.unwrap().token;
    // It says nothing of steps, so the WELCOME, which wants one, is longer.
    let mut frame = group[1].hello(Hello { token, session: 77, ..Hello::new(Step::Join) }, &[]);
    let len = frame.len();
    let verdict = restarted.handle_frame(Nanos(0), &mut frame, len);
    assert_eq!(verdict, Verdict::Drop(DropReason::Length));
    assert_eq!(restarted.stats().drops.of(DropReason::Length), 1);
}
