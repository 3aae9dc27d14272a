//! The stream of a connection: order of answers, acknowledgements, stream errors and deadlines.

use super::*;

#[tokio::test]
async fn answers_keep_their_order() {
    let gateway = gateway();
    let mut ada = Client::login(&gateway).await;
    let publish = |n: u32| {
        format!(
            "<iq type='set' id='o{n}' to='{SERVICE}'><pubsub xmlns='http://jabber.org/protocol/pubsub'><publish node='o'><item><e xmlns='u'/></item></publish></pubsub></iq>"
        )
    };
    let mut text: String = (0..150).map(publish).collect();
    text.push_str("<iq type='get' id='o150'><ping xmlns='urn:xmpp:ping'/></iq></stream:stream>");
    ada.send(&text).await;
    for n in 0..=150 {
        has(&ada.until(&format!("id='o{n}'")).await, &format!("id='o{n}'"));
    }
    ada.until("</stream:stream>").await;
}

#[tokio::test]
async fn acknowledgements_are_counted() {
    let gateway = gateway();
    let mut ada = Client::login(&gateway).await;
    ada.subscribe("k", "").await;
    ada.send("<enable xmlns='urn:xmpp:sm:3'/>").await;
    ada.until("<enabled xmlns='urn:xmpp:sm:3'/>").await;
    let publish = "<iq type='set' id='k' to='pubsub.localhost'><pubsub xmlns='http://jabber.org/protocol/pubsub'><publish node='k'><item><e xmlns='u'/></item></publish></pubsub></iq>";
    ada.send(&publish.repeat(40)).await;
    // 40 answers and 40 notifications: the gateway asks after 64.
    ada.until("<r xmlns='urn:xmpp:sm:3'/>").await;
    ada.send("<r xmlns='urn:xmpp:sm:3'/>").await;
    ada.until("<a xmlns='urn:xmpp:sm:3' h='40'/>").await;
    ada.send("<a xmlns='urn:xmpp:sm:3' h='4000'/>").await;
    has(&ada.until("</stream:stream>").await, "handled-count-too-high");
}

#[tokio::test]
async fn streams_end_with_reasons() {
    let gateway = gateway();
    let mut ada = Client::login(&gateway).await;
    ada.send("<message from='somebody@localhost'/>").await;
    has(&ada.until("</stream:stream>").await, "<invalid-from");
    let mut silent = Client::connect(&gateway).await;
    silent.send(OPEN).await;
    silent.until("</stream:features>").await;
    silent.send(&"<a>".repeat(100)).await;
    has(&silent.until("</stream:stream>").await, "<policy-violation");
    let mut big = Client::connect(&gateway).await;
    big.send(&format!("{OPEN}<auth>{}", "x".repeat(9_000))).await;
    has(&big.until("</stream:stream>").await, "<policy-violation");
    let mut slow = Client::connect(&gateway).await;
    slow.send(OPEN).await;
    let mut last = Client::login(&gateway).await;
    let drained = tokio::spawn(gateway.drain(Duration::from_secs(5)));
    has(&last.until("</stream:stream>").await, "<system-shutdown");
    has(&slow.until("</stream:stream>").await, "<system-shutdown");
    assert!(drained.await.expect("no panic"));
}

#[tokio::test]
async fn what_takes_too_long_is_cut() {
    let short = Duration::from_millis(50);
    let gateway =
        gateway_with(XmppConfig { stanza_timeout: short, login_timeout: short * 20, ..XmppConfig::default() });
    let mut ada = Client::login(&gateway).await;
    ada.send("<message><body>").await;
    has(&ada.until("</stream:stream>").await, "<policy-violation");
    let mut silent = Client::connect(&gateway).await;
    has(&silent.until("</stream:stream>").await, "<connection-timeout");
}

#[tokio::test]
async fn deaf_readers_are_cut_and_slow_nobody() {
    let write_timeout = Duration::from_millis(200);
    let gateway = gateway_with(XmppConfig { write_timeout, mailbox_messages_max: 50, ..XmppConfig::default() });
    let (mut ada, mut deaf) = (Client::login(&gateway).await, Client::login(&gateway).await);
    deaf.subscribe("loud", "").await;
    let text = "x".repeat(100_000);
    let cut = || gateway.shared.metrics.xmpp.timed_out.get() > 0;
    let mut published = 0;
    while !cut() && published < 10_000 {
        has(&ada.publish("loud", &text).await, "<publish node='loud'>");
        published += 1;
    }
    assert!(cut());
}
