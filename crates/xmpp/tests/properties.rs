//! The four properties of the parsers: what is written is read back; what was read and written is read the same; how
//! the bytes are cut changes nothing; and no bytes make them panic or hold more than their limits.

use fogmux_xmpp::parse::{self, Scope};
use fogmux_xmpp::stream::{Offer, StartTls};
use fogmux_xmpp::{Element, Framer, Jid, Limits, Node, ServerConfig, ServerEvent, ServerStream, Writer};
use proptest::prelude::*;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// An element as the tests make it up.
#[derive(Debug, Clone)]
struct Tree {
    name: String,
    namespace: String,
    attributes: Vec<(String, String)>,
    children: Vec<Child>,
}

#[derive(Debug, Clone)]
enum Child {
    Tree(Tree),
    Text(String),
}

fn text() -> impl Strategy<Value = String> {
    "[ -~é€𝄞\t\n\r]{1,20}".boxed()
}

fn tree() -> impl Strategy<Value = Tree> {
    let attributes = proptest::collection::btree_map("[a-z][a-z0-9-]{0,6}", text(), 0..4);
    let attributes = attributes.prop_map(|map| map.into_iter().filter(|(name, _)| name != "xmlns").collect()).boxed();
    let head = ("[a-zé][a-z0-9._-]{0,6}", "urn:[a-z]{1,5}", attributes);
    let leaf =
        head.clone().prop_map(|(name, namespace, attributes)| Tree { name, namespace, attributes, children: vec![] });
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let child = prop_oneof![inner.prop_map(Child::Tree), text().prop_map(Child::Text)];
        (head.clone(), proptest::collection::vec(child, 0..4))
            .prop_map(|((name, namespace, attributes), children)| Tree { name, namespace, attributes, children })
    })
}

fn write(tree: &Tree, w: &mut Writer<'_>) {
    w.start_ns(&tree.name, &tree.namespace);
    for (name, value) in &tree.attributes {
        w.attr(name, value);
    }
    for child in &tree.children {
        match child {
            Child::Tree(tree) => write(tree, w),
            Child::Text(text) => {
                w.text(text);
            }
        }
    }
    w.end(&tree.name);
}

fn write_element(element: &Element<'_>, w: &mut Writer<'_>) {
    w.start_ns(element.name, &element.namespace);
    for attribute in &element.attributes {
        w.attr(attribute.name, &attribute.value);
    }
    for child in &element.children {
        match child {
            Node::Element(element) => write_element(element, w),
            Node::Text(text) => {
                w.text(text);
            }
            Node::Raw(raw) => {
                w.raw(raw.xml.as_bytes());
            }
        }
    }
    w.end(element.name);
}

fn assert_same(tree: &Tree, element: &Element<'_>) {
    assert!(element.is(&tree.namespace, &tree.name));
    let attributes: Vec<_> = element.attributes.iter().map(|a| (a.name.to_owned(), a.value.to_string())).collect();
    assert_eq!(attributes, tree.attributes);
    // Neighbouring texts come out as one.
    let mut merged: Vec<Child> = Vec::new();
    for child in &tree.children {
        match (merged.last_mut(), child) {
            (Some(Child::Text(before)), Child::Text(more)) => before.push_str(more),
            _ => merged.push(child.clone()),
        }
    }
    assert_eq!(merged.len(), element.children.len());
    for (child, node) in merged.iter().zip(&element.children) {
        match (child, node) {
            (Child::Tree(tree), Node::Element(element)) => assert_same(tree, element),
            (Child::Text(text), Node::Text(read)) => assert_eq!(text, read),
            (child, node) => panic!("{child:?} became {node:?}"),
        }
    }
}

fn read(bytes: &[u8]) -> Element<'_> {
    parse::stanza(bytes, &Scope::default(), &Limits::default()).expect("a stanza")
}

const SESSION: &str = "<?xml version='1.0'?><stream:stream to='d' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>\
<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>AGEAYg==</auth>\
<stream:stream to='d' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>\
<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>\
<enable xmlns='urn:xmpp:sm:3'/> <presence/>\
<iq type='set' id='p' to='pubsub.d'><pubsub xmlns='http://jabber.org/protocol/pubsub'><publish node='n'><item><e xmlns='u'>t<![CDATA[>]]></e></item></publish></pubsub></iq>\
<r xmlns='urn:xmpp:sm:3'/></stream:stream>";

/// A server that believes everybody, fed in pieces: its events and what it wrote.
fn serve(pieces: &[&[u8]]) -> (Vec<String>, Vec<u8>) {
    let config = ServerConfig {
        domain: Jid::parse("d").expect("a domain"),
        limits: Limits { stanza_bytes_max: 4096, ..Limits::default() },
        login_timeout: Duration::from_secs(1),
    };
    let offer = Offer { starttls: StartTls::Unavailable, mechanisms: vec!["PLAIN"], channel_bindings: vec![] };
    let mut server = ServerStream::new(Arc::new(config), offer, 1, Duration::ZERO);
    let (mut events, mut out, mut buffer) = (Vec::new(), Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let (used, event) = server.handle(&buffer, &mut out);
            let event = event
                .map(|event| (format!("{event:?}"), if let ServerEvent::Bind(b) = event { Some(b) } else { None }));
            buffer.drain(..used);
            let Some((event, bind)) = event else { break };
            if event.starts_with("Authenticate") {
                server.succeed(Jid::parse("a@d").expect("an address"), None, &mut out);
            }
            if let Some(bind) = bind {
                server.bound(&bind, Jid::parse("a@d/r").expect("an address"), &mut out);
            }
            events.push(event);
        }
        assert!(buffer.len() <= 8192, "{} bytes are kept", buffer.len());
    }
    (events, out)
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(tree in tree()) {
        let mut out = Vec::new();
        write(&tree, &mut Writer::new(&mut out));
        assert_same(&tree, &read(&out));
    }

    #[test]
    fn what_was_read_and_written_is_read_the_same(tree in tree()) {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        write(&tree, &mut Writer::new(&mut first));
        let element = read(&first);
        write_element(&element, &mut Writer::new(&mut second));
        prop_assert_eq!(&element, &read(&second));
    }

    #[test]
    fn how_the_bytes_are_cut_changes_nothing(mut cuts in proptest::collection::vec(0..SESSION.len(), 0..12)) {
        cuts.extend([0, SESSION.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &SESSION.as_bytes()[w[0]..w[1]]).collect();
        prop_assert_eq!(serve(&pieces), serve(&[SESSION.as_bytes()]));
    }

    #[test]
    fn damaged_sessions_never_panic(at in 0..SESSION.len(), junk in proptest::collection::vec(any::<u8>(), 0..12), cut in any::<bool>()) {
        let mut bytes = SESSION.as_bytes().to_vec();
        if cut {
            bytes.truncate(at);
        }
        let at = at.min(bytes.len());
        bytes.splice(at..at, junk);
        let whole = serve(&[&bytes]);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(whole, serve(&single));
    }

    #[test]
    fn any_bytes_neither_panic_nor_pile_up(bytes in "[<>/a='\" !\\[\\]?&;#x:\\-]{0,120}|\\PC{0,60}") {
        let _ = serve(&[bytes.as_bytes()]);
        let stanza = format!("<iq><item xmlns='http://jabber.org/protocol/pubsub'>{bytes}</item></iq>");
        let _ = parse::stanza(bytes.as_bytes(), &Scope::default(), &Limits::default());
        let _ = parse::embedding(bytes.as_bytes(), &Limits::default());
        if let Ok(element) = parse::stanza(stanza.as_bytes(), &Scope::default(), &Limits::default()) {
            let item = element.elements().next().expect("the item");
            for node in &item.children {
                if let Node::Raw(raw) = node {
                    // A payload stands alone, and says so.
                    prop_assert!(parse::fragment(&raw.xml, &Limits::default()).is_ok());
                }
            }
        }
        let _ = Framer::new(&Limits::default()).next(bytes.as_bytes());
        let _: Cow<'_, str> = bytes.into();
    }

    /// Each document that our parser accepts is accepted by `rxml` too, with the same names.
    #[test]
    fn rxml_agrees(bytes in "(<[ab](:[ab])?( (xmlns|xmlns:[ab])='[uv]?'| ([ab]|a:b)=('[uv]?'|\"&[al][mt]p?;\"))* ?/?>|</[ab](:[ab])?>|[a&;\\]> ]){0,8}") {
        let text = format!("<r xmlns:a='u'>{bytes}</r>");
        let ours = parse::fragment(&text, &Limits::default());
        let mut rest = text.as_bytes();
        let mut parser = rxml::Parser::new();
        let mut names = Vec::new();
        let verdict = loop {
            match rxml::Parse::parse(&mut parser, &mut rest, true) {
                Ok(Some(rxml::Event::StartElement(_, (namespace, name), _))) => names.push((namespace.to_string(), name.to_string())),
                Ok(Some(_)) => {}
                Ok(None) => break Ok(()),
                Err(rxml::error::EndOrError::Error(error)) => break Err(error),
                Err(rxml::error::EndOrError::NeedMoreData) => break Ok(()),
            }
        };
        if let Ok(element) = &ours {
            prop_assert!(verdict.is_ok(), "{text}: {verdict:?}");
            let mut found = Vec::new();
            collect(element, &mut found);
            prop_assert_eq!(found, names);
        } else {
            // `rxml` takes a declaration given twice, which XML forbids like any attribute given twice (§3.1).
            let twice = ours.is_err_and(|error| error.detail == "bad namespace declaration");
            prop_assert!(verdict.is_err() || twice, "{}", text);
        }
    }
}

fn collect(element: &Element<'_>, names: &mut Vec<(String, String)>) {
    names.push((element.namespace.to_string(), element.name.to_owned()));
    for child in element.elements() {
        collect(child, names);
    }
}
