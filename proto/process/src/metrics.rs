//! A page in Prometheus' text exposition format, and what answers a request for it. No sockets.

use std::fmt::{self, Write};

/// Writes what stands in front of a metric's samples. `kind` is `counter` or `gauge`.
///
/// # Errors
/// Those of `out`; a string has none.
pub fn head(out: &mut impl Write, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

/// A quoted label value.
///
/// ```
/// assert_eq!(weft_process::metrics::label("a\"b\n"), r#""a\"b\n""#);
/// ```
#[must_use]
pub fn label(value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

/// A page that is served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Asked {
    /// `GET /metrics`
    Page,
    /// `GET /healthz`: whether the process answers.
    Health,
    /// `GET /readyz`: whether it does its work.
    Readiness,
}

/// The page that a request names by its beginning; none for any other.
#[must_use]
pub fn asked(request: &[u8]) -> Option<Asked> {
    let paths = [
        ("GET /metrics ", Asked::Page),
        ("GET /healthz ", Asked::Health),
        ("GET /readyz ", Asked::Readiness),
    ];
    paths
        .into_iter()
        .find_map(|(path, asked)| request.starts_with(path.as_bytes()).then_some(asked))
}

/// The whole answer to a request: a page, or why there is none now; without either, that there is
/// none of that name.
#[must_use]
pub fn response(answer: Option<Result<&str, &str>>) -> String {
    let (status, body) = match answer {
        Some(Ok(page)) => ("200 OK", page),
        Some(Err(reason)) => ("503 Service Unavailable", reason),
        None => ("404 Not Found", "only GET /metrics, /healthz and /readyz are served\n"),
    };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}

/// What the body of a scrape is.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Bytes of a request that are looked at.
pub const REQUEST_LEN_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_and_the_two_states_are_served() {
        assert_eq!(asked(b"GET /metrics HTTP/1.1\r\n"), Some(Asked::Page));
        assert_eq!(asked(b"GET /healthz HTTP/1.1\r\n"), Some(Asked::Health));
        assert_eq!(asked(b"GET /readyz HTTP/1.1\r\n"), Some(Asked::Readiness));
        assert_eq!(asked(b"GET /metricsx HTTP/1.1\r\n"), None);
        assert_eq!(asked(b"POST /metrics HTTP/1.1\r\n"), None);
        assert!(response(None).starts_with("HTTP/1.1 404 Not Found\r\n"));
        let answer = response(Some(Err("not yet\n")));
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("\r\n\r\nnot yet\n"));
        let answer = response(Some(Ok("a 1\n")));
        assert!(answer.contains("\r\nContent-Length: 4\r\n") && answer.ends_with("\r\n\r\na 1\n"));
    }
}
