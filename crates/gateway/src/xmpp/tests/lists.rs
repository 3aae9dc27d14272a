//! Lists of nodes by a client that may read few of very many: others have their turn between them.

use fogmux_bus::{Meaning, Payload, Publication, Publisher, TopicRef, WorkerId};

use super::*;

const TOPICS: usize = 5_000;
const LISTS: usize = 64;

#[tokio::test]
async fn each_list_of_very_many_nodes_is_a_turn() {
    let acl = "[[allow]]\nanonymous = true\nboth = [\"open/#\"]\n";
    let acl = fogmux_auth::Acl::parse(std::path::Path::new("acl.toml"), acl).expect("rules");
    let rules = Rules::new(Users::default(), Some(acl), AnonymousPolicy::Loopback);
    let config = XmppConfig { login_timeout: Duration::from_secs(5), ..XmppConfig::default() };
    let gateway = start(config, Listen { anonymous: true, ..listen() }, None, rules);
    let (mut worker, publisher) = (gateway.shared.bus.worker(WorkerId(0)), Publisher::internal());
    let now = gateway.shared.clock.now();
    for number in 0..TOPICS {
        let topic = format!("closed/{number}");
        let topic = TopicRef::new(&topic).expect("a topic");
        let mut publication = Publication::new(topic, Payload::Slice(b"1"), &publisher, now, 0);
        publication.meaning = Meaning::Value;
        drop(worker.publish(&mut [publication]));
    }
    let (mut many, mut neighbour) = (Client::login(&gateway).await, Client::login(&gateway).await);
    let list = "<query xmlns='http://jabber.org/protocol/disco#items'/>";
    let list = format!("<iq type='get' id='list' to='{SERVICE}'>{list}</iq>");
    many.send(&list.repeat(LISTS)).await;
    let answers = async {
        for _ in 0..LISTS {
            many.until("id='list'").await;
        }
    };
    let mut turns = 0;
    let pings = async {
        loop {
            neighbour.ask("get", "<ping xmlns='urn:xmpp:ping'/>").await;
            turns += 1;
        }
    };
    tokio::select! {
        () = answers => {}
        never = pings => never,
    }
    assert!(turns >= LISTS / 4, "{turns} turns of the neighbour beside {LISTS} lists");
}

#[tokio::test]
async fn a_node_that_may_not_be_read_is_not_there_and_the_refusal_is_noted() {
    use crate::refused::What;

    let acl = "[[allow]]\nanonymous = true\nboth = \"open/#\"\n[[allow]]\nanonymous = true\nwrite = \"closed/#\"\n";
    let acl = fogmux_auth::Acl::parse(std::path::Path::new("acl.toml"), acl).expect("rules");
    let rules = Rules::new(USERS.clone(), Some(acl), AnonymousPolicy::Loopback);
    let gateway = start(XmppConfig::default(), Listen { anonymous: true, ..listen() }, None, rules);
    let mut ada = Client::login(&gateway).await;
    ada.publish("closed/x", "1").await;
    let info = |node: &str| format!("<query xmlns='http://jabber.org/protocol/disco#info' node='{node}'/>");
    for node in ["closed/x", "closed/nothing", "open/nothing"] {
        has(&ada.ask("get", &info(node)).await, "<item-not-found");
    }
    let refused: Vec<_> = gateway.shared.last_refusals.all().into_iter().map(|line| line.refusal.what).collect();
    let [What::Action { principal, action, topic, .. }] = &*refused else { panic!("{refused:?}") };
    assert_eq!((&**principal, *action, &**topic), ("anonymous", fogmux_auth::Action::Read, "closed/x"));
}
