//! A service of publish-subscribe that says what it was asked.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fogmux_auth::scram::{AwaitingClientFinal, ClientFirst, ScramHash, ScramKeys};
use fogmux_xmpp::form::Form;
use fogmux_xmpp::iq::{Answer, IqHead, IqKind};
use fogmux_xmpp::pubsub::{self, NodeConfig, Request, SubscriptionOut, SubscriptionState};
use fogmux_xmpp::stream::{Offer, SaslCondition, StartTls};
use fogmux_xmpp::{
    Element, Jid, Limits, Query, ServerConfig, ServerEvent, ServerStream, StanzaCondition, StanzaError, Writer, ns,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

#[derive(Default)]
struct Node {
    /// Whether any client may configure it.
    owned: bool,
    kept: Option<Vec<u8>>,
    subscribers: Vec<(String, UnboundedSender<Vec<u8>>)>,
}

#[derive(Default)]
struct State {
    port: u16,
    nodes: HashMap<String, Node>,
    log: Vec<String>,
    publish_options: bool,
    login: Option<(String, String)>,
    clients: Vec<UnboundedSender<Vec<u8>>>,
}

/// The service.
#[derive(Clone, Default)]
pub(super) struct Service(Rc<RefCell<State>>);

impl Service {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let this = Self::default();
        this.0.borrow_mut().port = listener.local_addr().unwrap().port();
        let serving = this.clone();
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (client, told) = unbounded_channel();
                serving.0.borrow_mut().clients.push(client.clone());
                tokio::task::spawn_local(Connection::new(serving.clone(), client).serve(stream, told));
            }
        });
        this
    }

    pub(super) fn port(&self) -> u16 {
        self.0.borrow().port
    }

    pub(super) fn has_node(&self, node: &str, owned: bool, publish_options: bool) {
        let mut state = self.0.borrow_mut();
        state.nodes.insert(node.to_owned(), Node { owned, ..Node::default() });
        state.publish_options = publish_options;
    }

    pub(super) fn wants_password(&self, user: &str, password: &str) {
        self.0.borrow_mut().login = Some((user.to_owned(), password.to_owned()));
    }

    /// Tells every client.
    pub(super) fn say(&self, stanza: &str) {
        for client in &self.0.borrow().clients {
            let _ = client.send(stanza.as_bytes().to_vec());
        }
    }

    /// The log of requests; equal consecutive ones are listed once.
    pub(super) fn log(&self) -> Vec<String> {
        self.0.borrow().log.clone()
    }

    fn note(&self, what: String) {
        let log = &mut self.0.borrow_mut().log;
        if log.last() != Some(&what) {
            log.push(what);
        }
    }
}

struct Connection {
    service: Service,
    own: UnboundedSender<Vec<u8>>,
    machine: ServerStream,
    scram: Option<AwaitingClientFinal>,
}

impl Connection {
    fn new(service: Service, own: UnboundedSender<Vec<u8>>) -> Self {
        let config = ServerConfig {
            domain: Jid::parse("localhost").unwrap(),
            limits: Limits::default(),
            login_timeout: Duration::from_secs(10),
        };
        let mechanisms =
            if service.0.borrow().login.is_some() { vec!["SCRAM-SHA-256", "PLAIN"] } else { vec!["ANONYMOUS"] };
        let offer = Offer { starttls: StartTls::Unavailable, mechanisms, channel_bindings: vec![] };
        let machine = ServerStream::new(Arc::new(config), offer, 7, Duration::ZERO);
        Self { service, own, machine, scram: None }
    }

    async fn serve(mut self, mut stream: TcpStream, mut told: UnboundedReceiver<Vec<u8>>) {
        let (mut input, mut out) = (Vec::new(), Vec::new());
        while !self.machine.is_closed() {
            tokio::select! {
                read = stream.read_buf(&mut input) => if read.unwrap_or(0) == 0 { return },
                Some(stanza) = told.recv() => out.extend_from_slice(&stanza),
            }
            loop {
                let (used, event) = self.machine.handle(&input, &mut out);
                let Some(event) = event else {
                    input.drain(..used);
                    break;
                };
                // An event borrows the input, and the machine is needed to answer it.
                let Self { service, own, machine, scram } = &mut self;
                handle(service, own, machine, scram, event, &mut out);
                input.drain(..used);
            }
            if stream.write_all(&out).await.is_err() {
                return;
            }
            out.clear();
        }
    }
}

fn handle(
    service: &Service,
    own: &UnboundedSender<Vec<u8>>,
    machine: &mut ServerStream,
    scram: &mut Option<AwaitingClientFinal>,
    event: ServerEvent<'_>,
    out: &mut Vec<u8>,
) {
    match event {
        ServerEvent::Authenticate { mechanism: "ANONYMOUS", .. } => {
            machine.succeed(Jid::parse("nobody@localhost").unwrap(), None, out);
        }
        ServerEvent::Authenticate { initial, .. } => {
            let first = ClientFirst::parse(&initial.unwrap()).unwrap();
            let (user, password) = service.0.borrow().login.clone().unwrap();
            assert_eq!(first.user(), user);
            let keys = ScramKeys::derive(ScramHash::Sha256, &password, b"salt of sixteen.", 4096).unwrap();
            let (awaiting, challenge) = first.challenge(keys, "servernonce");
            *scram = Some(awaiting);
            machine.challenge(&challenge, out);
        }
        ServerEvent::Response(data) => match scram.take().unwrap().client_final(&data) {
            Ok(proof) => machine.succeed(Jid::parse("ada@localhost").unwrap(), Some(&proof), out),
            Err(_) => machine.refuse(SaslCondition::NotAuthorized, out),
        },
        ServerEvent::Bind(request) => {
            let full = machine.jid().unwrap().with_resource(request.resource.as_deref().unwrap()).unwrap();
            machine.bound(&request, full, out);
        }
        ServerEvent::Stanza(stanza) => asked(service, own, machine.jid().unwrap().as_str(), &stanza, out),
        ServerEvent::Ended => service.note("end".to_owned()),
        ServerEvent::StartTls | ServerEvent::Aborted | ServerEvent::Failed(_) => panic!("{event:?}"),
    }
}

fn asked(service: &Service, own: &UnboundedSender<Vec<u8>>, jid: &str, stanza: &Element<'_>, out: &mut Vec<u8>) {
    if stanza.name != "iq" {
        return;
    }
    let head = IqHead::of(stanza).unwrap();
    match head.kind {
        IqKind::Result => return service.note(format!("result {}", head.id)),
        IqKind::Error => return service.note(format!("error {}", head.id)),
        IqKind::Get | IqKind::Set => {}
    }
    let answer = Answer { id: head.id, from: head.to, to: jid };
    let query = Query::of(stanza, head.kind).unwrap();
    let refuse = |condition, out: &mut Vec<u8>| answer.error(out, &StanzaError::new(condition));
    match query {
        Query::Pubsub(Request::Create { node: Some(node), config }) => {
            if service.0.borrow().nodes.contains_key(node) {
                service.note(format!("conflict {node}"));
                return refuse(StanzaCondition::Conflict, out);
            }
            service.note(format!("create {node} {}", persistence(config.as_ref())));
            service.0.borrow_mut().nodes.insert(node.to_owned(), Node { owned: true, ..Node::default() });
            answer.empty(out);
        }
        Query::Pubsub(Request::SetConfig { node, config }) => {
            if !service.0.borrow().nodes.get(node).is_some_and(|node| node.owned) {
                service.note(format!("forbidden {node}"));
                return refuse(StanzaCondition::Forbidden, out);
            }
            service.note(format!("configure {node} {}", persistence(config.as_ref())));
            answer.empty(out);
        }
        Query::Pubsub(Request::Subscribe { node: Some(node), jid: follower, .. }) => {
            service.note(format!("subscribe {node}"));
            assert_eq!(follower.as_str(), jid);
            let subscriber = (jid.to_owned(), own.clone());
            service.0.borrow_mut().nodes.get_mut(node).unwrap().subscribers.push(subscriber);
            let told = SubscriptionOut { node, jid, state: SubscriptionState::Subscribed };
            answer.result(out, |w| pubsub::write_subscribed(w, &told));
        }
        Query::Pubsub(Request::Publish { node, items, options, .. }) => {
            let persist = options.persist_items.map_or(String::new(), |on| format!(" persist={}", u8::from(on)));
            service.note(format!("publish {node}{persist}"));
            let payload = items.first().unwrap().payload.as_ref().unwrap();
            publish(service, node, payload.content_type, &payload.bytes);
            answer.result(out, |w| pubsub::write_published(w, node, std::iter::once("i")));
        }
        Query::Pubsub(Request::Items { node, .. }) => match service.0.borrow().nodes.get(node) {
            None => refuse(StanzaCondition::ItemNotFound, out),
            Some(node_state) => answer.result(out, |w| {
                let kept = node_state.kept.iter();
                let items: Vec<_> =
                    kept.map(|bytes| pubsub::ItemOut { id: pubsub::CURRENT, content_type: None, bytes }).collect();
                pubsub::write_items(w, node, &items, None);
            }),
        },
        Query::DiscoInfo(_) => {
            service.note("disco".to_owned());
            let options = service.0.borrow().publish_options;
            answer.result(out, |w| features(w, options));
        }
        Query::Session
        | Query::Ping
        | Query::Version
        | Query::DiscoItems(_)
        | Query::RosterGet
        | Query::RosterSet
        | Query::Pubsub(_)
        | Query::Unknown => panic!("not a request of the driver's"),
    }
}

/// Returns the persistence that the configuration form of a node requests.
fn persistence(form: Option<&Form<'_>>) -> String {
    // The initial value is the opposite of the requested one, so that a form without the field is noticed.
    let read = |start: bool| {
        let mut config = NodeConfig { persist_items: start, ..NodeConfig::default() };
        config.apply(form.unwrap()).unwrap();
        config.persist_items
    };
    assert_eq!(read(true), read(false), "the form says nothing of persist_items");
    format!("persist={}", u8::from(read(true)))
}

fn publish(service: &Service, node: &str, content_type: Option<&str>, bytes: &[u8]) {
    let mut state = service.0.borrow_mut();
    let to = state.nodes.get_mut(node).unwrap();
    to.kept = Some(bytes.to_vec());
    for (jid, subscriber) in &to.subscribers {
        let mut stanza = Vec::new();
        pubsub::write_head(&mut stanza, "pubsub.localhost", jid);
        pubsub::write_item(&mut stanza, node, "1", Some((content_type, bytes)));
        pubsub::write_event_tail(&mut stanza, std::iter::empty());
        subscriber.send(stanza).unwrap();
    }
}

fn features(w: &mut Writer<'_>, publish_options: bool) {
    w.start_ns("query", ns::DISCO_INFO);
    w.start("feature").attr("var", ns::PUBSUB).end("feature");
    if publish_options {
        w.start("feature").attr("var", "http://jabber.org/protocol/pubsub#publish-options").end("feature");
    }
    w.end("query");
}
