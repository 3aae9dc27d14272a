//! A small server of all three versions, by hyper and by h3: not our gateway, so that the two cannot be wrong alike.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use fogmux_http::{Event, sse};
use futures_util::stream;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_local;
use tokio_rustls::TlsAcceptor;

/// The state of the server: retained messages, subscribers and a log of requests.
#[derive(Default)]
pub(super) struct Server {
    kept: RefCell<HashMap<String, Bytes>>,
    followers: RefCell<Vec<UnboundedSender<Bytes>>>,
    /// Method, target and Authorization of each request.
    pub(super) asked: RefCell<Vec<(Method, String, Option<String>)>>,
    under_way: Cell<usize>,
    /// The most requests that it had under way at once.
    pub(super) under_way_max: Cell<usize>,
}

/// Where it listens, of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listens {
    One,
    Two,
    OneOverTls,
    TwoOverTls,
    Three,
}

enum Reply {
    Whole(Bytes),
    Events(UnboundedReceiver<Bytes>),
}

impl Server {
    /// Starts on this thread.
    pub(super) async fn start(listens: Listens) -> (Rc<Self>, SocketAddr) {
        let server = Rc::new(Self::default());
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        if listens == Listens::Three {
            let tls = quinn::crypto::rustls::QuicServerConfig::try_from(tls(b"h3")).unwrap();
            let config = quinn::ServerConfig::with_crypto(Arc::new(tls));
            let endpoint = quinn::Endpoint::server(config, here).unwrap();
            let address = endpoint.local_addr().unwrap();
            spawn_local(Rc::clone(&server).accept_quic(endpoint));
            return (server, address);
        }
        let listener = TcpListener::bind(here).await.unwrap();
        let address = listener.local_addr().unwrap();
        spawn_local(Rc::clone(&server).accept(listener, listens));
        (server, address)
    }

    async fn accept(self: Rc<Self>, listener: TcpListener, listens: Listens) {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let server = Rc::clone(&self);
            let tls = match listens {
                Listens::One | Listens::Two | Listens::Three => None,
                Listens::OneOverTls => Some(tls(b"http/1.1")),
                Listens::TwoOverTls => Some(tls(b"h2")),
            };
            let is_one = matches!(listens, Listens::One | Listens::OneOverTls);
            spawn_local(async move {
                match tls {
                    None => server.serve(stream, is_one).await,
                    Some(tls) => {
                        let Ok(stream) = TlsAcceptor::from(Arc::new(tls)).accept(stream).await else { return };
                        server.serve(stream, is_one).await;
                    }
                }
            });
        }
    }

    async fn serve(self: Rc<Self>, stream: impl AsyncRead + AsyncWrite + Unpin + 'static, is_one: bool) {
        let service = service_fn(move |request: Request<Incoming>| {
            let server = Rc::clone(&self);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let target = parts.uri.path_and_query().unwrap().to_string();
                let (status, reply) = server.answer(parts.method, target, &parts.headers, body).await;
                let body = match reply {
                    Reply::Whole(body) => UnsyncBoxBody::new(Full::new(body).map_err(|never| match never {})),
                    Reply::Events(events) => UnsyncBoxBody::new(StreamBody::new(stream::unfold(events, next))),
                };
                let mut response = Response::new(body);
                *response.status_mut() = status;
                Ok::<_, hyper::Error>(response)
            }
        });
        // A client that is gone is no failure of the server's.
        let _ = if is_one {
            http1::Builder::new().serve_connection(TokioIo::new(stream), service).await
        } else {
            http2::Builder::new(Local).serve_connection(TokioIo::new(stream), service).await
        };
    }

    async fn accept_quic(self: Rc<Self>, endpoint: quinn::Endpoint) {
        while let Some(incoming) = endpoint.accept().await {
            let Ok(connection) = incoming.await else { continue };
            let connection = h3_quinn::Connection::new(connection);
            let mut connection = h3::server::Connection::<_, Bytes>::new(connection).await.unwrap();
            let server = Rc::clone(&self);
            spawn_local(async move {
                while let Ok(Some(resolver)) = connection.accept().await {
                    let server = Rc::clone(&server);
                    spawn_local(async move {
                        let Ok((request, mut stream)) = resolver.resolve_request().await else { return };
                        let mut body = BytesMut::new();
                        while let Ok(Some(mut piece)) = stream.recv_data().await {
                            body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
                        }
                        let target = request.uri().path_and_query().unwrap().to_string();
                        let method = request.method().clone();
                        let (status, reply) = server.answer(method, target, request.headers(), body.freeze()).await;
                        let response = Response::builder().status(status).body(()).unwrap();
                        stream.send_response(response).await.unwrap();
                        match reply {
                            Reply::Whole(body) => stream.send_data(body).await.unwrap(),
                            Reply::Events(mut events) => {
                                while let Some(event) = events.recv().await {
                                    if stream.send_data(event).await.is_err() {
                                        return;
                                    }
                                }
                            }
                        }
                        let _ = stream.finish().await;
                    });
                }
            });
        }
    }

    async fn answer(&self, method: Method, target: String, fields: &HeaderMap, body: Bytes) -> (StatusCode, Reply) {
        let authorization = fields.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
        self.asked.borrow_mut().push((method.clone(), target.clone(), authorization));
        if method == Method::PUT || method == Method::POST {
            let length = fields.get(header::CONTENT_LENGTH).map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(length, Some(body.len().to_string()));
        }
        self.under_way.set(self.under_way.get() + 1);
        self.under_way_max.set(self.under_way_max.get().max(self.under_way.get()));
        // So that requests meet here if they can.
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.under_way.set(self.under_way.get() - 1);
        let path = target.split('?').next().unwrap_or_default().to_owned();
        if method == Method::PUT {
            self.kept.borrow_mut().insert(path, body);
            return (StatusCode::NO_CONTENT, Reply::Whole(Bytes::new()));
        }
        if method == Method::POST {
            let event = event(&path, &body);
            self.followers.borrow_mut().retain(|follower| follower.send(event.clone()).is_ok());
            return (StatusCode::ACCEPTED, Reply::Whole(Bytes::new()));
        }
        if path == "/subscribe" {
            let (sender, receiver) = unbounded_channel();
            sender.send(Bytes::from_static(sse::PREAMBLE)).unwrap();
            self.followers.borrow_mut().push(sender);
            return (StatusCode::OK, Reply::Events(receiver));
        }
        match self.kept.borrow().get(&path) {
            Some(body) => (StatusCode::OK, Reply::Whole(body.clone())),
            None => {
                let problem = br#"{"title":"Not Found","detail":"nothing is kept"}"#;
                (StatusCode::NOT_FOUND, Reply::Whole(Bytes::from_static(problem)))
            }
        }
    }
}

async fn next(
    mut events: UnboundedReceiver<Bytes>,
) -> Option<(Result<Frame<Bytes>, hyper::Error>, UnboundedReceiver<Bytes>)> {
    let event = events.recv().await?;
    Some((Ok(Frame::data(event)), events))
}

fn event(topic: &str, payload: &[u8]) -> Bytes {
    let message = Event {
        id: "",
        topic,
        payload,
        content_type: None,
        qos: 1,
        retain: false,
        time_unix_ms: 0,
        properties: &[],
        reply_to: None,
        correlation: None,
    };
    let mut out = Vec::new();
    sse::push_event(None, "1", &mut out, |out| message.encode(out));
    out.into()
}

fn tls(alpn: &[u8]) -> ServerConfig {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![alpn.to_vec()];
    config
}

/// Runs hyper's tasks on this thread.
#[derive(Clone, Copy)]
struct Local;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for Local {
    fn execute(&self, task: F) {
        spawn_local(task);
    }
}
