//! Requests to a collector: one connection each, because there is one in some seconds.

use std::time::Duration;

use bytes::Bytes;
use fogmux_client::tls::{self, Trust};
use fogmux_gateway::traces::Span;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::message;
use crate::callback::target::Target;
use crate::client::trust_here;
use crate::config::telemetry;

/// The largest accepted answer, in bytes: it says how many spans were refused, and why.
const ANSWER_BYTES_MAX: usize = 64 << 10;
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("fogmux/", env!("CARGO_PKG_VERSION")));

/// The answer to a batch that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// Spans of it that were refused.
    pub(super) refused: u64,
    pub(super) why: String,
}

/// Why a batch was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotTaken {
    /// It may be taken later, after the time that the collector asks for.
    Now { why: String, asked: Option<Duration> },
    /// It will never be taken.
    Ever(String),
}

/// A collector.
pub(super) struct Collector {
    target: Target,
    trust: Trust,
    timeout: Duration,
    service_name: String,
}

impl Collector {
    pub(super) fn new(target: Target, config: &telemetry::Traces) -> Self {
        let trust = config.ca_file.clone().map_or_else(trust_here, Trust::File);
        Self { target, trust, timeout: config.timeout, service_name: config.service_name.clone() }
    }

    async fn post(&self, body: Bytes) -> Result<Taken, NotTaken> {
        let Target { host, port, .. } = &self.target;
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(|error| later(&error))?;
        if self.target.secure {
            let stream = tls::connect(stream, host, &self.trust, &[b"http/1.1"]).await;
            // The words of the command line are of no help here.
            let stream = stream.map_err(|error| later(&error.to_string().replace("--ca FILE", "ca_file")))?;
            self.exchange(stream, body).await
        } else {
            self.exchange(stream, body).await
        }
    }

    async fn exchange<S>(&self, stream: S, body: Bytes) -> Result<Taken, NotTaken>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| later(&error))?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.target.path)
            .header(header::HOST, &self.target.authority)
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .header(header::CONNECTION, "close")
            .body(Full::new(body))
            .map_err(|error| later(&error))?;
        let answered = async {
            let response = sender.send_request(request).await.map_err(|error| later(&error))?;
            let (status, asked) = (response.status(), retry_after(response.headers()));
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            judge(status, asked, &body.map_err(|error| later(&error))?.to_bytes())
        };
        // The connection's own result is not needed: it only transports the exchange.
        let moved = async {
            let _ = connection.await;
            std::future::pending::<Result<Taken, NotTaken>>().await
        };
        tokio::select! {
            biased;
            answer = answered => answer,
            never = moved => never,
        }
    }
}

impl Collector {
    /// Sends a batch.
    ///
    /// # Errors
    /// [`NotTaken`]; a collector that does not answer within the time limit may have taken it nevertheless.
    pub(super) async fn take(&self, spans: &[Span]) -> Result<Taken, NotTaken> {
        let body = Bytes::from(message::request(&self.service_name, spans));
        let answer = timeout(self.timeout, self.post(body)).await;
        answer.unwrap_or_else(|_| Err(later(&format!("no answer within {:?}", self.timeout))))
    }
}

fn later(error: &impl ToString) -> NotTaken {
    NotTaken::Now { why: error.to_string(), asked: None }
}

/// The seconds that an answer asks for (RFC 9110 §10.2.3). A date counts as nothing, because our clock may be wrong.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Judges an answer: only these codes are worth another attempt (OTLP/HTTP response, "Retryable Response Codes").
fn judge(status: StatusCode, asked: Option<Duration>, body: &[u8]) -> Result<Taken, NotTaken> {
    match status {
        StatusCode::OK => {
            let (refused, why) = message::refused(body);
            Ok(Taken { refused, why })
        }
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Err(NotTaken::Now { why: format!("status {status}"), asked }),
        other => Err(NotTaken::Ever(format!("status {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_refusals_are_for_now_and_others_for_good() {
        let asked = Some(Duration::from_secs(7));
        let judged = |code: u16| judge(StatusCode::from_u16(code).unwrap(), asked, b"");
        assert_eq!(judged(200), Ok(Taken { refused: 0, why: String::new() }));
        for code in [429, 502, 503, 504] {
            assert!(matches!(judged(code), Err(NotTaken::Now { asked: Some(_), .. })), "{code}");
        }
        for code in [301, 400, 401, 404, 413, 415, 500] {
            assert!(matches!(judged(code), Err(NotTaken::Ever(_))), "{code}");
        }
    }
}
