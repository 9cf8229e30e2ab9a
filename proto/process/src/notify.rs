//! Readiness, reported to the service manager that started the program (systemd's `Type=notify`).

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `READY=1` to the socket that `NOTIFY_SOCKET` names; without that variable does nothing.
///
/// A failure is one line of the log: the program serves, and the manager has a timeout of its own.
pub fn ready() {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, b"READY=1") {
        crate::say!("cannot notify {}: {error}", socket.display());
    }
}

/// A name that begins with `@` is of the abstract namespace, any other is a path.
fn send(socket: &OsStr, state: &[u8]) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_a_path_or_an_abstract_name() {
        let name = format!("weft-notify-{}", std::process::id());
        let path = env::temp_dir().join(&name);
        let _ = std::fs::remove_file(&path);
        let of_path = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), b"READY=1").unwrap();
        std::fs::remove_file(&path).unwrap();
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let of_name = UnixDatagram::bind_addr(&abstract_name).unwrap();
        send(OsStr::new(&format!("@{name}")), b"READY=1").unwrap();
        for socket in [of_path, of_name] {
            let mut state = [0; 16];
            let len = socket.recv(&mut state).unwrap();
            assert_eq!(&state[..len], b"READY=1");
        }
        assert!(send(path.as_os_str(), b"READY=1").is_err(), "its socket is gone");
    }
}
