//! Requests of XEP-0060 as clients send them, by clause.

#![expect(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

use fogmux_xmpp::parse::{self, Scope};
use fogmux_xmpp::pubsub::{
    AccessModel, Affiliation, Expire, FilterOption, NodeConfig, Request, SendLast, SubscribeOptions, SubscriptionState,
};
use fogmux_xmpp::{IqHead, Limits, Query, StanzaError};

/// Reads an IQ and hands its request to `check`.
fn with<T>(kind: &str, inside: &str, check: impl FnOnce(Result<Request<'_>, StanzaError>) -> T) -> T {
    let text = format!("<iq type='{kind}' id='1' to='pubsub.localhost'>{inside}</iq>");
    let iq = parse::stanza(text.as_bytes(), &Scope::default(), &Limits::default()).unwrap();
    let head = IqHead::of(&iq).unwrap();
    check(Query::of(&iq, head.kind).map(|query| match query {
        Query::Pubsub(request) => request,
        other => panic!("{other:?}"),
    }))
}

fn entity(action: &str) -> String {
    format!("<pubsub xmlns='http://jabber.org/protocol/pubsub'>{action}</pubsub>")
}

fn owner(action: &str) -> String {
    format!("<pubsub xmlns='http://jabber.org/protocol/pubsub#owner'>{action}</pubsub>")
}

fn form(form_type: &str, fields: &[(&str, &str)]) -> String {
    let fields: String = fields.iter().map(|(k, v)| format!("<field var='{k}'><value>{v}</value></field>")).collect();
    format!(
        "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE' type='hidden'><value>http://jabber.org/protocol/pubsub#{form_type}</value></field>{fields}</x>"
    )
}

#[test]
fn s8_1_create() {
    with("set", &entity("<create/>"), |r| assert_eq!(r, Ok(Request::Create { node: None, config: None })));
    let config = form("node_config", &[("pubsub#access_model", "whitelist"), ("pubsub#persist_items", "0")]);
    with("set", &entity(&format!("<create node='a/b'/><configure>{config}</configure>")), |r| {
        let Ok(Request::Create { node: Some("a/b"), config: Some(form) }) = r else { panic!("{r:?}") };
        let mut config = fogmux_xmpp::pubsub::NodeConfig::default();
        config.apply(&form).unwrap();
        assert!(!config.persist_items && config.access_model == AccessModel::Whitelist);
    });
    with("get", &entity("<create/>"), |r| assert_eq!(r, Err(StanzaError::bad_request())));
}

#[test]
fn s7_1_publish() {
    let options = form("publish-options", &[("pubsub#persist_items", "false"), ("pubsub#item_expire", "60")]);
    let headers = "<headers xmlns='http://jabber.org/protocol/shim'><header name='k'>v</header></headers>";
    let text = format!(
        "<publish node='a'><item id='x'><e xmlns='u'/></item></publish><publish-options>{options}</publish-options>{headers}"
    );
    with("set", &entity(&text), |r| {
        let Ok(Request::Publish { node: "a", items, options, headers }) = r else { panic!("{r:?}") };
        assert_eq!((options.persist_items, options.item_expire), (Some(false), Some(60)));
        assert_eq!(items[0].id, Some("x"));
        assert_eq!(items[0].payload.as_ref().unwrap().bytes.as_ref(), b"<e xmlns='u'/>");
        assert_eq!(headers, [("k".into(), "v".into())]);
    });
    let cases = [
        ("<publish><item/></publish>", "nodeid-required"),
        ("<publish node='a'><item>x</item></publish>", "invalid-payload"),
    ];
    for (text, condition) in cases {
        with("set", &entity(text), |r| assert_eq!(r.unwrap_err().pubsub.unwrap().as_str(), condition));
    }
    let unknown = form("publish-options", &[("other", "1")]);
    let text = format!("<publish node='a'><item/></publish><publish-options>{unknown}</publish-options>");
    with("set", &entity(&text), |r| assert_eq!(r.unwrap_err().pubsub.unwrap().as_str(), "precondition-not-met"));
}

/// Reads a node configuration on top of the default one.
fn configured(fields: &[(&str, &str)]) -> Result<NodeConfig, StanzaError> {
    let text = format!("<create node='a'/><configure>{}</configure>", form("node_config", fields));
    with("set", &entity(&text), |r| {
        let Ok(Request::Create { config: Some(form), .. }) = r else { panic!("{r:?}") };
        let mut config = NodeConfig::default();
        config.apply(&form).map(|()| config)
    })
}

#[test]
fn s8_2_5_fields_are_honoured_or_refused() {
    // s4.3: the default of a service with the feature last-published.
    assert_eq!(NodeConfig::default().send_last, SendLast::OnSubscribeAndPresence);
    for (field, value) in [
        ("pubsub#max_items", "1"),
        ("pubsub#max_items", "max"),
        ("pubsub#node_type", "leaf"),
        ("pubsub#notification_type", "headline"),
        ("pubsub#presence_based_delivery", "false"),
        ("pubsub#collection", ""),
    ] {
        assert_eq!(configured(&[(field, value)]), Ok(NodeConfig::default()), "{field}");
    }
    for (field, value) in [
        ("pubsub#max_items", "2"),
        ("pubsub#max_items", "0"),
        ("pubsub#node_type", "collection"),
        ("pubsub#notification_type", "normal"),
        ("pubsub#presence_based_delivery", "1"),
        ("pubsub#tempsub", "true"),
        ("pubsub#acess_model", "whitelist"),
        ("other", "1"),
    ] {
        let refused = configured(&[(field, value)]).unwrap_err();
        assert_eq!(refused.condition.as_str(), "not-acceptable", "{field}");
        assert!(refused.text.unwrap().contains(field), "{field}");
    }
}

#[test]
fn s7_1_5_preconditions_are_met_or_not() {
    let met = |fields: &[(&str, &str)], config: &NodeConfig| {
        let options = form("publish-options", fields);
        let text = format!("<publish node='a'><item/></publish><publish-options>{options}</publish-options>");
        with("set", &entity(&text), |r| {
            let Request::Publish { options, .. } = r? else { panic!("another request") };
            options.met_by(config)
        })
    };
    let config = NodeConfig { deliver_payloads: false, ..NodeConfig::default() };
    assert_eq!(met(&[("pubsub#deliver_payloads", "0"), ("pubsub#max_items", "max")], &config), Ok(()));
    assert_eq!(met(&[("pubsub#persist_items", "0")], &config), Ok(()), "of this publication only");
    for fields in [("pubsub#deliver_payloads", "1"), ("pubsub#access_model", "presence"), ("pubsub#max_items", "9")] {
        let unmet = met(&[fields], &config).unwrap_err();
        assert_eq!((unmet.condition.as_str(), unmet.pubsub.unwrap().as_str()), ("conflict", "precondition-not-met"));
    }
}

#[test]
fn s6_subscribe_and_options() {
    let filter = form("subscribe_options", &[("pubsub#deliver", "1"), ("{urn:fogmux:0}filter", "a/+/#")]);
    with("set", &entity(&format!("<subscribe jid='u@d/r'/><options>{filter}</options>")), |r| {
        let Ok(Request::Subscribe { node: None, jid, options: Some(options) }) = r else { panic!("{r:?}") };
        assert_eq!(jid.as_str(), "u@d/r");
        assert_eq!(options.filter, Some(FilterOption::Text("a/+/#".into())));
    });
    let plain = form("subscribe_options", &[("{urn:fogmux:0}filter", "true")]);
    with("set", &entity(&format!("<subscribe node='a/#' jid='u@d'/><options>{plain}</options>")), |r| {
        let Ok(Request::Subscribe { node: Some("a/#"), options: Some(options), .. }) = r else { panic!("{r:?}") };
        assert_eq!(options.filter, Some(FilterOption::Node));
    });
    let off = form("subscribe_options", &[("pubsub#deliver", "0")]);
    with("set", &entity(&format!("<options node='a' jid='u@d'>{off}</options>")), |r| {
        let Ok(Request::SetOptions { options: Some(form), .. }) = r else { panic!("{r:?}") };
        let mut options = SubscribeOptions { include_body: true, ..SubscribeOptions::default() };
        options.apply(&form).unwrap();
        assert!(!options.deliver && options.include_body, "what the form leaves out stays");
    });
    with("get", &entity("<options node='a' jid='u@d'/>"), |r| assert!(matches!(r, Ok(Request::GetOptions { .. }))));
    with("set", &entity("<unsubscribe node='a' jid='u@d' subid='1'/>"), |r| {
        assert!(matches!(r, Ok(Request::Unsubscribe { subid: Some("1"), .. })));
    });
    with("set", &entity("<subscribe node='a'/>"), |r| {
        assert_eq!(r.unwrap_err().pubsub.unwrap().as_str(), "jid-required");
    });
    with("set", &entity("<subscribe node='a' jid='@'/>"), |r| {
        assert_eq!(r.unwrap_err().pubsub.unwrap().as_str(), "invalid-jid");
    });
    for (field, value) in [
        ("pubsub#digest", "1"),
        ("pubsub#show-values", "chat"),
        ("pubsub#subscription_type", "nodes"),
        ("pubsub#expire", "tomorrow"),
        ("pubsub#delivr", "0"),
        ("other", "x"),
    ] {
        let refused = form("subscribe_options", &[(field, value)]);
        with("set", &entity(&format!("<subscribe node='a' jid='u@d'/><options>{refused}</options>")), |r| {
            assert_eq!(r.unwrap_err().pubsub.unwrap().as_str(), "invalid-options", "{field}");
        });
    }
    let ends = form(
        "subscribe_options",
        &[("pubsub#expire", "2006-03-31T23:59:59Z"), ("pubsub#include_body", "true"), ("pubsub#digest", "0")],
    );
    with("set", &entity(&format!("<subscribe node='a' jid='u@d'/><options>{ends}</options>")), |r| {
        let Ok(Request::Subscribe { options: Some(options), .. }) = r else { panic!("{r:?}") };
        assert_eq!((options.expire, options.include_body), (Some(Expire::At(1_143_849_599)), true));
    });
    let bad = form("node_config", &[]);
    with("set", &entity(&format!("<subscribe node='a' jid='u@d'/><options>{bad}</options>")), |r| {
        assert_eq!(r.unwrap_err().pubsub.unwrap().as_str(), "invalid-options");
    });
}

#[test]
fn s6_5_items() {
    let page = "<set xmlns='http://jabber.org/protocol/rsm'><max>10</max><before/></set>";
    with("get", &entity(&format!("<items node='a' max_items='1'><item id='x'/></items>{page}")), |r| {
        let Ok(Request::Items { node: "a", max_items: Some(1), ids, page: Some(page) }) = r else { panic!("{r:?}") };
        assert_eq!((ids, page.max, page.before.as_deref()), (vec!["x"], Some(10), Some("")));
        assert_eq!(page.range(&["a", "b", "c"], 100), Ok(0..3));
    });
    with("get", &entity("<items node='a' max_items='x'/>"), |r| assert_eq!(r, Err(StanzaError::bad_request())));
}

#[test]
fn s7_2_retract() {
    with("set", &entity("<retract node='a' notify='true'><item id='x'/></retract>"), |r| {
        assert_eq!(r, Ok(Request::Retract { node: "a", ids: vec!["x"], notify: true }));
    });
    with("set", &entity("<retract node='a'><item/></retract>"), |r| {
        assert_eq!(r.unwrap_err().pubsub.unwrap().as_str(), "item-required");
    });
}

#[test]
fn s8_owners() {
    with("get", &owner("<configure node='a'/>"), |r| assert_eq!(r, Ok(Request::GetConfig { node: "a" })));
    let text = format!("<configure node='a'>{}</configure>", form("node_config", &[("pubsub#title", "T")]));
    with("set", &owner(&text), |r| assert!(matches!(r, Ok(Request::SetConfig { config: Some(_), .. }))));
    with("set", &owner("<configure node='a'><x xmlns='jabber:x:data' type='cancel'/></configure>"), |r| {
        assert_eq!(r, Ok(Request::SetConfig { node: "a", config: None }));
    });
    with("get", &owner("<default/>"), |r| assert_eq!(r, Ok(Request::DefaultConfig)));
    with("set", &owner("<delete node='a'/>"), |r| assert_eq!(r, Ok(Request::Delete { node: "a" })));
    with("set", &owner("<purge node='a'/>"), |r| assert_eq!(r, Ok(Request::Purge { node: "a" })));
    with("set", &owner("<delete/>"), |r| assert_eq!(r.unwrap_err().pubsub.unwrap().as_str(), "nodeid-required"));
    with(
        "set",
        &owner("<affiliations node='a'><affiliation jid='u@d' affiliation='publish-only'/></affiliations>"),
        |r| {
            let Ok(Request::SetAffiliations { changes, .. }) = r else { panic!("{r:?}") };
            assert_eq!(changes[0].affiliation, Affiliation::PublishOnly);
        },
    );
    with("set", &owner("<subscriptions node='a'><subscription jid='u@d' subscription='none'/></subscriptions>"), |r| {
        let Ok(Request::SetSubscriptions { changes, .. }) = r else { panic!("{r:?}") };
        assert_eq!(changes[0].state, SubscriptionState::None);
    });
    with("get", &entity("<affiliations/>"), |r| assert_eq!(r, Ok(Request::Affiliations { node: None })));
    with("get", &entity("<subscriptions node='a'/>"), |r| {
        assert_eq!(r, Ok(Request::Subscriptions { node: Some("a") }))
    });
    with("get", &entity("<default/>"), |r| assert_eq!(r, Ok(Request::DefaultOptions { node: None })));
    with("get", &owner("<bogus node='a'/>"), |r| assert_eq!(r, Err(StanzaError::bad_request())));
    with("set", &entity(""), |r| assert_eq!(r, Err(StanzaError::bad_request())));
}
