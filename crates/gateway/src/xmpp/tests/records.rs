//! Nodes and subscriptions that the store refuses, at once or when its commit fails: nothing has changed then.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use fogmux_bus::{Completer, Completion, StoreFailed};

use super::*;
use crate::xmpp::NodeStore;

/// The fate of a record.
#[derive(Clone, Debug, Default)]
enum Mood {
    #[default]
    Takes,
    Refuses,
    Waits(Arc<Completer>),
}

/// A store of records whose commits end as the test says.
#[derive(Debug, Default)]
struct Moody {
    shelf: Shelf,
    mood: Mutex<Mood>,
    asked: AtomicUsize,
}

impl NodeStore for Moody {
    fn put(&self, principal: &Arc<str>, key: &str, value: Option<Box<[u8]>>) -> Completion {
        self.asked.fetch_add(1, Relaxed);
        match &*self.mood.lock().expect("a mood") {
            Mood::Takes => self.shelf.put(principal, key, value),
            Mood::Refuses => Completion::Failed,
            Mood::Waits(completer) => Completion::Waiting(Arc::clone(completer)),
        }
    }

    fn load(&self, prefix: &str, visit: &mut dyn FnMut(&str, &[u8])) {
        self.shelf.load(prefix, visit);
    }
}

struct Refusal {
    /// Runs as long as this.
    _gateway: RunningGateway,
    store: Arc<Moody>,
    ada: Client,
    bob: Client,
}

impl Refusal {
    /// A node of ada's, to which bob is subscribed.
    async fn start() -> Self {
        let store = Arc::new(Moody::default());
        let gateway = gateway_with(XmppConfig { store: Some(Arc::clone(&store) as _), ..XmppConfig::default() });
        let (mut ada, mut bob) = (Client::login_as(&gateway, "ada").await, Client::login_as(&gateway, "bob").await);
        let configure = form("node_config", &[("pubsub#title", "before")]);
        ada.entity("set", &format!("<create node='old'/><configure>{configure}</configure>")).await;
        has(&bob.subscribe("old", "").await, "subscription='subscribed'");
        Self { _gateway: gateway, store, ada, bob }
    }

    fn set(&self, mood: Mood) {
        *self.store.mood.lock().expect("a mood") = mood;
    }

    /// Makes a request that the store does not keep: it refuses it, or its commit fails later.
    async fn refused(&mut self, of_ada: bool, later: bool, namespace: &str, action: &str) {
        let commit = Arc::<Completer>::default();
        self.set(if later { Mood::Waits(Arc::clone(&commit)) } else { Mood::Refuses });
        let asked = self.store.asked.load(Relaxed);
        let client = if of_ada { &mut self.ada } else { &mut self.bob };
        let pubsub = format!("<pubsub xmlns='http://jabber.org/protocol/pubsub{namespace}'>{action}</pubsub>");
        client.send(&format!("<iq type='set' id='refused' to='{SERVICE}'>{pubsub}</iq>")).await;
        while self.store.asked.load(Relaxed) == asked {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if later {
            commit.complete(Err(StoreFailed));
        }
        client.until("id='refused'").await;
        let answer = client.until("</iq>").await;
        has(&answer, "type='wait'><resource-constraint");
        self.set(Mood::Takes);
    }

    async fn is_unchanged(&mut self) {
        has(
            &self.ada.ask("get", "<query xmlns='http://jabber.org/protocol/disco#info' node='new'/>").await,
            "<item-not-found",
        );
        has(&self.ada.owner("get", "<configure node='old'/>").await, "<value>before</value>");
        let affiliations = self.ada.owner("get", "<affiliations node='old'/>").await;
        assert_eq!(affiliations.matches("<affiliation ").count(), 1, "{affiliations}");
        let subscriptions = self.bob.entity("get", "<subscriptions/>").await;
        assert_eq!(subscriptions.matches("<subscription ").count(), 1, "{subscriptions}");
        has(&subscriptions, "node='old'");
        self.ada.publish("old", "1").await;
        has(&self.bob.until("</message>").await, "<items node='old'>");
    }
}

#[tokio::test]
async fn a_change_that_the_store_does_not_keep_is_refused_and_nothing_has_changed() {
    for later in [false, true] {
        let mut with = Refusal::start().await;
        with.refused(true, later, "", "<create node='new'/>").await;
        with.is_unchanged().await;
        let title = form("node_config", &[("pubsub#title", "after"), ("pubsub#access_model", "whitelist")]);
        with.refused(true, later, "#owner", &format!("<configure node='old'>{title}</configure>")).await;
        with.is_unchanged().await;
        let member = "<affiliation jid='bob@localhost' affiliation='outcast'/>";
        with.refused(true, later, "#owner", &format!("<affiliations node='old'>{member}</affiliations>")).await;
        with.is_unchanged().await;
        with.refused(false, later, "", "<subscribe node='new' jid='bob@localhost'/>").await;
        with.is_unchanged().await;
        with.refused(false, later, "", "<unsubscribe node='old' jid='bob@localhost'/>").await;
        with.is_unchanged().await;
        let options = form("subscribe_options", &[("pubsub#deliver", "0")]);
        let options = format!("<options node='old' jid='bob@localhost'>{options}</options>");
        with.refused(false, later, "", &options).await;
        with.is_unchanged().await;
    }
}

/// Configuring a topic that nobody owns makes it a node, in the same request.
#[tokio::test]
async fn a_topic_is_not_adopted_by_a_change_that_is_refused() {
    for later in [false, true] {
        let mut with = Refusal::start().await;
        let passing = form("publish-options", &[("pubsub#persist_items", "1")]);
        with.set(Mood::Refuses);
        let item = "<item><data xmlns='urn:fogmux:0' content-type='text/plain'>1</data></item>";
        let publish = format!("<publish node='free'>{item}</publish><publish-options>{passing}</publish-options>");
        has(&with.ada.entity("set", &publish).await, "<publish node='free'>");
        with.set(Mood::Takes);
        has(&with.ada.entity("get", "<affiliations node='free'/>").await, "<affiliations");
        let title = form("node_config", &[("pubsub#title", "after")]);
        with.refused(true, later, "#owner", &format!("<configure node='free'>{title}</configure>")).await;
        let affiliations = with.ada.owner("get", "<affiliations node='free'/>").await;
        assert_eq!(affiliations.matches("<affiliation ").count(), 0, "{affiliations}");
    }
}

/// A node with a configuration of its own is listed again and again; the topic is there whatever its name.
#[tokio::test]
async fn a_node_whose_name_is_too_long_to_be_stored_is_refused() {
    let shelf = Arc::new(Shelf::default());
    let gateway = gateway_with(XmppConfig { store: Some(Arc::clone(&shelf) as _), ..XmppConfig::default() });
    let mut ada = Client::login_as(&gateway, "ada").await;
    for (bytes, taken) in [(1_024, true), (1_025, false), (65_526, false), (65_535, false)] {
        let name = "n".repeat(bytes);
        let answer = ada.entity("set", &format!("<create node='{name}'/>")).await;
        assert_eq!(answer.contains("<not-acceptable"), !taken, "{bytes}: {answer}");
        let mut stored = 0;
        shelf.load("xmpp/node/", &mut |key, _| stored += usize::from(key.ends_with(&name)));
        assert_eq!(stored, usize::from(taken), "{bytes}");
        let info = format!("<query xmlns='http://jabber.org/protocol/disco#info' node='{name}'/>");
        has(&ada.ask("get", &info).await, if taken { "type='leaf'" } else { "<item-not-found" });
        ada.owner("set", &format!("<delete node='{name}'/>")).await;
    }
}

/// Nodes with longer names may be there from earlier versions.
#[tokio::test]
async fn a_node_whose_name_is_long_is_still_its_owners() {
    let shelf = Arc::new(Shelf::default());
    let config = || XmppConfig { store: Some(Arc::clone(&shelf) as _), ..XmppConfig::default() };
    let name = "n".repeat(2_000);
    {
        let gateway = gateway_with(config());
        let mut ada = Client::login_as(&gateway, "ada").await;
        ada.entity("set", "<create node='short'/>").await;
    }
    let mut record = None;
    shelf.load("xmpp/node/short", &mut |_, value| record = Some(value.into()));
    drop(shelf.put(&Arc::from("ada"), &format!("xmpp/node/{name}"), record));
    let gateway = gateway_with(config());
    let mut ada = Client::login_as(&gateway, "ada").await;
    has(&ada.entity("set", &format!("<create node='{name}'/>")).await, "<conflict");
    let title = form("node_config", &[("pubsub#title", "after")]);
    let answer = ada.owner("set", &format!("<configure node='{name}'>{title}</configure>")).await;
    assert!(!answer.contains("<error"), "{answer}");
}
