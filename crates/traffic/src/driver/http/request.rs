//! Requests of this driver's clients, independent of the version of HTTP, and the text of refusals.

use std::collections::HashMap;
use std::rc::Rc;

use fogmux_http::client::{self, Flags};
use fogmux_http::{authorization, sse};
use http::{HeaderValue, header};

use crate::driver::{Answer, DriverError, Request, Sink, body_bytes_max, text_bytes_max};
use crate::experiment::{Credential, Experiment, Operation};
use crate::outcome::Bytes;
use crate::target::Access;
use crate::text::said;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Publish,
    Get,
    Subscribe,
}

impl Kind {
    /// A request taken apart: topic, kind and payload.
    pub(super) fn of(request: Request<'_>) -> (&str, Self, &[u8]) {
        match request {
            Request::Publish { topic, payload } => (topic, Self::Publish, payload),
            Request::Get { topic } => (topic, Self::Get, &[]),
            Request::Subscribe { topic } => (topic, Self::Subscribe, &[]),
        }
    }

    /// Tells the sink what an answer means for such a request.
    pub(super) fn answered(self, tag: u64, status: u16, body: &[u8], bytes: &mut Bytes, sink: &mut dyn Sink) {
        match (self, status) {
            (Self::Get, 200) => {
                bytes.payload_down += body.len() as u64;
                sink.done(tag, Answer::Success(body));
            }
            (Self::Publish, 200..=299) | (Self::Subscribe, 200) => sink.done(tag, Answer::Success(&[])),
            (Self::Publish | Self::Get | Self::Subscribe, _) => sink.done(tag, Answer::Refused(&refusal(status, body))),
        }
    }
}

/// The parts that all requests of an experiment share.
#[derive(Clone)]
pub(super) struct Surface {
    /// Host and port as `Host` and `:authority` have them.
    authority: String,
    scheme: &'static str,
    /// Of a peer: what its paths begin with. None: it is a gateway of ours, with its topics and its parameters.
    prefix: Option<String>,
    authorization: Option<HeaderValue>,
    retain: bool,
    qos: u8,
    /// Bytes of the largest body of an answer.
    pub(super) body_bytes_max: usize,
    /// Bytes of the largest event of an event stream.
    pub(super) event_bytes_max: usize,
}

/// The requests to one topic, each ready but for its payload.
pub(super) struct Requests<R> {
    /// PUT or POST, as the experiment says.
    pub(super) publish: R,
    /// GET.
    pub(super) get: R,
    /// GET of an event stream; a peer has none that we know.
    pub(super) subscribe: Option<R>,
}

impl Surface {
    /// Creates them with the credentials that the experiment sends in requests.
    ///
    /// # Errors
    /// A credential is missing, or is not valid in a header field.
    pub(super) fn new(experiment: &Experiment, access: &Access) -> Result<Self, DriverError> {
        let authority = if access.host.contains(':') {
            format!("[{}]:{}", access.host, access.port)
        } else {
            format!("{}:{}", access.host, access.port)
        };
        Ok(Self {
            authority,
            scheme: if experiment.security.is_secure() { "https" } else { "http" },
            prefix: access.prefix.as_ref().map(|prefix| prefix.trim_matches('/').to_owned()),
            authorization: authorization(experiment, access)?,
            retain: is_kept(experiment),
            qos: experiment.qos.level(),
            body_bytes_max: body_bytes_max(experiment),
            event_bytes_max: text_bytes_max(experiment),
        })
    }

    /// The requests to `topic`, each as `build` puts it for a version of HTTP.
    fn requests<R>(&self, topic: &str, build: Build<R>) -> Result<Requests<R>, DriverError> {
        let ours = self.prefix.is_none();
        let flags = Flags { retain: self.retain, qos: ours.then_some(self.qos), ..Flags::default() };
        let subscribe = ours.then(|| {
            let mut request = client::subscribe(topic, &flags);
            request.headers.insert(header::ACCEPT, HeaderValue::from_static(sse::CONTENT_TYPE));
            build(self, self.finish(request))
        });
        Ok(Requests {
            publish: build(self, self.finish(client::publish(topic, &flags)))?,
            get: build(self, self.finish(client::latest(topic, &flags)))?,
            subscribe: subscribe.transpose()?,
        })
    }

    fn finish(&self, mut request: client::Request) -> client::Request {
        if let Some(prefix) = &self.prefix {
            let topic = request.target.strip_prefix("/topics").unwrap_or(&request.target);
            let slash = if prefix.is_empty() { "" } else { "/" };
            request.target = format!("{slash}{prefix}{topic}");
        }
        if let Some(authorization) = &self.authorization {
            request.headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        request
    }
}

/// Puts a request as a version of HTTP wants it.
type Build<R> = fn(&Surface, client::Request) -> Result<R, DriverError>;

/// A request to be sent over HTTP/1.1: a head up to its last field, which says how long the payload is, or to the empty
/// line.
pub(super) fn head(surface: &Surface, request: client::Request) -> Result<Vec<u8>, DriverError> {
    // RFC 9112 §3.2.1: the origin form.
    let mut head =
        format!("{} {} HTTP/1.1\r\nHost: {}\r\n", request.method, request.target, surface.authority).into_bytes();
    for (name, value) in &request.headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    Ok(head)
}

/// A request to be sent over HTTP/2 and HTTP/3, which want scheme and authority as pseudo-headers.
pub(super) fn absolute(surface: &Surface, request: client::Request) -> Result<http::Request<()>, DriverError> {
    let Surface { scheme, authority, .. } = surface;
    let built =
        http::Request::builder().method(request.method).uri(format!("{scheme}://{authority}{}", request.target));
    let mut built = built.body(()).map_err(|error| DriverError::Connection(format!("a request: {error}")))?;
    *built.headers_mut() = request.headers;
    Ok(built)
}

/// Requests by topic: a client has few topics and asks for them over and over.
pub(super) struct Prepared<R> {
    pub(super) surface: Surface,
    build: Build<R>,
    by_topic: HashMap<Box<str>, Rc<Requests<R>>>,
}

impl<R> Prepared<R> {
    pub(super) fn new(surface: Surface, build: Build<R>) -> Self {
        Self { surface, build, by_topic: HashMap::new() }
    }

    /// The requests to `topic`, made when it is the first time.
    ///
    /// # Errors
    /// The address of the target cannot stand in a request.
    pub(super) fn of(&mut self, topic: &str) -> Result<&Rc<Requests<R>>, DriverError> {
        // Asking twice costs less than a key that nobody needs.
        if !self.by_topic.contains_key(topic) {
            let requests = self.surface.requests(topic, self.build)?;
            self.by_topic.insert(topic.into(), Rc::new(requests));
        }
        #[expect(clippy::expect_used, reason = "it has been put in, if it was not there")]
        Ok(self.by_topic.get(topic).expect("requests of the topic"))
    }
}

/// Whether publications are PUTs: what is to be asked for has to be kept, whatever else the experiment says.
fn is_kept(experiment: &Experiment) -> bool {
    match experiment.operation {
        Operation::Get | Operation::Put => true,
        Operation::Post => false,
        Operation::Deliver | Operation::Connect | Operation::Hold => experiment.retain,
    }
}

/// Returns the `Authorization` field; `None` if the handshake authenticates the client.
fn authorization(experiment: &Experiment, access: &Access) -> Result<Option<HeaderValue>, DriverError> {
    let missing = |what: &str| DriverError::Refused(format!("the experiment wants {what}, and there is none"));
    let text = match (experiment.credential, &access.password, &access.token) {
        (Credential::Anonymous | Credential::Certificate, _, _) => return Ok(None),
        (Credential::OfProfile, _, _) if shown_by_handshake(experiment) => return Ok(None),
        (Credential::OfProfile, None, _) => return Ok(None),
        (Credential::OfProfile | Credential::Password, Some((user, password)), _) => {
            authorization::basic(user, password)
        }
        (Credential::Password, None, _) => return Err(missing("a password")),
        (Credential::Token, _, Some(token)) => format!("Bearer {}", token.as_str()),
        (Credential::Token, _, None) => return Err(missing("a token")),
    };
    let mut value = HeaderValue::from_str(&text)
        .map_err(|_| DriverError::Refused("a credential that no header can carry".to_owned()))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// Whether the profile's own credential is a certificate or a key.
pub(super) fn shown_by_handshake(experiment: &Experiment) -> bool {
    let profile = experiment.security.profile;
    profile.psk || matches!(profile.name, "high" | "pki")
}

/// Returns the text of an error response: its status and the title and detail of a problem document (RFC 9457).
fn refusal(status: u16, body: &[u8]) -> String {
    let problem = serde_json::from_slice::<serde_json::Value>(body).unwrap_or_default();
    let member = |name| problem.get(name).and_then(serde_json::Value::as_str);
    let text = match (member("title"), member("detail")) {
        (Some(title), Some(detail)) => format!("{status} {title}: {detail}"),
        (Some(text), None) | (None, Some(text)) => format!("{status} {text}"),
        (None, None) => status.to_string(),
    };
    said(&text)
}
