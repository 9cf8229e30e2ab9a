//! Takes connections of a listener, and serves a page to Prometheus. Does I/O;
//! [`places`](crate::places) decides which may stay.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::metrics::{Asked, REQUEST_LEN_MAX, asked, response};
use crate::places::Places;

/// Returns the next connection, once there is a descriptor for it.
pub async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        if let Ok(accepted) = listener.accept().await {
            return accepted;
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Answers `GET /metrics`, `/healthz` and `/readyz` until the runtime ends: health by itself, the
/// others by `page`, which has the text or why there is none now. An idle scraper delays no other.
pub async fn serve_page<P>(
    listener: TcpListener,
    page: impl Fn(Asked) -> P + Clone + Send + Sync + 'static,
) where
    P: Future<Output = Result<String, &'static str>> + Send,
{
    let places = Places::new(SCRAPERS_MAX, SCRAPERS_MAX);
    loop {
        let (stream, addr) = accept(&listener).await;
        // None has a call under way, so there is one.
        let Some(mut place) = places.enter(addr.ip()) else { continue };
        let page = page.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = tokio::time::timeout(REQUEST_TIMEOUT, answer(stream, page)) => {}
                () = place.gone() => {}
            }
        });
    }
}

async fn answer<P>(mut stream: TcpStream, page: impl Fn(Asked) -> P) -> io::Result<()>
where
    P: Future<Output = Result<String, &'static str>>,
{
    let (mut request, mut len) = ([0; REQUEST_LEN_MAX], 0);
    // Closing with a part of the request unread would reset the connection under the answer.
    while len < REQUEST_LEN_MAX && !request[..len].ends_with(b"\r\n\r\n") {
        match stream.read(&mut request[len..]).await? {
            0 => break,
            more => len += more,
        }
    }
    let answer = match asked(&request[..len]) {
        Some(Asked::Health) => Some(Ok("ok\n".to_owned())),
        Some(asked) => Some(page(asked).await),
        None => None,
    };
    let answer = answer.as_ref().map(|it| it.as_deref().map_err(|reason| *reason));
    stream.write_all(response(answer).as_bytes()).await
}

/// After an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Scrapers at a time.
pub const SCRAPERS_MAX: usize = 32;
/// How long one may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_connections_keep_no_scraper_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(serve_page(listener, |_| async { Ok("a 1\n".to_owned()) }));
        let mut idle = Vec::new();
        for _ in 0..2 * SCRAPERS_MAX {
            idle.push(TcpStream::connect(at).await.unwrap());
        }
        let mut scraper = TcpStream::connect(at).await.unwrap();
        scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        let read = scraper.read_to_string(&mut answer);
        tokio::time::timeout(REQUEST_TIMEOUT, read).await.expect("at once").unwrap();
        assert!(answer.ends_with("a 1\n"), "{answer}");
        // Those that were there first gave way.
        assert_eq!(idle[0].read(&mut [0; 1]).await.unwrap(), 0);
    }
}
