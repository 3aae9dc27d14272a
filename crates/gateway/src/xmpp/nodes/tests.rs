//! Nodes, and the shares of principals in them.

use fogmux_bus::{BusConfig, Forgetful, Timestamp};
use fogmux_xmpp::pubsub::AccessModel;
use proptest::prelude::*;

use super::*;
use crate::xmpp::kept::tests::Shelf;

fn bus(reserve_percent: u8) -> Arc<Bus> {
    let config = BusConfig { reserve_percent, ..BusConfig::default() };
    Bus::new(&config, Box::new(Forgetful), Timestamp::ZERO, 0)
}

fn nodes(count: usize, bytes: usize, records: Records) -> Nodes {
    Nodes::new(NodesMax { count, bytes }, records, &Jid::parse("d").expect("a domain"))
}

#[test]
fn owners_narrow_and_cannot_vanish() {
    let (nodes, bus) = (nodes(2, 1 << 20, Records::default()), bus(0));
    let ada: Arc<str> = "ada@d".into();
    let bob: Arc<str> = "bob@d".into();
    assert!(nodes.may_read("n", "bob@d"));
    let create = |node: &str, owner: &Arc<str>, made| {
        nodes.create(node, owner, owner, None, made, &bus).map(|kept| kept.is_ready())
    };
    let affiliate = |who: &Arc<str>, affiliation| {
        nodes.affiliate("n", &[(Arc::clone(who), affiliation)], &ada, &bus).map(|kept| kept.is_ready())
    };
    assert_eq!(create("n", &ada, Made::Asked), Ok(true));
    assert_eq!(create("n", &bob, Made::Asked), Err(NotMade::Exists));
    assert_eq!(nodes.affiliation("n", "ada@d"), Some(Affiliation::Owner));
    assert_eq!(affiliate(&bob, Affiliation::Outcast), Ok(true));
    assert!(!nodes.may_read("n", "bob@d") && nodes.may_read("n", "eve@d"));
    assert_eq!(affiliate(&ada, Affiliation::None), Err(NotChanged::Affiliations));
    let whitelist = NodeConfig { access_model: AccessModel::Whitelist, ..NodeConfig::default() };
    assert!(nodes.configure("n", &whitelist, &ada, &bus).is_ok_and(|(changed, _)| changed));
    assert!(!nodes.may_read("n", "eve@d") && nodes.may_read("n", "ada@d"));
    assert_eq!(create("m", &ada, Made::Implied), Err(NotMade::Full(NoRoom::Full)));
    assert_eq!(create("m", &ada, Made::Asked), Ok(true));
    assert_eq!(create("o", &ada, Made::Asked), Err(NotMade::Full(NoRoom::Full)));
    assert_eq!(nodes.names(Some("m"), 9), ["n".into()]);
}

/// The largest affiliations fill what the key says, and no more; what is given up can be had again.
#[test]
fn nodes_are_bounded_in_bytes() {
    let (nodes, bus) = (nodes(1_000, 1 << 20, Records::default()), bus(0));
    let ada: Arc<str> = "ada".into();
    let many: Vec<(Arc<str>, Affiliation)> =
        (0..255).map(|n| (format!("{n:03}{}@d", "x".repeat(1020)).into(), Affiliation::Member)).collect();
    let mut refused = 0;
    for n in 0..10 {
        let name = format!("n{n}");
        assert!(nodes.create(&name, &"ada@d".into(), &ada, None, Made::Asked, &bus).is_ok());
        refused += usize::from(nodes.affiliate(&name, &many, &ada, &bus).is_err());
    }
    assert_eq!(refused, 7, "{} bytes", nodes.bytes());
    assert!(nodes.bytes() <= 1 << 20);
    let none: Vec<_> = many.iter().map(|(jid, _)| (Arc::clone(jid), Affiliation::None)).collect();
    assert!(nodes.affiliate("n0", &none, &ada, &bus).is_ok());
    assert!(nodes.affiliate("n9", &many, &ada, &bus).is_ok());
    (0..10).for_each(|n| drop(nodes.remove(&format!("n{n}"), &ada)));
    assert_eq!((nodes.bytes(), nodes.len(), nodes.largest()), (0, 0, (0, 0)));
}

/// A record of before says nothing of principals: the first owner pays. One above the bounds stays, and none is added.
#[test]
fn what_was_stored_before_stays_and_is_charged_to_the_first_owner() {
    let shelf = Arc::new(Shelf::default());
    let records = || Records::new(Some(Arc::clone(&shelf) as _));
    let record = "<pubsub xmlns='http://jabber.org/protocol/pubsub#owner'><affiliations>\
                  <affiliation jid='eve@d' affiliation='member'/><affiliation jid='\\41da@d' affiliation='owner'/>\
                  <affiliation jid='bob@d' affiliation='owner'/></affiliations></pubsub>";
    for n in 0..3 {
        drop(crate::xmpp::NodeStore::put(
            &*shelf,
            &"".into(),
            &format!("xmpp/node/n{n}"),
            Some(record.as_bytes().into()),
        ));
    }
    let (before, bus) = (nodes(2, 600, records()), bus(0));
    assert_eq!((before.len(), before.read().share("Ada").0, before.read().share("bob").0), (3, 3, 0));
    let bob: Arc<str> = "bob".into();
    let more = before.affiliate("n0", &[("new@d".into(), Affiliation::Member)], &bob, &bus);
    assert_eq!(more.map(|_| ()), Err(NotChanged::Full(NoRoom::Full)));
    assert!(before.affiliate("n0", &[("eve@d".into(), Affiliation::None)], &bob, &bus).is_ok());
    // The payer is noted from the first change on.
    assert!(before.affiliate("n1", &[("\\41da@d".into(), Affiliation::None)], &bob, &bus).is_ok());
    let after = nodes(2, 600, records());
    assert_eq!((after.read().share("Ada"), after.read().share("bob")), (before.read().share("Ada"), (0, 0)));
}

/// A request of a principal.
#[derive(Debug, Clone)]
enum Request {
    Create { title: usize },
    Configure { title: usize },
    Affiliate(Vec<(usize, Affiliation)>),
    Remove,
}

fn request() -> impl Strategy<Value = Request> {
    let affiliation =
        prop::sample::select(vec![Affiliation::Owner, Affiliation::Member, Affiliation::Outcast, Affiliation::None]);
    prop_oneof![
        (0..40usize).prop_map(|title| Request::Create { title }),
        (0..40usize).prop_map(|title| Request::Configure { title }),
        prop::collection::vec((0..4usize, affiliation), 1..4).prop_map(Request::Affiliate),
        Just(Request::Remove),
    ]
}

fn titled(title: usize) -> NodeConfig {
    let title = (title > 0).then(|| "t".repeat(title).into());
    NodeConfig { title, ..NodeConfig::default() }
}

proptest! {
    /// In whatever hands the nodes are, and whatever is refused: no request makes the share of another principal
    /// larger, a restart changes none, and all shares together are what the nodes take.
    #[test]
    fn a_request_makes_no_share_of_another_larger(
        requests in prop::collection::vec((0..3usize, 0..4usize, request()), 1..40),
    ) {
        let shelf = Arc::new(Shelf::default());
        let records = || Records::new(Some(Arc::clone(&shelf) as _));
        let (nodes, bus) = (nodes(3, 4_000, records()), bus(10));
        let users = ["ada", "bob", "eve"];
        let shares = |nodes: &Nodes| users.map(|user| nodes.read().share(user));
        for (who, node, request) in requests {
            let (before, by): (_, Arc<str>) = (shares(&nodes), users[who].into());
            let node = format!("n{node}");
            let jid = |n: usize| Arc::from(format!("{}@d", ["ada", "bob", "eve", "nobody"][n]));
            match request {
                Request::Create { title } => {
                    drop(nodes.create(&node, &jid(who), &by, Some(titled(title)), Made::Asked, &bus));
                }
                Request::Configure { title } => drop(nodes.configure(&node, &titled(title), &by, &bus)),
                Request::Affiliate(changes) => {
                    let changes: Vec<_> = changes.into_iter().map(|(n, affiliation)| (jid(n), affiliation)).collect();
                    drop(nodes.affiliate(&node, &changes, &by, &bus));
                }
                Request::Remove => drop(nodes.remove(&node, &by)),
            }
            let after = shares(&nodes);
            for other in (0..3).filter(|other| *other != who) {
                prop_assert!(after[other].0 <= before[other].0 && after[other].1 <= before[other].1);
            }
            prop_assert_eq!(after.iter().map(|share| share.1).sum::<usize>(), nodes.bytes());
            prop_assert_eq!(after.iter().map(|share| share.0).sum::<usize>(), nodes.len());
            prop_assert!(nodes.bytes() <= 4_400);
        }
        prop_assert_eq!(shares(&super::tests::nodes(3, 4_000, records())), shares(&nodes));
    }
}
