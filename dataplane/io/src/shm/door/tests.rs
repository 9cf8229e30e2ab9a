//! Hostile peers under a kernel that passes descriptors to a box.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;

/// A socket that a close waits a minute for, and its other end.
fn lingering() -> (TcpStream, TcpStream) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut slow = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    slow.set_nonblocking(true).unwrap();
    while slow.write(&[0; 65_536]).is_ok() {}
    socket2::SockRef::from(&slow).set_linger(Some(Duration::from_secs(60))).unwrap();
    (slow, server.accept().unwrap().0)
}

#[test]
fn descriptors_are_seen_and_left_and_closed_elsewhere() {
    let closer = Closer::start().unwrap();
    let mut kept = Vec::new();
    let begun = Instant::now();
    for round in 0..CLOSING_MAX {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ours = closer.mind(ours);
        assert!(!has_spoken(&ours) && matches!(hear(&ours), Heard::Nothing));
        if round == 0 {
            let (slow, other) = lingering();
            say(&theirs, &[7; MESSAGE_LEN], &[slow.as_raw_fd(); 3]).unwrap();
            kept.push(other);
            drop(slow);
            assert!(has_spoken(&ours) && matches!(hear(&ours), Heard::Rights));
            assert!(matches!(hear(&ours), Heard::Rights), "it was left");
        } else {
            say(&theirs, &[7; MESSAGE_LEN], &[]).unwrap();
            assert!(matches!(hear(&ours), Heard::Message(message) if *message == [7; MESSAGE_LEN]));
            // Urgent bytes may bring descriptors as well, and do not show as others do.
            let flags = if round % 2 == 0 { MsgFlags::MSG_OOB } else { MsgFlags::empty() };
            nix::sys::socket::send(theirs.as_raw_fd(), b"!", flags).unwrap();
        }
        assert!(!closer.is_full());
        drop(ours);
        assert!(matches!(hear(&theirs), Heard::End), "the other side learns it at once");
        assert!(say(&theirs, &[7; MESSAGE_LEN], &[]).is_err(), "nothing more comes in");
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "no drop waited");
    assert!(closer.is_full(), "what came after the first waits for it");
    let (ours, _theirs) = UnixStream::pair().unwrap();
    drop(closer.mind(ours));
    assert_eq!(closer.count.load(Ordering::Relaxed), CLOSING_MAX, "nothing waits for nothing");
    // It ends when its other side does.
    drop(kept);
    while closer.is_full() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it goes on");
        std::thread::yield_now();
    }
}

#[test]
fn a_folder_or_a_box_of_another_user_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let loose = folder.path().join("loose");
    fs::create_dir(&loose).unwrap();
    fs::set_permissions(&loose, Permissions::from_mode(0o777)).unwrap();
    assert_eq!(own_folder(&loose).unwrap_err().kind(), ErrorKind::PermissionDenied);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    assert_eq!(own_folder(&link).unwrap_err().kind(), ErrorKind::PermissionDenied);
    let own = folder.path().join("own");
    own_folder(&own).unwrap();
    own_folder(&own).unwrap();
    assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o711);
    assert_eq!((user_id("root"), user_id("1234"), user_id("no such")), (Some(0), Some(1234), None));
    let other = own_uid() + 1;
    assert!(!is_trusted(other, &[]) && is_trusted(other, &[other]) && is_trusted(own_uid(), &[]));
}

#[test]
fn a_name_that_a_killed_box_left_is_taken_over_and_one_of_a_living_box_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("box");
    let first = listen(&path, false).unwrap();
    assert_eq!(listen(&path, false).unwrap_err().kind(), ErrorKind::AddrInUse);
    drop(first);
    listen(&path, true).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o666);
}
