//! XMPP clients of the simulation: publishers that wait for each result, and subscribers of one node.

use std::{rc::Rc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::sleep,
};

use super::{
    ledger::{Fate, Ledger, Promise, Reader},
    pipe::End,
    random::Random,
    world::{Door, World},
};

const OPEN: &str = "<?xml version='1.0'?><stream:stream to='localhost' version='1.0' xmlns='jabber:client' \
                    xmlns:stream='http://etherx.jabber.org/streams'>";
const PUBSUB: &str = "http://jabber.org/protocol/pubsub";

/// A bound session.
struct Session {
    end: End,
    input: String,
    jid: String,
}

impl Session {
    /// Logs in with SASL ANONYMOUS and binds a resource.
    async fn open(world: &World) -> Option<Self> {
        let mut session = Self { end: world.connect(Door::Xmpp), input: String::new(), jid: String::new() };
        session.send(OPEN).await?;
        session.until("</stream:features>").await?;
        session.send("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='ANONYMOUS'/>").await?;
        session.until("<success").await?;
        session.until(">").await?;
        session.send(OPEN).await?;
        session.until("</stream:features>").await?;
        session.send("<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>").await?;
        let answer = session.until("</iq>").await?;
        session.jid = answer.split_once("<jid>")?.1.split_once("</jid>")?.0.to_owned();
        Some(session)
    }

    async fn send(&mut self, text: &str) -> Option<()> {
        self.end.write_all(text.as_bytes()).await.ok()
    }

    async fn more(&mut self) -> Option<()> {
        let mut bytes = [0; 8192];
        match self.end.read(&mut bytes).await {
            Ok(0) | Err(_) => None,
            Ok(count) => {
                // All that is exchanged here is ASCII.
                self.input.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
                Some(())
            }
        }
    }

    async fn until(&mut self, end: &str) -> Option<String> {
        loop {
            if let Some(at) = self.input.find(end) {
                let rest = self.input.split_off(at + end.len());
                return Some(std::mem::replace(&mut self.input, rest));
            }
            self.more().await?;
        }
    }

    /// The next stanza, from its first to its last character.
    async fn stanza(&mut self) -> Option<String> {
        loop {
            let start = self.input.find('<').filter(|at| self.input.len() > at + 8);
            if let Some(start) = start {
                let name: String =
                    self.input[start + 1..].chars().take_while(|c| c.is_ascii_alphabetic() || *c == ':').collect();
                let head = self.input[start..].find('>').map(|at| start + at);
                let end = match head {
                    Some(head) if self.input[..head].ends_with('/') => Some(head + 1),
                    Some(_) => self.input.find(&format!("</{name}>")).map(|at| at + name.len() + 3),
                    None => None,
                };
                if let Some(end) = end {
                    let rest = self.input.split_off(end);
                    return Some(std::mem::replace(&mut self.input, rest));
                }
            }
            self.more().await?;
        }
    }
}

/// Publishes `count` messages, one after the other.
pub(super) async fn publish(world: Rc<World>, ledger: Rc<Ledger>, random: Random, number: usize, count: usize) {
    let Some(mut session) = Session::open(&world).await else {
        return ledger.cut(format!("XMPP publisher {number} could not log in"));
    };
    for _ in 0..count {
        if random.percent(20) {
            sleep(Duration::from_millis(random.below(100) as u64)).await;
        }
        let id = ledger.publish(number, 1, 60_000, &random);
        let message = ledger.message(id);
        let text = String::from_utf8(message.payload.clone()).unwrap();
        if text.is_empty() {
            // Clearing a node is its owner's.
            continue;
        }
        let options = if message.retain { "" } else { TRANSIENT };
        let stanza = format!(
            "<iq type='set' id='p{id}' to='pubsub.localhost'><pubsub xmlns='{PUBSUB}'><publish node='{}'><item>\
             <data xmlns='urn:fogmux:0' encoding='utf8'>{text}</data></item></publish>{options}</pubsub></iq>",
            message.topic
        );
        let _ = session.send(&stanza).await;
        loop {
            match session.stanza().await {
                // The store failed before it had what the answer would promise: its fate is not known.
                Some(answer) if answer.contains("the store failed") => return,
                Some(answer) if !answer.contains(&format!("p{id}")) => {}
                Some(answer) if answer.contains("type='result'") || answer.contains("type=\"result\"") => {
                    break ledger.settle(id, Fate::Accepted);
                }
                Some(answer) if answer.contains("resource-constraint") => break ledger.settle(id, Fate::Refused),
                Some(answer) => return ledger.fault(format!("a publication was answered with {answer}")),
                None => return ledger.cut(format!("XMPP publisher {number} was cut")),
            }
        }
    }
}

const TRANSIENT: &str = "<publish-options><x xmlns='jabber:x:data' type='submit'>\
    <field var='FORM_TYPE' type='hidden'><value>http://jabber.org/protocol/pubsub#publish-options</value></field>\
    <field var='pubsub#persist_items'><value>false</value></field></x></publish-options>";

/// Subscribes to one node and stays to the end of the simulation.
pub(super) async fn subscribe(world: Rc<World>, ledger: Rc<Ledger>, random: Random, number: usize) {
    let topic = super::ledger::topic(&random, true);
    let Some(mut session) = Session::open(&world).await else { return };
    // Subscriptions are of a bare JID, and events go to available resources.
    let bare = session.jid.split('/').next().unwrap().to_owned();
    let stanza = format!(
        "<presence/><iq type='set' id='s' to='pubsub.localhost'><pubsub xmlns='{PUBSUB}'>\
         <subscribe node='{topic}' jid='{bare}'/></pubsub></iq>"
    );
    let _ = session.send(&stanza).await;
    let mut before = Vec::new();
    loop {
        match session.stanza().await {
            Some(answer) if answer.contains("<iq") && answer.contains("subscribed") => break,
            Some(answer) if answer.contains("<iq") => {
                // The node does not exist before something was published.
                if answer.contains("item-not-found") {
                    sleep(Duration::from_millis(100)).await;
                    let _ = session.send(&stanza).await;
                }
            }
            Some(other) => before.push(other),
            None => return,
        }
    }
    let reader = ledger.subscribe(format!("node-subscriber-{number}"), topic.clone(), 2, Promise::All);
    before.iter().for_each(|stanza| receive(&ledger, &reader, &topic, stanza));
    let pauses = *random.pick(&[0, 2, 30]);
    loop {
        if random.percent(pauses) && !ledger.is_closing() {
            sleep(Duration::from_millis(1 + random.below(400) as u64)).await;
        }
        match session.stanza().await {
            Some(stanza) => receive(&ledger, &reader, &topic, &stanza),
            None => break,
        }
    }
    // A stream that is full ends at a shutdown with what was written.
    reader.live.set(false);
    ledger.cut(format!("{} was cut", reader.name));
}

fn receive(ledger: &Ledger, reader: &Reader, topic: &str, stanza: &str) {
    if stanza.contains("<retract ") || stanza.contains("<purge ") {
        ledger.receive(reader, topic, b"");
    }
    for part in stanza.split("</data>").filter(|part| part.contains("<data")) {
        let payload = part.rsplit('>').next().unwrap_or_default();
        ledger.receive(reader, topic, payload.as_bytes());
    }
}
