//! Answers to publications that the store keeps, or does not (XEP-0060 §7.1.3).

use std::sync::Arc;

use fogmux_bus::{Completer, Completion, Message, StoreFailed, Stored, Topic};

use super::*;

/// Writes the topics `b` in its second commit, and all others in its first.
#[derive(Default)]
struct Two([Arc<Completer>; 2]);

impl Two {
    fn completion(&self, topic: &str) -> Completion {
        Completion::Waiting(Arc::clone(&self.0[usize::from(topic.starts_with('b'))]))
    }
}

impl RetainedStore for Two {
    fn put(&self, message: &Arc<Message>, _: Option<u64>, _: Option<&Arc<Message>>) -> Completion {
        self.completion(&message.topic)
    }

    fn remove(&self, topic: &Topic, _: Option<&Arc<Message>>) -> Completion {
        self.completion(topic)
    }

    fn pending(&self, topic: &str) -> Completion {
        self.completion(topic)
    }

    fn load(&self, _: &mut dyn FnMut(Stored)) {}
}

fn start_two() -> (RunningGateway, [Arc<Completer>; 2]) {
    let store = Two::default();
    let commits = store.0.clone();
    let rules = Rules::new(USERS.clone(), None, AnonymousPolicy::Loopback);
    let listen = Listen { anonymous: true, ..listen() };
    (start_on(Box::new(store), XmppConfig::default(), listen, None, rules), commits)
}

/// A request to publish on a topic, which is its id as well; what is `live` is not retained.
fn publication(topic: &str) -> String {
    let item = "<item><data xmlns='urn:fogmux:0' content-type='text/plain'>1</data></item>";
    let passing =
        format!("<publish-options>{}</publish-options>", form("publish-options", &[("pubsub#persist_items", "0")]));
    let options = if topic.starts_with("live") { passing.as_str() } else { "" };
    let action = format!("<publish node='{topic}'>{item}</publish>{options}");
    format!(
        "<iq type='set' id='{topic}' to='{SERVICE}'><pubsub xmlns='http://jabber.org/protocol/pubsub'>{action}</pubsub></iq>"
    )
}

/// The type of the next answer, which has this id.
async fn answered(client: &mut Client, id: &str) -> String {
    let start = client.until(">").await;
    has(&start, &format!("id='{id}'"));
    let rest = if start.ends_with("/>") { String::new() } else { client.until("</iq>").await };
    let condition = if rest.contains("<resource-constraint") { " resource-constraint" } else { "" };
    let kind = start.split_once("type='").and_then(|(_, rest)| rest.split_once('\'')).expect("a type").0;
    format!("{kind}{condition}")
}

#[tokio::test]
async fn s7_1_3_a_commit_that_fails_refuses_its_publications_and_no_other() {
    for managed in [false, true] {
        let (gateway, [first, second]) = start_two();
        let mut ada = Client::login(&gateway).await;
        if managed {
            ada.send("<enable xmlns='urn:xmpp:sm:3'/>").await;
            ada.until("/>").await;
        }
        let topics = ["a/1", "b/1", "live/1", "b/2", "a/2", "b/3", "live/2"];
        let ping = |id| format!("<iq type='get' id='{id}' to='{SERVICE}'><ping xmlns='urn:xmpp:ping'/></iq>");
        let requests: String = topics.iter().map(|topic| publication(topic)).collect();
        ada.send(&(requests + &ping("ping"))).await;
        while gateway.shared.bus.latest("b/3", gateway.shared.clock.now()).is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        second.complete(Err(StoreFailed));
        first.complete(Ok(()));
        for topic in topics {
            let expected = if topic.starts_with('b') { "error resource-constraint" } else { "result" };
            assert_eq!(answered(&mut ada, topic).await, expected, "{topic}");
        }
        assert_eq!(answered(&mut ada, "ping").await, "result");
        ada.send(&(publication("live/3") + &ping("again"))).await;
        for id in ["live/3", "again"] {
            assert_eq!(answered(&mut ada, id).await, "result", "the stream goes on");
        }
    }
}

/// §7.2, §8.4, §8.5: an answer may promise more than one change.
#[tokio::test]
async fn removals_that_the_store_does_not_take_are_refused_too() {
    let (gateway, [first, second]) = start_two();
    first.complete(Ok(()));
    let mut ada = Client::login(&gateway).await;
    for topic in ["a", "b"] {
        ada.send(&publication(topic)).await;
    }
    assert_eq!(answered(&mut ada, "a").await, "result");
    let owner = |id: &str, action: &str| {
        let pubsub = format!("<pubsub xmlns='http://jabber.org/protocol/pubsub#owner'>{action}</pubsub>");
        format!("<iq type='set' id='{id}' to='{SERVICE}'>{pubsub}</iq>")
    };
    for node in ["a", "b"] {
        ada.send(&owner(&format!("purge-{node}"), &format!("<purge node='{node}'/>"))).await;
        ada.send(&owner(&format!("delete-{node}"), &format!("<delete node='{node}'/>"))).await;
    }
    second.complete(Err(StoreFailed));
    for (id, expected) in [
        ("b", "error resource-constraint"),
        ("purge-a", "result"),
        ("delete-a", "result"),
        ("purge-b", "error resource-constraint"),
        ("delete-b", "error resource-constraint"),
    ] {
        assert_eq!(answered(&mut ada, id).await, expected, "{id}");
    }
}
