//! A shutdown that is quicker than the store.

use std::sync::Arc;

use fogmux_bus::{Completer, Completion, Message, Stored, Topic};

use super::*;

/// Takes every write, and does not say whether it succeeded.
#[derive(Default)]
struct Never(Arc<Completer>);

impl RetainedStore for Never {
    fn put(&self, _: &Arc<Message>, _: Option<u64>, _: Option<&Arc<Message>>) -> Completion {
        Completion::Waiting(Arc::clone(&self.0))
    }

    fn remove(&self, _: &Topic, _: Option<&Arc<Message>>) -> Completion {
        Completion::Waiting(Arc::clone(&self.0))
    }

    fn pending(&self, _: &str) -> Completion {
        Completion::Waiting(Arc::clone(&self.0))
    }

    fn load(&self, _: &mut dyn FnMut(Stored)) {}
}

#[tokio::test]
async fn what_waits_for_the_store_is_not_acknowledged_by_a_shutdown() {
    let rules = Rules::new(USERS.clone(), None, AnonymousPolicy::Loopback);
    let listen = Listen { anonymous: true, ..listen() };
    let gateway = start_on(Box::<Never>::default(), XmppConfig::default(), listen, None, rules);
    let mut ada = Client::login(&gateway).await;
    let item = "<item><data xmlns='urn:fogmux:0' content-type='text/plain'>1</data></item>";
    let action = format!("<publish node='a'>{item}</publish>");
    ada.send(&format!(
        "<iq type='set' id='kept' to='{SERVICE}'><pubsub xmlns='http://jabber.org/protocol/pubsub'>{action}</pubsub></iq>"
    ))
    .await;
    while gateway.shared.bus.latest("a", gateway.shared.clock.now()).is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let drained = tokio::spawn(gateway.drain(Duration::from_secs(1)));
    let last = ada.until("</stream:stream>").await;
    has(&last, "system-shutdown");
    assert!(!last.contains("kept"), "{last}");
    drained.await.expect("a shutdown");
}
