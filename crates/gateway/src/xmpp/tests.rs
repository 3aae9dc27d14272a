//! The door over real sockets, by clause of XEP-0060 and RFC 6120.

mod clearings;
mod lists;
mod logins;
mod nodes;
mod records;
mod shutdown;
mod store;
mod streams;

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use fogmux_auth::{
    AnonymousPolicy, Authority, Rules, Users,
    scram::{ScramClient, ScramHash},
};
use fogmux_bus::{BusConfig, Forgetful, RetainedStore};
use fogmux_net::TlsConfig;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{XmppConfig, XmppContext, kept::tests::Shelf};
use crate::{Gateway, GatewayConfig, Listener, Peer, RunningGateway, listener::Listen};

const OPEN: &str = "<?xml version='1.0'?><stream:stream to='localhost' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>";
const SERVICE: &str = "pubsub.localhost";
const PASSWORD: &str = "p\u{e4}ss";

static USERS: LazyLock<Users> = LazyLock::new(|| {
    let mut users = Users::default();
    for user in ["ada", "bob"] {
        users.set_password(user, PASSWORD.as_bytes()).expect("a password");
    }
    users
});

fn gateway() -> RunningGateway {
    gateway_with(XmppConfig { login_timeout: Duration::from_secs(5), ..XmppConfig::default() })
}

fn gateway_with(xmpp: XmppConfig) -> RunningGateway {
    let rules = Rules::new(USERS.clone(), None, AnonymousPolicy::Loopback);
    start(xmpp, Listen { anonymous: true, ..listen() }, None, rules)
}

fn listen() -> Listen {
    Listen::new(Listener::Xmpp, ([127, 0, 0, 1], 0).into())
}

fn start(xmpp: XmppConfig, listen: Listen, tls: Option<TlsConfig>, rules: Rules) -> RunningGateway {
    start_on(Box::new(Forgetful), xmpp, listen, tls, rules)
}

fn start_on(
    store: Box<dyn RetainedStore>,
    xmpp: XmppConfig,
    listen: Listen,
    tls: Option<TlsConfig>,
    rules: Rules,
) -> RunningGateway {
    let config = GatewayConfig {
        #[cfg(feature = "traces")]
        traces: None,
        workers: 2,
        bus: BusConfig::default(),
        listen: vec![listen],
        tls,
        store: None,
        discovery: None,
        administration: Default::default(),
        quic: Default::default(),
        accept: Default::default(),
        proxies: crate::proxy::ProxyConfig::default(),
        mqtt: Default::default(),
        links: Vec::new(),
        oscore: std::sync::Arc::default(),
        coap: Default::default(),
        http: Default::default(),
        xmpp,
    };
    Gateway::start(config, Arc::new(Authority::new(rules)), store).expect("a gateway")
}

/// A connection, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A client that knows nothing of XML: it looks for text.
struct Client {
    stream: Box<dyn Stream>,
    seen: String,
    jid: String,
    next_id: u32,
}

impl Client {
    async fn connect(gateway: &RunningGateway) -> Self {
        let address = gateway.address(Listener::Xmpp).expect("it listens");
        let stream = TcpStream::connect(address).await.expect("a connection");
        Self::over(stream)
    }

    fn over(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), seen: String::new(), jid: String::new(), next_id: 0 }
    }

    async fn login(gateway: &RunningGateway) -> Self {
        let mut client = Self::connect(gateway).await;
        client.open().await;
        client.send("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='ANONYMOUS'/>").await;
        client.until("<success").await;
        client.bind().await;
        client
    }

    async fn login_as(gateway: &RunningGateway, user: &str) -> Self {
        let mut client = Self::connect(gateway).await;
        client.open().await;
        let mut scram = ScramClient::new(ScramHash::Sha256, user, PASSWORD, "nonce").expect("prepared");
        client.auth("SCRAM-SHA-256", &scram.first()).await;
        let answer = scram.respond(&client.data("challenge").await).expect("a challenge");
        client.response(&answer).await;
        scram.verify(&client.data("success").await).expect("a proof");
        client.bind().await;
        client
    }

    /// Opens a stream; its features.
    async fn open(&mut self) -> String {
        self.send(OPEN).await;
        self.until("</stream:features>").await
    }

    async fn auth(&mut self, mechanism: &str, initial: &[u8]) {
        let data = if initial.is_empty() { "=".to_owned() } else { STANDARD.encode(initial) };
        let auth = format!("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='{mechanism}'>{data}</auth>");
        self.send(&auth).await;
    }

    async fn response(&mut self, data: &[u8]) {
        let data = STANDARD.encode(data);
        self.send(&format!("<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{data}</response>")).await;
    }

    /// The data in the next element, which has this name.
    async fn data(&mut self, name: &str) -> Vec<u8> {
        let text = self.until(&format!("</{name}>")).await;
        let data = text.strip_prefix(&format!("<{name} xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>"));
        let data = data.and_then(|data| data.strip_suffix(&format!("</{name}>")));
        STANDARD.decode(data.unwrap_or_else(|| panic!("no {name} but {text}"))).expect("base64")
    }

    async fn bind(&mut self) {
        self.open().await;
        self.send(
            "<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>r</resource></bind></iq>",
        )
        .await;
        let bound = self.until("</iq>").await;
        let jid = bound.split_once("<jid>").and_then(|(_, rest)| rest.split_once("</jid>")).expect("an address");
        self.jid = jid.0.to_owned();
    }

    fn bare(&self) -> String {
        self.jid.split('/').next().unwrap_or_default().to_owned()
    }

    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.expect("written");
        self.stream.flush().await.expect("flushed");
    }

    /// Reads up to and including `needle`.
    async fn until(&mut self, needle: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(needle) {
                let rest = self.seen.split_off(at + needle.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let mut buffer = [0; 4096];
            let read = tokio::time::timeout(Duration::from_secs(5), self.stream.read(&mut buffer)).await;
            match read {
                Ok(Ok(count @ 1..)) => self.seen.push_str(&String::from_utf8_lossy(&buffer[..count])),
                other => panic!("no {needle:?} but {:?} and then {other:?}", self.seen),
            }
        }
    }

    /// Sends an IQ to the service; its answer.
    async fn ask(&mut self, kind: &str, body: &str) -> String {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&format!("<iq type='{kind}' id='q{id}' to='{SERVICE}'>{body}</iq>")).await;
        self.until(&format!("id='q{id}'")).await;
        // An answer is either empty or has an end tag of its own.
        let head = self.until(">").await;
        if head.ends_with("/>") { head } else { head + &self.until("</iq>").await }
    }

    async fn entity(&mut self, kind: &str, action: &str) -> String {
        self.ask(kind, &format!("<pubsub xmlns='http://jabber.org/protocol/pubsub'>{action}</pubsub>")).await
    }

    async fn owner(&mut self, kind: &str, action: &str) -> String {
        self.ask(kind, &format!("<pubsub xmlns='http://jabber.org/protocol/pubsub#owner'>{action}</pubsub>")).await
    }

    async fn publish(&mut self, node: &str, text: &str) -> String {
        let item = format!("<item><data xmlns='urn:fogmux:0' content-type='text/plain'>{text}</data></item>");
        self.entity("set", &format!("<publish node='{node}'>{item}</publish>")).await
    }

    async fn subscribe(&mut self, node: &str, options: &str) -> String {
        let jid = self.bare();
        self.entity("set", &format!("<subscribe node='{node}' jid='{jid}'/>{options}")).await
    }
}

fn form(kind: &str, fields: &[(&str, &str)]) -> String {
    let fields: String = fields.iter().map(|(k, v)| format!("<field var='{k}'><value>{v}</value></field>")).collect();
    format!(
        "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'><value>http://jabber.org/protocol/pubsub#{kind}</value></field>{fields}</x>"
    )
}

#[track_caller]
fn has(answer: &str, fragment: &str) {
    assert!(answer.contains(fragment), "no {fragment:?} in {answer:?}");
}

#[tokio::test]
async fn publish_keep_notify_and_clear() {
    let gateway = gateway();
    let (mut ada, mut bob) = (Client::login(&gateway).await, Client::login(&gateway).await);
    has(&ada.publish("a/b", "1").await, "<item id='current'/>");
    has(&bob.subscribe("a/b", "").await, "subscription='subscribed'");
    // s6.1.7: the last item comes with the subscription.
    let event = bob.until("</message>").await;
    has(
        &event,
        "<items node='a/b'><item id='current'><data xmlns='urn:fogmux:0' content-type='text/plain' encoding='utf8'>1</data>",
    );
    has(&event, &format!("to='{}'", bob.bare()));
    has(&ada.publish("a/b", "2").await, "<publish node='a/b'>");
    has(&bob.until("</message>").await, ">2</data>");
    has(&bob.entity("get", "<items node='a/b' max_items='1'/>").await, ">2</data>");
    let options =
        format!("<publish-options>{}</publish-options>", form("publish-options", &[("pubsub#persist_items", "0")]));
    let passing = format!("<publish node='a/b'><item id='x'><e xmlns='u'/></item></publish>{options}");
    ada.entity("set", &passing).await;
    has(&bob.until("</message>").await, "<e xmlns='u'/>");
    has(&bob.entity("get", "<items node='a/b'/>").await, ">2</data>");
    ada.entity("set", "<retract node='a/b'><item id='current'/></retract>").await;
    has(&bob.until("</message>").await, "<items node='a/b'><retract id='current'/></items>");
    has(&ada.entity("set", "<retract node='a/b'><item id='current'/></retract>").await, "<item-not-found");
    has(&bob.entity("get", "<items node='a/b'/>").await, "<items node='a/b'/>");
    ada.owner("set", "<purge node='a/b'/>").await;
    has(&bob.until("</message>").await, "<purge node='a/b'/>");
    ada.owner("set", "<delete node='a/b'/>").await;
    has(&bob.until("</message>").await, "<delete node='a/b'/>");
    has(&bob.entity("get", "<subscriptions/>").await, "<subscriptions/>");
    has(&bob.entity("get", "<items node='a/b'/>").await, "<item-not-found");
}

#[tokio::test]
async fn wildcards_follow_the_option() {
    let gateway = gateway();
    let (mut ada, mut bob) = (Client::login(&gateway).await, Client::login(&gateway).await);
    for n in 0..100 {
        ada.publish(&format!("w/{n:03}/t"), "old").await;
    }
    has(&bob.subscribe("w/#", "").await, "<not-acceptable");
    let option = |v: &str| format!("<options>{}</options>", form("subscribe_options", &[("{urn:fogmux:0}filter", v)]));
    has(&bob.subscribe("w/#/x", &option("true")).await, "<invalid-options");
    has(&bob.subscribe("w/+/t", &option("true")).await, "<subscription node='w/+/t'");
    for n in 0..100 {
        has(&bob.until("</message>").await, &format!("<items node='w/{n:03}/t'>"));
    }
    ada.publish("w/new/t", "new").await;
    has(&bob.until("</message>").await, "<items node='w/new/t'>");
    has(&bob.entity("get", "<subscriptions/>").await, "node='w/+/t'");
    let jid = bob.bare();
    bob.entity("set", &format!("<unsubscribe node='w/+/t' jid='{jid}'/>")).await;
    let again = bob.entity("set", &format!("<unsubscribe node='w/+/t' jid='{jid}'/>")).await;
    has(&again, "<not-subscribed");
}

#[tokio::test]
async fn nodes_and_subscriptions_outlive_the_process() {
    let shelf = Arc::new(Shelf::default());
    let start = || gateway_with(XmppConfig { store: Some(Arc::clone(&shelf) as _), ..XmppConfig::default() });
    let first = start();
    let (mut ada, mut bob) = (Client::login_as(&first, "ada").await, Client::login_as(&first, "bob").await);
    let mut nobody = Client::login(&first).await;
    let closed = form("node_config", &[("pubsub#title", "T"), ("pubsub#access_model", "whitelist")]);
    ada.entity("set", &format!("<create node='kept'/><configure>{closed}</configure>")).await;
    ada.owner(
        "set",
        "<affiliations node='kept'><affiliation jid='bob@localhost' affiliation='member'/></affiliations>",
    )
    .await;
    has(&bob.subscribe("kept", "").await, "subscription='subscribed'");
    let option = format!("<options>{}</options>", form("subscribe_options", &[("{urn:fogmux:0}filter", "true")]));
    bob.subscribe("all/#", &option).await;
    for node in ["ended", "deleted"] {
        bob.subscribe(node, "").await;
        nobody.subscribe(node, "").await;
    }
    let full = bob.jid.clone();
    bob.entity("set", &format!("<subscribe node='full' jid='{full}'/>")).await;
    bob.entity("set", "<unsubscribe node='ended' jid='bob@localhost'/>").await;
    ada.publish("deleted", "1").await;
    ada.owner("set", "<delete node='deleted'/>").await;
    assert!(first.drain(Duration::from_secs(5)).await);

    let second = start();
    let (mut ada, mut bob) = (Client::login_as(&second, "ada").await, Client::login_as(&second, "bob").await);
    let mut nobody = Client::login(&second).await;
    let kept = bob.entity("get", "<subscriptions/>").await;
    has(&kept, "<subscription node='kept' jid='bob@localhost' subscription='subscribed'/>");
    has(&kept, "<subscription node='all/#' jid='bob@localhost' subscription='subscribed'/>");
    assert_eq!(kept.matches("<subscription ").count(), 2, "{kept}");
    has(&nobody.entity("get", "<subscriptions/>").await, "<subscriptions/>");
    has(&nobody.subscribe("kept", "").await, "<closed-node");
    has(&ada.owner("get", "<configure node='kept'/>").await, "<value>T</value>");
    has(&bob.owner("get", "<configure node='kept'/>").await, "<forbidden");
    ada.publish("kept", "1").await;
    has(&bob.until("</message>").await, "<items node='kept'>");
    ada.publish("all/1", "1").await;
    has(&bob.until("</message>").await, "<items node='all/1'>");
    assert!(second.drain(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn discovery_and_the_rest() {
    let gateway = gateway();
    let mut ada = Client::login(&gateway).await;
    ada.publish("d/1", "x").await;
    ada.entity("set", "<create node='d/0'/>").await;
    let items = ada.ask("get", "<query xmlns='http://jabber.org/protocol/disco#items'/>").await;
    has(&items, "<item jid='pubsub.localhost' node='d/0'/><item jid='pubsub.localhost' node='d/1'/>");
    let page = "<query xmlns='http://jabber.org/protocol/disco#items'><set xmlns='http://jabber.org/protocol/rsm'><max>1</max><after>d/0</after></set></query>";
    has(&ada.ask("get", page).await, "<last>d/1</last>");
    has(&ada.ask("get", "<query xmlns='http://jabber.org/protocol/disco#items' node='d/1'/>").await, "name='current'");
    has(&ada.ask("get", "<query xmlns='http://jabber.org/protocol/disco#info' node='d/1'/>").await, "type='leaf'");
    has(&ada.ask("get", "<query xmlns='http://jabber.org/protocol/disco#info' node='e'/>").await, "<item-not-found");
    has(&ada.ask("get", "<vCard xmlns='vcard-temp'/>").await, "<service-unavailable");
    has(&ada.ask("get", "<query xmlns='jabber:iq:version'/>").await, "<name>fogmux</name>");
    has(&ada.entity("set", "<publish node='d'/>").await, "<item-required");
    has(&ada.entity("set", "<publish node='d'><item/></publish>").await, "<payload-required");
    has(&ada.entity("set", "<publish node='$SYS/x'><item><e xmlns='u'/></item></publish>").await, "<forbidden");
    ada.send("<iq type='get' id='r'><query xmlns='jabber:iq:roster'/></iq><message to='x@localhost' id='m'/>").await;
    has(&ada.until("</iq>").await, "<query xmlns='jabber:iq:roster'/>");
    has(&ada.until("</message>").await, "<service-unavailable");
    ada.send("<iq type='get' id='p' to='elsewhere.example'><ping xmlns='urn:xmpp:ping'/></iq>").await;
    has(&ada.until("</iq>").await, "<error type='cancel'><remote-server-not-found");
    ada.send("<iq type='get' id='p' to='x@localhost'><ping xmlns='urn:xmpp:ping'/></iq>").await;
    has(&ada.until("</iq>").await, "<error type='cancel'><service-unavailable");
    ada.send("<presence/><presence type='subscribe' id='s' to='x@localhost'/>").await;
    has(&ada.until("/>").await, "<presence type='unsubscribed' id='s' from='x@localhost'");
}

/// Size of an idle connection besides its mailbox and its entries in the registries.
#[test]
fn an_idle_connection_is_small() {
    type Session = super::session::Session<TcpStream>;
    fn running<F: Future>(_: impl FnOnce(Box<Session>) -> F) -> usize {
        size_of::<F>()
    }
    let (running, session) = (running(Session::run), size_of::<Session>());
    assert!(running <= 320 && session <= 520, "{running} and {session}");
}
