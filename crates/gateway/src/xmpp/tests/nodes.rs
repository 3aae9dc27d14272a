//! Nodes: configuration by their owners, subscriptions and their options.

use super::*;

#[tokio::test]
async fn owners_configure_and_narrow() {
    let gateway = gateway();
    let mut ada = Client::login(&gateway).await;
    let create = ada.entity("set", "<create/>").await;
    has(&create, "<create node='instant/");
    let config =
        form("node_config", &[("pubsub#persist_items", "0"), ("pubsub#title", "T"), ("pubsub#max_payload_size", "4")]);
    ada.entity("set", &format!("<create node='c'/><configure>{config}</configure>")).await;
    has(&ada.entity("set", "<create node='c'/>").await, "<conflict");
    let shown = ada.owner("get", "<configure node='c'/>").await;
    has(&shown, "<field var='pubsub#title' type='text-single' label='A friendly name for the node'><value>T</value>");
    has(&shown, "<field var='pubsub#persist_items' type='boolean' label='Keep the last item'><value>0</value>");
    has(&ada.publish("c", "12345").await, "<payload-too-big");
    ada.publish("c", "1").await;
    has(&ada.entity("get", "<items node='c'/>").await, "<items node='c'/>");
    let wrong = form("node_config", &[("pubsub#access_model", "roster")]);
    has(&ada.owner("set", &format!("<configure node='c'>{wrong}</configure>")).await, "<not-acceptable");
    has(&ada.owner("get", "<default/>").await, "<default>");
    has(&ada.entity("get", "<affiliations/>").await, "<affiliation node='c' affiliation='owner'/>");
    let none = "<affiliations node='c'><affiliation jid='anonymous@localhost' affiliation='none'/></affiliations>";
    has(&ada.owner("set", none).await, "<not-acceptable");
    let give = "<affiliations node='c'><affiliation jid='x@localhost' affiliation='owner'/><affiliation jid='anonymous@localhost' affiliation='outcast'/></affiliations>";
    has(&ada.owner("set", give).await, "/>");
    for refused in
        [ada.publish("c", "1").await, ada.subscribe("c", "").await, ada.entity("get", "<items node='c'/>").await]
    {
        has(&refused, "<forbidden");
    }
    for action in ["<configure node='c'/>", "<affiliations node='c'/>", "<subscriptions node='c'/>"] {
        has(&ada.owner("get", action).await, "<forbidden");
    }
    for action in ["<purge node='c'/>", "<delete node='c'/>"] {
        has(&ada.owner("set", action).await, "<forbidden");
    }
    has(&ada.owner("set", "<delete node='nothing'/>").await, "<item-not-found");
}

#[tokio::test]
async fn subscriptions_and_options() {
    let gateway = gateway();
    let (mut ada, mut bob) = (Client::login(&gateway).await, Client::login(&gateway).await);
    bob.subscribe("s", "").await;
    let (bare, full) = (bob.bare(), bob.jid.clone());
    has(&bob.entity("set", &format!("<subscribe node='s' jid='{full}'/>")).await, &format!("jid='{full}'"));
    ada.publish("s", "1").await;
    let events = bob.until("</message>").await + &bob.until("</message>").await;
    has(&events, &format!("to='{bare}'"));
    has(&events, &format!("to='{full}'"));
    let off = form("subscribe_options", &[("pubsub#deliver", "0")]);
    bob.entity("set", &format!("<options node='s' jid='{bare}'>{off}</options>")).await;
    has(&bob.entity("get", &format!("<options node='s' jid='{bare}'/>")).await, "<value>0</value>");
    ada.publish("s", "2").await;
    has(&bob.until("</message>").await, &format!("to='{full}'"));
    has(&bob.entity("set", "<subscribe node='s' jid='somebody@localhost'/>").await, "<invalid-jid");
    has(&ada.owner("get", "<subscriptions node='s'/>").await, &format!("jid='{bare}'"));
    let end = format!("<subscriptions node='s'><subscription jid='{full}' subscription='none'/></subscriptions>");
    ada.owner("set", &end).await;
    has(&bob.until("</message>").await, "subscription='none'");
    has(&bob.entity("get", "<default/>").await, "pubsub#deliver");
    let pages = "<items node='s'/><set xmlns='http://jabber.org/protocol/rsm'><max>5</max></set>";
    has(&bob.entity("get", pages).await, "<first index='0'>current</first><last>current</last><count>1</count>");
}
