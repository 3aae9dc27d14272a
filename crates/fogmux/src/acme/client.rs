//! HTTP to an ACME server, with the TLS that other clients of the gateway use. One connection a request: there are a
//! dozen in two months.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use fogmux_client::tls::{self, Trust};
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tokio::net::TcpStream;

use crate::callback::target::Target;

/// The longest that a request may take.
const REQUEST_MAX: Duration = Duration::from_secs(30);
/// The largest accepted answer, in bytes; a chain has some thousands.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// RFC 8555 §6.1: clients name themselves.
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("fogmux/", env!("CARGO_PKG_VERSION")));

/// A client of one server.
#[derive(Clone)]
pub(super) struct Client {
    trust: Trust,
    /// When the server lets us come back, in seconds since 1970; 0 if it has not said.
    asked_unix_s: Arc<AtomicU64>,
}

impl Client {
    pub(super) fn new(trust: Trust) -> Self {
        Self { trust, asked_unix_s: Arc::default() }
    }

    /// When the server lets us come back, if it has refused something and said so.
    pub(super) fn asked_unix_s(&self) -> Option<u64> {
        Some(self.asked_unix_s.load(Relaxed)).filter(|asked| *asked != 0)
    }

    async fn exchange(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, String> {
        let url = request.uri().to_string();
        let target = Target::parse(&url).filter(|target| target.secure);
        let target = target.ok_or_else(|| format!("{url:?} is no https:// address"))?;
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", target.authority);
        let stream = TcpStream::connect((target.host.as_str(), target.port)).await.map_err(|error| failed(&error))?;
        let stream = tls::connect(stream, &target.host, &self.trust, &[b"http/1.1"]).await;
        // The words of the command line are of no help here.
        let stream = stream.map_err(|error| failed(&error.to_string().replace("--ca FILE", "acme.ca_file")));
        let stream = TokioIo::new(stream?);
        let (mut sender, connection) = http1::handshake(stream).await.map_err(|error| failed(&error))?;
        let request = addressed(request, &target).map_err(|error| failed(&error))?;
        let answered = async {
            let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| failed(&error))?;
            Ok(Response::from_parts(parts, Full::new(body.to_bytes())))
        };
        // The connection's own result is not needed: it only transports the exchange.
        let moved = async {
            let _ = connection.await;
            std::future::pending::<Result<Response<Full<Bytes>>, String>>().await
        };
        let response = tokio::select! {
            biased;
            answer = answered => answer,
            never = moved => never,
        }?;
        if !response.status().is_success()
            && let Some(asked) = retry_after(response.headers(), SystemTime::now())
        {
            self.asked_unix_s.fetch_max(asked, Relaxed);
        }
        Ok(BytesResponse::from(response))
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let exchange = self.clone().exchange(request);
        Box::pin(async move {
            let answer = tokio::time::timeout(REQUEST_MAX, exchange).await;
            let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {REQUEST_MAX:?}")));
            answer.map_err(|reason| Error::Other(reason.into()))
        })
    }
}

/// The same request in the form that a server expects (RFC 9112 §3.2.1).
fn addressed(
    mut request: Request<BodyWrapper<Bytes>>,
    target: &Target,
) -> Result<Request<BodyWrapper<Bytes>>, http::Error> {
    *request.uri_mut() = target.path.parse()?;
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_str(&target.authority)?);
    headers.insert(header::USER_AGENT, USER_AGENT);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(request)
}

/// Returns when to come back, in seconds since 1970 (RFC 9110 §10.2.3).
fn retry_after(headers: &http::HeaderMap, now: SystemTime) -> Option<u64> {
    let unix_s = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse::<u64>() {
        Ok(seconds) => Some(unix_s(now).saturating_add(seconds)),
        Err(_) => httpdate::parse_http_date(text).ok().map(unix_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_when_to_come_back_in_seconds_or_by_a_date() {
        let said = |text: &'static str| {
            let headers = [(header::RETRY_AFTER, HeaderValue::from_static(text))].into_iter().collect();
            retry_after(&headers, UNIX_EPOCH + Duration::from_secs(1000))
        };
        assert_eq!(said("3600"), Some(4600));
        assert_eq!(said("Fri, 31 Dec 1999 23:59:59 GMT"), Some(946_684_799));
        assert_eq!(said("soon"), None);
        assert_eq!(said("99999999999999999999"), None);
        assert_eq!(said("18446744073709551615"), Some(u64::MAX));
    }
}
