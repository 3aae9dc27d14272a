//! From a request of any version to its response: screening, identification, dispatch.

use std::rc::Rc;

use bytes::Bytes;
use fogmux_bus::Timestamp;
use fogmux_http::{Kind, Problem, Route, Unroutable, origin, websocket::handshake};
use http::{
    HeaderName, Method, Request, Response, StatusCode, Version,
    header::{EXPECT, HOST, ORIGIN},
    request::Parts,
};
use http_body::Body;

use super::{
    admin,
    answer::{Answer, Finish, or_problem},
    batch,
    body::Polite,
    conn::Conn,
    cors::Cors,
    dashboard, follow, forwarded, idempotent,
    identity::{Identified, Identity},
    longpoll, metrics,
    payload::{Open, Payload},
    respond, session, state, topics,
    unread::Reader,
    websocket,
};

impl Conn {
    /// Answers one request.
    pub(super) fn call<B>(self: &Rc<Self>, request: Request<B>) -> Answer
    where
        B: Body<Data = Bytes> + Unpin + 'static,
    {
        let open = Open::new(&self.progress);
        let now = self.ctx.now();
        self.progress.active.set(self.ctx.running_at(now));
        let (parts, body) = request.into_parts();
        let of = forwarded::of_request(&self.ctx, &self.peer, parts.version, &parts.headers);
        let conn = of.map(|peer| self.seen_by(peer));
        let conn = conn.as_ref().unwrap_or(self);
        let head = parts.method == Method::HEAD;
        let cors = Cors::of(&self.ctx.door.config.origins, &parts.headers);
        let answer = match Polite::new(&parts.headers, body) {
            Ok(body) => conn.answer(parts, body, now, &cors),
            Err(body) => conn.answer(parts, body, now, &cors),
        };
        let answer = answer.unwrap_or_else(|problem| Answer::now(respond::refused(&problem, &conn.identities)));
        let alt_svc = self.alt_svc();
        answer.finish(Finish { head, alt_svc, cors, open: Some(open) })
    }

    fn answer<B>(
        self: &Rc<Self>,
        parts: Parts,
        body: B,
        now: Timestamp,
        cors: &Cors,
    ) -> Result<Answer, Problem<'static>>
    where
        B: Body<Data = Bytes> + Unpin + 'static,
    {
        let route = Route::parse(parts.uri.path()).map_err(|unroutable| unroutable.problem())?;
        if let Route::AcmeChallenge(token) = route {
            return self.acme_challenge(&parts, token).map(Answer::now);
        }
        let route = if websocket::is_mqtt_at_root(&route, &parts) { Route::Mqtt } else { route };
        let known = knows(&route, &parts);
        let identified = self.screen(&route, &parts, known)?;
        if parts.method == Method::OPTIONS {
            let response = respond::allow(StatusCode::NO_CONTENT, route.allow());
            return Ok(Answer::now(cors.preflight(&parts.headers, response, route.allow())));
        }
        if !known {
            return Ok(Answer::now(respond::allow(StatusCode::METHOD_NOT_ALLOWED, route.allow())));
        }
        // RFC 9110 §10.1.1.
        if parts.headers.get(EXPECT).is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
            return Err(Problem::new(Kind::ExpectationFailed));
        }
        if matches!(route, Route::Login | Route::Logout) {
            let leaving = route == Route::Logout;
            return Ok(self.session(leaving, parts, body));
        }
        match identified {
            None => self.open_route(&route, &parts).map(Answer::now),
            Some(Identified::Now(identity)) => {
                // Without a task and without parsing the path again.
                if let Route::Topic(topic) = &route
                    && matches!(parts.method, Method::GET | Method::HEAD)
                    && parts.uri.query().is_none()
                {
                    let reader = Reader::new(self, &identity, &parts.method);
                    let response = topics::read(self, &identity, topic, &parts, now);
                    return response.map(|response| Answer::now(response).read_by(reader));
                }
                Ok(self.perform(identity, parts, body, now))
            }
            Some(Identified::Verify(pending)) => {
                let conn = Rc::clone(self);
                Ok(Answer::later(async move {
                    match conn.identities.verify(pending).await {
                        Ok(identity) => {
                            let now = conn.ctx.now();
                            conn.perform(identity, parts, body, now).await.unwrap_or_else(|never| match never {})
                        }
                        Err(problem) => respond::refused(&problem, &conn.identities),
                    }
                }))
            }
        }
    }

    /// `/login` and `/logout`.
    fn session<B>(self: &Rc<Self>, leaving: bool, parts: Parts, body: B) -> Answer
    where
        B: Body<Data = Bytes> + Unpin + 'static,
    {
        if leaving {
            return Answer::now(session::log_out(self, &parts.headers));
        }
        if parts.method != Method::POST {
            return Answer::now(session::page());
        }
        let conn = Rc::clone(self);
        Answer::later(async move {
            let result = session::log_in(&conn, &parts, body).await;
            result.unwrap_or_else(|problem| {
                if session::is_page(&parts.headers) {
                    session::refused(&problem)
                } else {
                    respond::refused(&problem, &conn.identities)
                }
            })
        })
    }

    fn perform<B>(self: &Rc<Self>, identity: Rc<Identity>, parts: Parts, body: B, now: Timestamp) -> Answer
    where
        B: Body<Data = Bytes> + Unpin + 'static,
    {
        let reader = Reader::new(self, &identity, &parts.method);
        let goes_on = idempotent::has_key(&parts);
        self.perform_route(identity, parts, body, now).read_by(reader).going_on(goes_on)
    }

    fn perform_route<B>(self: &Rc<Self>, identity: Rc<Identity>, parts: Parts, body: B, now: Timestamp) -> Answer
    where
        B: Body<Data = Bytes> + Unpin + 'static,
    {
        let conn = Rc::clone(self);
        let route = match Route::parse(parts.uri.path()) {
            Ok(route) => route,
            Err(unroutable) => return Answer::now(respond::problem(&unroutable.problem())),
        };
        match route {
            Route::Topic(topic) if matches!(parts.method, Method::GET | Method::HEAD) => {
                let topic = topic.into_owned();
                match longpoll::read(&conn, &identity, topic, parts, now) {
                    Ok(answer) => answer,
                    Err(problem) => Answer::now(respond::problem(&problem)),
                }
            }
            Route::Topic(topic) => {
                let topic = topic.into_owned();
                Answer::later(async move { or_problem(topics::write(&conn, &identity, &topic, &parts, body).await) })
            }
            Route::Publish => {
                Answer::later(async move { or_problem(batch::publish(&conn, &identity, &parts, body).await) })
            }
            Route::Subscribe => Answer::now(or_problem(follow::subscribe(&conn, &identity, &parts))),
            Route::Metrics => Answer::now(or_problem(
                state::check(self, &identity).map(|()| metrics::respond(&self.ctx, &parts.headers)),
            )),
            Route::Api(resource) => Answer::later(async move {
                let result = admin::respond(&conn, &identity, resource, &parts, body).await;
                result.unwrap_or_else(|problem| respond::refused(&problem, &conn.identities))
            }),
            Route::Mqtt
            | Route::Coap
            | Route::AcmeChallenge(_)
            | Route::OpenApi
            | Route::Health
            | Route::Ready
            | Route::Index
            | Route::Asset(_)
            | Route::Login
            | Route::Logout
            | Route::Server => Answer::now(or_problem(self.open_route(&route, &parts))),
        }
    }

    fn open_route(self: &Rc<Self>, route: &Route<'_>, parts: &Parts) -> Result<Response<Payload>, Problem<'static>> {
        const TEXT: &str = "text/plain; charset=utf-8";
        match route {
            Route::OpenApi => Ok(respond::own(fogmux_http::openapi::CONTENT_TYPE, self.ctx.door.openapi())),
            Route::Health => Ok(respond::own(TEXT, "ok\n")),
            Route::Ready => state::ready(self),
            Route::Index => Ok(dashboard::index(&parts.headers)),
            Route::Asset(asset) => Ok(dashboard::asset(*asset, &parts.headers)),
            Route::Server => Ok(respond::allow(StatusCode::NO_CONTENT, route.allow())),
            Route::Mqtt => websocket::mqtt(self, parts),
            Route::Coap => websocket::coap(self, parts),
            Route::AcmeChallenge(token) => self.acme_challenge(parts, token),
            Route::Topic(_)
            | Route::Subscribe
            | Route::Publish
            | Route::Metrics
            | Route::Api(_)
            | Route::Login
            | Route::Logout => Err(Problem::new(Kind::Unauthorized)),
        }
    }

    /// Answers an ACME server (RFC 8555 §8.3) under the name that it validates, which is what other routes take for a
    /// foreign one. To everybody else there is no resource of this path.
    fn acme_challenge(&self, parts: &Parts, token: &str) -> Result<Response<Payload>, Problem<'static>> {
        let asked = host(parts)?.map(origin::without_port).unwrap_or_default();
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        let answer = self.ctx.shared.challenges.key_authorization(asked, token).filter(|_| reads);
        let answer = answer.ok_or_else(|| Unroutable::Unknown.problem())?;
        Ok(respond::own("application/octet-stream", answer.as_bytes().to_vec()))
    }

    /// Refuses requests of foreign web pages, on every route and in every version, and identifies the client if the
    /// route requires it.
    ///
    /// Two checks complement each other: a page of another site has a foreign `Origin`; a page whose own name points to
    /// this machine (DNS rebinding) has a foreign `Host`, and an `Origin` that matches it.
    fn screen(&self, route: &Route<'_>, parts: &Parts, known: bool) -> Result<Option<Identified>, Problem<'static>> {
        let host = host(parts)?;
        self.check_origin(route, parts, host)?;
        let asks = !route.is_open() && parts.method != Method::OPTIONS && known;
        let identified = if asks { Some(self.identities.identify(&parts.headers)?) } else { None };
        self.check_host(route, parts, host, identified.as_ref())?;
        Ok(identified)
    }

    /// Refuses writes, subscriptions and WebSockets of pages of other origins. Browsers keep such pages from reading
    /// responses, but not from asking: a GET that subscribes takes messages of a shared subscription from its members,
    /// and resumes streams of others, so that it is not safe (RFC 9110 §9.2.1).
    fn check_origin(&self, route: &Route<'_>, parts: &Parts, host: Option<&str>) -> Result<(), Problem<'static>> {
        let fetched = || parts.headers.get(SEC_FETCH_SITE);
        if parts.headers.get(ORIGIN).is_none() && fetched().is_none() {
            // No browser: all browsers send one of the two where it matters.
            return Ok(());
        }
        let socket = parts.method == Method::CONNECT || handshake::is_upgrade(&parts.headers);
        let safe = matches!(parts.method, Method::GET | Method::HEAD) && !socket;
        // MQTT authenticates inside the WebSocket; but anonymous access on loopback needs protection, too.
        let takes = matches!(route, Route::Mqtt | Route::Coap | Route::Subscribe);
        if parts.method == Method::OPTIONS || (safe && !takes) {
            return Ok(());
        }
        let mut origins = parts.headers.get_all(ORIGIN).iter();
        let Some(origin) = origins.next() else {
            let ours = fetched().is_some_and(|site| matches!(site.as_bytes(), b"same-origin" | b"none"));
            return if ours { Ok(()) } else { Err(Problem::new(Kind::ForeignOrigin)) };
        };
        // Of two, one is not what a browser has said (RFC 6454 §7.3).
        let origin = if origins.next().is_some() { "null" } else { origin.to_str().unwrap_or("null") };
        let secure = self.peer.secure || forwarded::was_secure(&self.ctx, &self.peer, &parts.headers);
        let allowed = host.is_some_and(|host| origin::is_same(origin, secure, host))
            || self.ctx.door.config.origins.iter().any(|allowed| allowed == origin);
        if allowed { Ok(()) } else { Err(Problem::new(Kind::ForeignOrigin)) }
    }

    /// Where anonymous clients on loopback are admitted, refuses a `Host` that is not known to be this machine, unless
    /// the request has a credential, which such a page does not have.
    fn check_host(
        &self,
        route: &Route<'_>,
        parts: &Parts,
        host: Option<&str>,
        identified: Option<&Identified>,
    ) -> Result<(), Problem<'static>> {
        if !self.peer.may_be_anonymous(&self.ctx.shared.listening) || !self.peer.is_loopback() {
            return Ok(());
        }
        let Some(host) = host else { return Ok(()) };
        let admitted = match identified {
            // A page under a name of its own must not guess passwords from an address that is trusted.
            Some(Identified::Verify(_)) => false,
            Some(Identified::Now(identity)) => !identity.principal().anonymous,
            // Health checks may have any name; a page is not told whether something listens here.
            None => matches!(route, Route::Health | Route::Ready) && !parts.headers.contains_key(ORIGIN),
        };
        let name = origin::without_port(host);
        let known = || {
            origin::is_local_name(host)
                || self.ctx.door.config.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
        };
        if admitted || known() { Ok(()) } else { Err(Problem::new(Kind::Misdirected)) }
    }
}

/// Fetch Metadata: the relation of the page's site to this one.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The host that a request is for. RFC 9112 §3.2: HTTP/1.1 has exactly one `Host`, which is a host with or without a
/// port; in later versions `:authority` stands for it.
fn host(parts: &Parts) -> Result<Option<&str>, Problem<'static>> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let field = match (hosts.next(), hosts.next()) {
        (Some(host), None) => Some(host),
        (None, None) if parts.version != Version::HTTP_11 => None,
        _ => {
            return Err(Problem::new(Kind::BadRequest).detail("a request has one Host; HTTP/1.1 requires it"));
        }
    };
    let invalid = || Problem::new(Kind::BadRequest).detail("Host is no host, with or without a port");
    let field =
        field.map(|host| host.to_str().ok().filter(|host| origin::is_host(host)).ok_or_else(invalid)).transpose()?;
    // RFC 9112 §3.2.2: an absolute target wins over it.
    match parts.uri.authority().map(http::uri::Authority::as_str) {
        Some(authority) if origin::is_host(authority) => Ok(Some(authority)),
        Some(_) => Err(invalid()),
        None => Ok(field),
    }
}

fn knows(route: &Route<'_>, parts: &Parts) -> bool {
    // RFC 8441 §4: CONNECT with a `:protocol` is how HTTP/2 opens a WebSocket.
    if parts.method == Method::CONNECT {
        return matches!(route, Route::Subscribe | Route::Mqtt | Route::Coap)
            && parts.extensions.get::<hyper::ext::Protocol>().is_some_and(|protocol| protocol.as_str() == "websocket");
    }
    route.allow().split(", ").any(|method| method == parts.method.as_str())
}
