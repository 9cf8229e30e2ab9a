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

/// True when this is the beginning of a request for the page.
#[must_use]
pub fn is_scrape(request: &[u8]) -> bool {
    request.starts_with(b"GET /metrics ")
}

/// The whole answer to a request; without a page, that there is none.
#[must_use]
pub fn response(page: Option<&str>) -> String {
    let (status, body) = match page {
        Some(page) => ("200 OK", page),
        None => ("404 Not Found", "only GET /metrics is served\n"),
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
    fn only_the_page_is_served() {
        assert!(is_scrape(b"GET /metrics HTTP/1.1\r\n"));
        assert!(!is_scrape(b"GET /metricsx HTTP/1.1\r\n"));
        assert!(!is_scrape(b"POST /metrics HTTP/1.1\r\n"));
        assert!(response(None).starts_with("HTTP/1.1 404 Not Found\r\n"));
        let answer = response(Some("a 1\n"));
        assert!(answer.contains("\r\nContent-Length: 4\r\n") && answer.ends_with("\r\n\r\na 1\n"));
    }
}
