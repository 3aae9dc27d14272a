//! Differential tests of the XMPP parser and writer against `xmpp-parsers` (ADR 0040): stanzas and publish-subscribe
//! (XEP-0060) have the same meaning both ways, and where only one of the two accepts an input, the reason is known.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use fogmux_xmpp::iq::Answer;
use fogmux_xmpp::pubsub::{
    self, Affiliation, ItemOut, NodeConfig, Request, SubscriptionOut, SubscriptionState, write_body,
};
use fogmux_xmpp::{IqHead, IqKind, Jid, Limits, Query, Scope, StanzaCondition, StanzaError, Writer, parse, payload};
use proptest::{collection::vec, option, prelude::*};
use xmpp_parsers::iq::Iq;
use xmpp_parsers::message::Message;
use xmpp_parsers::minidom::Element;
use xmpp_parsers::pubsub::pubsub::{Item, PubSub, Publish, Retract, Subscribe};
use xmpp_parsers::pubsub::{Event, ItemId, NodeName, Owner, event, owner};
use xmpp_parsers::stanza_error::{DefinedCondition, ErrorType};

const PUBSUB: &str = "http://jabber.org/protocol/pubsub";
const OWNER: &str = "http://jabber.org/protocol/pubsub#owner";
const SERVICE: &str = "pubsub.localhost";
const USER: &str = "ada@localhost/desk";
/// Addresses with and without local part and resource.
const ADDRESS: &str =
    concat!("([a-zA-Z0-9._\u{c4}\u{e4}-]{1,6}@)?", "[a-zA-Z0-9-]{1,6}(\\.[a-z]{1,3})?", "(/[a-zA-Z0-9@/. ]{1,6})?",);

/// Parses a stanza of ours with minidom. The namespace comes from the stream, so it is inserted.
fn element(stanza: &[u8]) -> Element {
    let text = std::str::from_utf8(stanza).unwrap();
    let name_end = text.find(|c: char| c.is_whitespace() || c == '>' || c == '/').unwrap();
    let (name, rest) = text.split_at(name_end);
    let text = format!("{name} xmlns='jabber:client'{rest}");
    text.parse().unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Hands the request in an IQ of theirs, as their writer serialises it, to `check`.
fn request<T>(iq: Iq, check: impl FnOnce(Result<Query<'_>, StanzaError>) -> T) -> T {
    let text = String::from(&Element::from(iq));
    let element = parse::stanza(text.as_bytes(), &Scope::default(), &Limits::default()).expect(&text);
    let head = IqHead::of(&element).unwrap();
    assert_eq!((head.id, head.to), ("1", Some(SERVICE)));
    check(Query::of(&element, head.kind))
}

fn set(payload: impl Into<Element>) -> Iq {
    let payload = payload.into();
    Iq::Set { from: None, to: Some(SERVICE.parse().unwrap()), id: "1".to_owned(), payload }
}

/// Returns the payload of a result of ours.
fn result(write: impl FnOnce(&mut Writer<'_>)) -> Element {
    let mut out = Vec::new();
    Answer { id: "<1>", from: Some(SERVICE), to: USER }.result(&mut out, write);
    let Iq::Result { from, to, id, payload: Some(payload) } = Iq::try_from(element(&out)).unwrap() else {
        panic!("{}", String::from_utf8_lossy(&out));
    };
    assert_eq!((from.unwrap().as_str(), to.unwrap().as_str(), id.as_str()), (SERVICE, USER, "<1>"));
    payload
}

/// Returns the event of a notification of ours.
fn notified(write: impl FnOnce(&mut Vec<u8>)) -> event::Payload {
    let mut out = Vec::new();
    pubsub::write_head(&mut out, SERVICE, USER);
    write(&mut out);
    write_body(&mut out, "a & b");
    pubsub::write_event_tail(&mut out, [("k'", "<v>")].into_iter());
    let message = Message::try_from(element(&out)).unwrap();
    assert_eq!((message.from.unwrap().as_str(), message.to.unwrap().as_str()), (SERVICE, USER));
    assert_eq!(message.bodies.values().collect::<Vec<_>>(), ["a & b"]);
    let events: Vec<_> = message.payloads.into_iter().filter_map(|payload| Event::try_from(payload).ok()).collect();
    let [event] = events.try_into().unwrap();
    event.payload
}

fn text() -> impl Strategy<Value = String> {
    "[a-z/'\"<>&\\]\u{e4}\u{20ac}\u{1f600} ]{0,8}[a-z/'\"<>&\u{e4}]"
}

fn bytes() -> impl Strategy<Value = (Option<&'static str>, Vec<u8>)> {
    let kinds = vec![None, Some("text/plain"), Some("application/json"), Some("application/xml")];
    (
        prop::sample::select(kinds),
        prop_oneof![
            text().prop_map(String::into_bytes),
            Just(b"<e xmlns='u'><f a='b'>c</f></e>".to_vec()),
            Just(b"{\"celsius\": 21.5}".to_vec()),
            vec(any::<u8>(), 0..20),
        ],
    )
}

/// The bytes of a payload that their parser has read: written by their writer and read by us.
fn payload_of(element: &Element) -> (Option<String>, Vec<u8>) {
    let item = Item { id: None, publisher: None, payload: Some(element.clone()) };
    let publish = Publish { node: NodeName("n".to_owned()), items: vec![item] };
    request(set(PubSub::Publish { publish, publish_options: None }), |query| {
        let Ok(Query::Pubsub(Request::Publish { items, .. })) = query else { panic!("{query:?}") };
        let payload = items[0].payload.as_ref().unwrap();
        (payload.content_type.map(str::to_owned), payload.bytes.to_vec())
    })
}

/// XML is serialised again by their writer, so it is compared as a tree; everything else is unchanged.
fn assert_same_payload(sent: &(Option<&str>, Vec<u8>), element: &Element) {
    let (content_type, bytes) = payload_of(element);
    assert_eq!(content_type.as_deref(), sent.0);
    if *sent == (Some(payload::APPLICATION_XML), bytes.clone()) {
        return;
    }
    let tree = |bytes: &[u8]| {
        // Within an element, because their parser takes no root that declares no namespace.
        let text = format!("<tree xmlns=''>{}</tree>", std::str::from_utf8(bytes).ok()?);
        text.parse::<Element>().ok()
    };
    match tree(&sent.1).filter(|_| sent.0 == Some(payload::APPLICATION_XML)) {
        Some(sent) => assert_eq!(Some(sent), tree(&bytes)),
        None => assert_eq!(bytes, sent.1),
    }
}

proptest! {
    #[test]
    fn s7_1_a_publication_of_theirs_is_read(
        node in text(), items in vec((option::of(text()), option::of(bytes())), 0..3),
    ) {
        let written: Vec<Item> = items.iter().map(|(id, content)| {
            let payload = content.as_ref().map(|(content_type, bytes)| {
                let mut out = Vec::new();
                payload::write(&mut out, *content_type, bytes);
                String::from_utf8(out).unwrap().parse().unwrap()
            });
            Item { id: id.clone().map(ItemId), publisher: None, payload }
        }).collect();
        let publish = Publish { node: NodeName(node.clone()), items: written };
        request(set(PubSub::Publish { publish, publish_options: None }), |query| {
            let Ok(Query::Pubsub(Request::Publish { node: found, items: read, .. })) = query else {
                panic!("{query:?}");
            };
            assert_eq!(found, node);
            assert_eq!(read.len(), items.len());
            for (read, (id, content)) in read.iter().zip(&items) {
                assert_eq!(read.id, id.as_deref());
                assert_eq!(read.payload.is_some(), content.is_some());
                if let (Some(read), Some((content_type, bytes))) = (&read.payload, content) {
                    assert_eq!(read.content_type, *content_type);
                    assert!(*content_type == Some(payload::APPLICATION_XML) || *read.bytes == **bytes);
                }
            }
        });
    }

    #[test]
    fn s7_2_a_retraction_of_theirs_is_read(node in text(), ids in vec(text(), 1..4), notify in any::<bool>()) {
        let item = |id: &String| Item { id: Some(ItemId(id.clone())), publisher: None, payload: None };
        let items = ids.iter().map(item).collect();
        request(set(PubSub::Retract(Retract { node: NodeName(node.clone()), notify, items })), |query| {
            let Ok(Query::Pubsub(Request::Retract { node: found, ids: read, notify: wanted })) = query else {
                panic!("{query:?}");
            };
            assert_eq!((found, read, wanted), (node.as_str(), ids.iter().map(String::as_str).collect(), notify));
        });
    }

    #[test]
    fn s6_1_a_subscription_of_theirs_is_read(node in option::of(text()), resource in "[a-zA-Z0-9 ]{0,5}[a-z]") {
        let jid = format!("Ada@LOCALHOST/{resource}");
        let subscribe = Subscribe { jid: jid.parse().unwrap(), node: node.clone().map(NodeName) };
        request(set(PubSub::Subscribe { subscribe: Some(subscribe), options: None }), |query| {
            let Ok(Query::Pubsub(Request::Subscribe { node: found, jid: read, options: None })) = query else {
                panic!("{query:?}");
            };
            assert_eq!((found, read.as_str()), (node.as_deref(), format!("ada@localhost/{resource}").as_str()));
        });
    }

    #[test]
    fn s6_5_items_of_ours_are_read(node in text(), items in vec((text(), bytes()), 0..3)) {
        let out = items.iter().map(|(id, (content_type, bytes))| ItemOut { id, content_type: *content_type, bytes });
        let out: Vec<_> = out.collect();
        let element = result(|w| pubsub::write_items(w, &node, &out, None));
        let Ok(PubSub::Items(read)) = PubSub::try_from(element) else { panic!("no items") };
        prop_assert_eq!(&read.node.0, &node);
        prop_assert_eq!(read.items.len(), items.len());
        for (read, (id, content)) in read.items.iter().zip(&items) {
            prop_assert_eq!(&read.id.as_ref().unwrap().0, id);
            assert_same_payload(content, read.payload.as_ref().unwrap());
        }
    }

    #[test]
    fn s7_1_2_notifications_of_ours_are_read(node in text(), id in text(), content in option::of(bytes())) {
        let body = content.as_ref().map(|(content_type, bytes)| (*content_type, bytes.as_slice()));
        let found = notified(|out| pubsub::write_item(out, &node, &id, body));
        let event::Payload::Items { node: found, published, retracted } = found else { panic!("{found:?}") };
        prop_assert_eq!((found.0.as_str(), published.len(), retracted.len()), (node.as_str(), 1, 0));
        prop_assert_eq!(&published[0].id.as_ref().unwrap().0, &id);
        prop_assert_eq!(published[0].payload.is_some(), content.is_some());
        if let (Some(content), Some(payload)) = (&content, &published[0].payload) {
            assert_same_payload(content, payload);
        }

        let found = notified(|out| pubsub::write_retracted(out, &node, &id));
        let event::Payload::Items { node: found, published, retracted } = found else { panic!("{found:?}") };
        prop_assert_eq!((found.0, published.len(), retracted), (node, 0, vec![ItemId(id)]));
    }

    #[test]
    fn addresses_are_folded_alike(jid in ADDRESS) {
        let theirs = jid.parse::<xmpp_parsers::jid::Jid>();
        match (Jid::parse(&jid), &theirs) {
            (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours.as_str(), theirs.as_str()),
            // Domains are not checked as internationalised names here (IDNA, RFC 7622 §3.2): theirs may refuse more.
            (Ok(_), Err(_)) => {}
            (Err(error), theirs) => prop_assert!(theirs.is_err(), "{:?} but {:?}", error, theirs),
        }
    }
}

#[test]
fn notifications_without_items_are_read() {
    let node = |payload: &event::Payload| payload.node_name().0.clone();
    let notice = notified(|out| pubsub::write_notice(out, "a/b"));
    assert!(matches!(&notice, event::Payload::Items { published, retracted, .. }
        if published.is_empty() && retracted.is_empty()));
    let purged = notified(|out| pubsub::write_purged(out, "a/b"));
    assert!(matches!(purged, event::Payload::Purge { .. }));
    let deleted = notified(|out| pubsub::write_deleted(out, "a/b"));
    assert!(matches!(deleted, event::Payload::Delete { redirect: None, .. }));
    let configured = notified(|out| pubsub::write_configuration(out, "a/b", &NodeConfig::default()));
    let event::Payload::Configuration { form: Some(form), .. } = &configured else { panic!("{configured:?}") };
    assert_eq!(form.form_type(), Some("http://jabber.org/protocol/pubsub#node_config"));
    let changed = |state| notified(|out| pubsub::write_subscription_notice(out, "a/b", USER, state));
    for state in [SubscriptionState::None, SubscriptionState::Subscribed] {
        let found = changed(state);
        let event::Payload::Subscription { jid: Some(jid), subscription: Some(subscription), .. } = &found else {
            panic!("{found:?}");
        };
        assert_eq!((jid.as_str(), format!("{subscription:?}").to_lowercase()), (USER, state.as_str().to_owned()));
        assert_eq!(node(&found), "a/b");
    }
    for payload in [notice, purged, deleted, configured] {
        assert_eq!(node(&payload), "a/b");
    }
}

#[test]
fn results_are_read() {
    let found = PubSub::try_from(result(|w| pubsub::write_published(w, "n", ["1", "2"].into_iter()))).unwrap();
    let PubSub::Publish { publish, .. } = found else { panic!("{found:?}") };
    let ids: Vec<_> = publish.items.into_iter().map(|item| item.id.unwrap().0).collect();
    assert_eq!((publish.node.0.as_str(), ids), ("n", vec!["1".to_owned(), "2".to_owned()]));

    let found = PubSub::try_from(result(|w| pubsub::write_created(w, "instant"))).unwrap();
    assert!(matches!(found, PubSub::Create { create, .. } if create.node.as_ref().unwrap().0 == "instant"));

    let one = SubscriptionOut { node: "n", jid: USER, state: SubscriptionState::Subscribed };
    let found = PubSub::try_from(result(|w| pubsub::write_subscribed(w, &one))).unwrap();
    assert!(matches!(found, PubSub::Subscription(_)), "{found:?}");
    let found = PubSub::try_from(result(|w| pubsub::write_subscriptions(w, None, &[one, one]))).unwrap();
    assert!(matches!(found, PubSub::Subscriptions(all) if all.subscription.len() == 2));

    let all = [("a", Affiliation::Owner), ("b", Affiliation::PublishOnly), ("c", Affiliation::Outcast)];
    let found = PubSub::try_from(result(|w| pubsub::write_affiliations(w, None, &all))).unwrap();
    let PubSub::Affiliations(found) = found else { panic!("{found:?}") };
    for (found, (node, affiliation)) in found.affiliations.iter().zip(all) {
        assert_eq!(found.node.0, node);
        assert_eq!(format!("{:?}", found.affiliation), format!("{affiliation:?}"));
    }

    let found = Owner::try_from(result(|w| pubsub::write_node_config(w, Some("n"), &NodeConfig::default()))).unwrap();
    let owner::Payload::Configure { node: Some(node), form: Some(form) } = found.payload else { panic!("{found:?}") };
    assert_eq!(node.0, "n");
    assert!(form.fields.iter().any(|field| field.var.as_deref() == Some("pubsub#persist_items")));
}

#[test]
fn rfc6120_s8_3_errors_are_read() {
    let conditions = [
        (StanzaCondition::BadRequest, DefinedCondition::BadRequest, ErrorType::Modify),
        (StanzaCondition::Conflict, DefinedCondition::Conflict, ErrorType::Cancel),
        (StanzaCondition::Forbidden, DefinedCondition::Forbidden, ErrorType::Auth),
        (StanzaCondition::ItemNotFound, DefinedCondition::ItemNotFound, ErrorType::Cancel),
        (StanzaCondition::NotAcceptable, DefinedCondition::NotAcceptable, ErrorType::Modify),
        (StanzaCondition::NotAllowed, DefinedCondition::NotAllowed, ErrorType::Cancel),
        (StanzaCondition::ResourceConstraint, DefinedCondition::ResourceConstraint, ErrorType::Wait),
        (StanzaCondition::ServiceUnavailable, DefinedCondition::ServiceUnavailable, ErrorType::Cancel),
    ];
    for (condition, expected, kind) in conditions {
        let mut out = Vec::new();
        let error = StanzaError::new(condition).because("a <reason>");
        Answer { id: "1", from: Some(SERVICE), to: USER }.error(&mut out, &error);
        let Iq::Error { error, .. } = Iq::try_from(element(&out)).unwrap() else { panic!("no error") };
        assert_eq!((&error.defined_condition, &error.type_), (&expected, &kind));
        assert_eq!(error.texts.values().collect::<Vec<_>>(), ["a <reason>"]);
    }
}

/// A request, and which of the two refuses it although the other accepts it, with the reason.
const REQUESTS: &[(&str, &str, &str, Verdict)] = &[
    ("set", PUBSUB, "<create/>", Verdict::Both),
    ("set", PUBSUB, "<create node='n'/><configure/>", Verdict::Both),
    ("set", PUBSUB, "<publish node='n'/>", Verdict::Both),
    ("set", PUBSUB, "<publish node='n'><item id='i'><e xmlns='u'/></item></publish>", Verdict::Both),
    ("set", PUBSUB, "<retract node='n' notify='true'><item id='i'/></retract>", Verdict::Both),
    ("set", PUBSUB, "<unsubscribe jid='a@b'/>", Verdict::OnlyUs("unsubscribe: node and subid are optional (§6.2)")),
    ("set", PUBSUB, "<unsubscribe jid='a@b' node='n' subid='1'/>", Verdict::Both),
    ("get", PUBSUB, "<items node='n' max_items='3'/>", Verdict::Both),
    ("get", PUBSUB, "<items node='n'><item id='i'/></items>", Verdict::Both),
    ("get", PUBSUB, "<subscriptions/>", Verdict::Both),
    ("get", PUBSUB, "<affiliations/>", Verdict::Both),
    ("get", PUBSUB, "<default/>", Verdict::Both),
    ("get", OWNER, "<configure node='n'/>", Verdict::Both),
    ("get", OWNER, "<default/>", Verdict::Both),
    ("set", OWNER, "<delete node='n'/>", Verdict::Both),
    ("set", OWNER, "<purge node='n'/>", Verdict::Both),
    ("get", OWNER, "<subscriptions node='n'/>", Verdict::Both),
    ("set", OWNER, "<affiliations node='n'><affiliation jid='a@b' affiliation='owner'/></affiliations>", Verdict::Both),
    ("set", PUBSUB, "<publish/>", Verdict::Neither),
    ("set", PUBSUB, "<retract><item id='i'/></retract>", Verdict::Neither),
    ("set", PUBSUB, "<subscribe node='n'/>", Verdict::Neither),
    ("set", PUBSUB, "<subscribe node='n' jid='@'/>", Verdict::Neither),
    ("get", PUBSUB, "<items/>", Verdict::Neither),
    ("get", PUBSUB, "<items node='n' max_items='x'/>", Verdict::Neither),
    ("set", OWNER, "<delete/>", Verdict::Neither),
    ("set", OWNER, "<affiliations node='n'><affiliation jid='a@b' affiliation='x'/></affiliations>", Verdict::Neither),
    ("set", OWNER, "<subscriptions node='n'><subscription jid='a@b'/></subscriptions>", Verdict::Neither),
    ("set", PUBSUB, "", Verdict::Neither),
    ("get", PUBSUB, "<publish node='n'/>", Verdict::OnlyThem("they do not check the type of the IQ")),
    ("set", OWNER, "<configure node='n'/>", Verdict::OnlyThem("they do not require a form (§8.2.4)")),
    ("set", PUBSUB, "<retract node='n'/>", Verdict::OnlyThem("they do not require an item (§7.2.3.4)")),
    ("set", PUBSUB, "<publish node=''/>", Verdict::OnlyThem("they accept an empty node")),
];

#[derive(Clone, Copy, Debug)]
enum Verdict {
    Both,
    Neither,
    /// We accept what they refuse.
    OnlyUs(#[expect(dead_code, reason = "shown when a case fails")] &'static str),
    /// They accept what we refuse.
    OnlyThem(#[expect(dead_code, reason = "shown when a case fails")] &'static str),
}

#[test]
fn requests_are_accepted_by_both_but_for_known_reasons() {
    for case @ (kind, namespace, action, verdict) in REQUESTS {
        let text = format!("<iq type='{kind}' id='1'><pubsub xmlns='{namespace}'>{action}</pubsub></iq>");
        let stanza = parse::stanza(text.as_bytes(), &Scope::default(), &Limits::default()).unwrap();
        let kind = IqHead::of(&stanza).unwrap().kind;
        assert!(matches!(kind, IqKind::Get | IqKind::Set));
        let ours = Query::of(&stanza, kind).is_ok();
        let iq = Iq::try_from(element(text.as_bytes())).unwrap();
        let (Iq::Get { payload, .. } | Iq::Set { payload, .. }) = iq else { panic!("{case:?}") };
        let theirs = PubSub::try_from(payload.clone()).is_ok() || Owner::try_from(payload).is_ok();
        let expected = match verdict {
            Verdict::Both => (true, true),
            Verdict::Neither => (false, false),
            Verdict::OnlyUs(_) => (true, false),
            Verdict::OnlyThem(_) => (false, true),
        };
        assert_eq!((ours, theirs), expected, "{case:?}");
    }
}
