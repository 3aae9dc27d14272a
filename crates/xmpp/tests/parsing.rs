//! Input that the framer and the parser accept, and the stream errors for all other input (RFC 6120 §4.9, §11).

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use fogmux_xmpp::parse::{self, Scope};
use fogmux_xmpp::{Element, Frame, Framer, Limits, Node, Payload, StreamCondition, StreamError};

const HEADER: &str =
    "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>";

fn stanza(text: &str) -> Result<Element<'_>, StreamError> {
    parse::stanza(text.as_bytes(), &Scope::default(), &Limits::default())
}

fn condition(text: &str) -> StreamCondition {
    match stanza(text) {
        Ok(element) => panic!("{text} was taken as {element:?}"),
        Err(error) => error.condition,
    }
}

#[test]
fn elements_attributes_and_text() {
    let e = stanza("<iq id='a&amp;&#x42;\t\n' xml:lang=\"de\" a = '1' ><q xmlns='n'>x<![CDATA[<&]]>&lt;\r\n</q></iq >")
        .unwrap();
    assert!(e.is("jabber:client", "iq"));
    assert_eq!((e.attr("id"), e.attr("a"), e.attr("lang")), (Some("a&B  "), Some("1"), None));
    assert_eq!(e.child("n", "q").unwrap().text(), "x<&<\n");
}

#[test]
fn namespaces_nest_and_end() {
    let e = stanza("<p:iq xmlns:p='jabber:client'><p:a xmlns:p='u'><b/><p:c/></p:a><p:d/></p:iq>").unwrap();
    assert!(e.is("jabber:client", "iq"));
    let a = e.child("u", "a").unwrap();
    assert!(a.child("jabber:client", "b").is_some() && a.child("u", "c").is_some());
    assert!(e.child("jabber:client", "d").is_some());
}

#[test]
fn rfc6120_s11_what_is_not_well_formed_or_restricted() {
    use StreamCondition as C;
    let cases = [
        ("<a></b>", C::NotWellFormed),
        ("<a><b></a></b>", C::NotWellFormed),
        ("<a b=c/>", C::NotWellFormed),
        ("<a b='1' b='2'/>", C::NotWellFormed),
        ("<a xmlns:p='u' xmlns:q='u' p:b='1' q:b='2'/>", C::NotWellFormed),
        ("<a b='1'c='2'/>", C::NotWellFormed),
        ("<a b='<'/>", C::NotWellFormed),
        ("<a b/>", C::NotWellFormed),
        ("<p:a/>", C::NotWellFormed),
        ("<a p:b=''/>", C::NotWellFormed),
        ("<a:b:c/>", C::NotWellFormed),
        ("<1a/>", C::NotWellFormed),
        ("<a>]]></a>", C::NotWellFormed),
        ("<a>&#0;</a>", C::NotWellFormed),
        ("<a>&#xFFFF;</a>", C::NotWellFormed),
        ("<a>&#+65;</a>", C::NotWellFormed),
        ("<a>&lt</a>", C::NotWellFormed),
        ("<a>\u{1}</a>", C::NotWellFormed),
        ("<a>\u{FFFF}</a>", C::NotWellFormed),
        ("<a/>x", C::NotWellFormed),
        ("<a xmlns:xml='u'/>", C::NotWellFormed),
        ("<a xmlns:p=''/>", C::NotWellFormed),
        ("<a xmlns:xmlns='u'/>", C::NotWellFormed),
        ("<a xmlns='u' xmlns='v'/>", C::NotWellFormed),
        ("<a>&nbsp;</a>", C::RestrictedXml),
        ("<a xmlns='a&amp;b'/>", C::RestrictedXml),
        ("<a xmlns=\"a'b\"/>", C::RestrictedXml),
        ("<a xmlns:p='a\"b'/>", C::RestrictedXml),
        ("<a xmlns='a>b'/>", C::RestrictedXml),
        ("<a xmlns='a\tb'/>", C::RestrictedXml),
        ("<a xmlns:p='a\nb'/>", C::RestrictedXml),
        ("<a xmlns='a\r\nb'/>", C::RestrictedXml),
    ];
    for (text, expected) in cases {
        assert_eq!(condition(text), expected, "{text}");
        // The same inside of a payload that is kept as text.
        let inside =
            format!("<iq><publish xmlns='http://jabber.org/protocol/pubsub'><item>{text}</item></publish></iq>");
        if text != "<a/>x" {
            assert_eq!(condition(&inside), expected, "{inside}");
        }
    }
    assert_eq!(
        parse::stanza(b"<a>\xff</a>", &Scope::default(), &Limits::default()).unwrap_err().condition,
        C::UnsupportedEncoding
    );
}

#[test]
fn limits_of_depth_attributes_elements_and_declarations() {
    let policy = StreamCondition::PolicyViolation;
    let deep = |n: usize| format!("{}{}", "<a>".repeat(n), "</a>".repeat(n));
    assert!(stanza(&deep(63)).is_ok());
    assert_eq!(condition(&deep(64)), policy);
    let wide = |n: usize| format!("<a {}/>", (0..n).map(|i| format!("a{i}='' ")).collect::<String>());
    assert!(stanza(&wide(64)).is_ok());
    assert_eq!(condition(&wide(65)), policy);
    assert_eq!(condition(&format!("<a>{}</a>", "<b/>".repeat(4096))), policy);
    let declared = |n: usize| (0..n).map(|i| format!("xmlns:p{i}='u' ")).collect::<String>();
    assert_eq!(condition(&format!("<a {0}><b {0}><c {0}/></b></a>", declared(60))), policy);
    // A payload is text: it may have more elements, but no more depth.
    let item = |inside: &str| {
        format!("<iq><publish xmlns='http://jabber.org/protocol/pubsub'><item>{inside}</item></publish></iq>")
    };
    assert!(stanza(&item(&format!("<e xmlns='u'>{}</e>", "<b/>".repeat(100_000)))).is_ok());
    assert_eq!(condition(&item(&deep(61))), policy);
}

fn item_payload(stanza: &Element<'_>) -> (Option<String>, Vec<u8>) {
    let ns = "http://jabber.org/protocol/pubsub";
    let item = stanza.child(ns, "publish").unwrap().child(ns, "item").unwrap();
    let payload = Payload::of_item(item).unwrap().unwrap();
    (payload.content_type.map(str::to_owned), payload.bytes.into_owned())
}

#[test]
fn payloads_are_kept_as_text_that_stands_alone() {
    let cases = [
        ("", "<e xmlns='u' a=\"1\">t &#65; <f/></e>", "<e xmlns='u' a=\"1\">t &#65; <f/></e>"),
        // Declared further out: declared again.
        ("xmlns:p='urn:p'", "<p:e><p:f q='1'/></p:e>", "<p:e xmlns:p='urn:p'><p:f q='1'/></p:e>"),
        ("xmlns:p='urn:p'", "<e xmlns='u' p:a='1'/>", "<e xmlns:p='urn:p' xmlns='u' p:a='1'/>"),
        ("xmlns:p='urn:p'", "<e xmlns='u' xmlns:p='v' p:a='1'/>", "<e xmlns='u' xmlns:p='v' p:a='1'/>"),
        // No namespace of its own.
        ("", "<e><f/></e>", "<e><f/></e>"),
        ("", "<e xmlns=''/>", "<e xmlns=''/>"),
        // Line ends are what any parser makes of them (XML §2.11).
        ("", "<e xmlns='u'>a\r\nb\rc</e>", "<e xmlns='u'>a\nb\nc</e>"),
        ("", "\n <e xmlns='u'><![CDATA[<>]]></e> ", "<e xmlns='u'><![CDATA[<>]]></e>"),
        ("", "<e xmlns='u' xml:lang='de'/>", "<e xmlns='u' xml:lang='de'/>"),
    ];
    for (outside, inside, expected) in cases {
        let text = format!(
            "<iq {outside}><publish xmlns='http://jabber.org/protocol/pubsub'><item>{inside}</item></publish></iq>"
        );
        let (content_type, bytes) = item_payload(&stanza(&text).unwrap());
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
        assert_eq!(content_type.as_deref(), Some("application/xml"));
    }
    let other =
        "<ps:publish xmlns:ps='http://jabber.org/protocol/pubsub' xmlns='urn:d'><ps:item><e/></ps:item></ps:publish>";
    let text = format!("<iq>{other}</iq>");
    assert_eq!(item_payload(&stanza(&text).unwrap()).1, b"<e xmlns='urn:d'/>");
}

#[test]
fn prefixes_of_the_stream_header_hold_in_stanzas() {
    let header = HEADER.replace("version", "xmlns:p='urn:p' version");
    let (element, scope) = parse::header(header.as_bytes(), &Limits::default()).unwrap();
    assert_eq!(element.attr("version"), Some("1.0"));
    let text = "<p:iq><publish xmlns='http://jabber.org/protocol/pubsub'><item><p:e/></item></publish></p:iq>";
    let e = parse::stanza(text.as_bytes(), &scope, &Limits::default()).unwrap();
    assert!(e.is("urn:p", "iq"));
    assert_eq!(item_payload(&e).1, b"<p:e xmlns:p='urn:p'/>");
    assert!(matches!(e.children.as_slice(), [Node::Element(_)]));
}

#[test]
fn header_namespaces_are_checked() {
    let of = |text: &str| parse::header(text.as_bytes(), &Limits::default()).map(|_| ()).map_err(|e| e.condition);
    assert_eq!(of(HEADER), Ok(()));
    assert_eq!(of(&HEADER.replace("client", "server")), Err(StreamCondition::InvalidNamespace));
    assert_eq!(of(&HEADER.replace("etherx", "other")), Err(StreamCondition::InvalidNamespace));
    let long = format!("xmlns:p='{}' version", "u".repeat(257));
    assert_eq!(of(&HEADER.replace("version", &long)), Err(StreamCondition::PolicyViolation));
}

fn frames(pieces: &[&[u8]], bytes_max: usize) -> Result<Vec<String>, StreamCondition> {
    let mut framer = Framer::new(&Limits::default());
    framer.set_frame_bytes_max(bytes_max);
    let (mut buffer, mut found) = (Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let framed = framer.next(&buffer).map_err(|e| e.condition)?;
            let frame = framed.frame.map(|frame| match frame {
                Frame::Header(bytes) | Frame::Stanza(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Frame::End => "END".to_owned(),
            });
            buffer.drain(..framed.used);
            match frame {
                Some(frame) => found.push(frame),
                None => break,
            }
        }
        assert!(buffer.len() <= bytes_max, "kept {} bytes", buffer.len());
    }
    Ok(found)
}

#[test]
fn frames_are_found_wherever_the_stream_is_cut() {
    let stanzas = [HEADER, "<a b='>/>' c=\"'\"/>", "<b><c/><d>x</d><![CDATA[</b>]]]></b>", "<e\n/>"];
    let text = format!(
        "<?xml version='1.0'?>\n{}{}  {}\n {}</stream:stream>ignored",
        HEADER, stanzas[1], stanzas[2], stanzas[3]
    );
    let mut expected: Vec<_> = stanzas.iter().map(|s| (*s).to_owned()).collect();
    expected.push("END".to_owned());
    for cut in 0..=text.len() {
        let (a, b) = text.as_bytes().split_at(cut);
        assert_eq!(frames(&[a, b], 8192).unwrap(), expected, "cut at {cut}");
    }
    let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
    assert_eq!(frames(&single, 8192).unwrap(), expected);
}

#[test]
fn frames_that_xmpp_forbids() {
    use StreamCondition as C;
    let cases = [
        ("<!DOCTYPE x [<!ENTITY a 'b'>]>", C::RestrictedXml),
        ("<?xml-stylesheet href='x'?>", C::RestrictedXml),
        ("<?php ?>", C::RestrictedXml),
        ("<?xml version='1.0' encoding='UTF-16'?>", C::UnsupportedEncoding),
        ("hello", C::NotWellFormed),
        ("</a>", C::NotWellFormed),
        ("<a/>", C::BadFormat),
    ];
    for (text, expected) in cases {
        assert_eq!(frames(&[text.as_bytes()], 8192), Err(expected), "{text}");
    }
    let cases = [
        ("x", C::NotWellFormed),
        ("<a/>x", C::NotWellFormed),
        ("<!-- x -->", C::RestrictedXml),
        ("<a><!-- x --></a>", C::RestrictedXml),
        ("<a><?pi?></a>", C::RestrictedXml),
        ("<![CDATA[x]]>", C::RestrictedXml),
        ("<a><![CDAT]]></a>", C::RestrictedXml),
    ];
    for (text, expected) in cases {
        assert_eq!(frames(&[HEADER.as_bytes(), text.as_bytes()], 8192), Err(expected), "{text}");
    }
}

#[test]
fn nothing_beyond_the_limits_is_waited_for() {
    let policy = Err(StreamCondition::PolicyViolation);
    let flood = vec![b'x'; 100_000];
    for open in ["<a>", "<a b='", "<a ", "</", "<a><![CDATA["] {
        let outcome = frames(&[HEADER.as_bytes(), open.as_bytes(), &flood], 8192);
        assert_eq!(outcome, policy, "{open}");
    }
    assert_eq!(frames(&[b"<?xml ", &flood], 8192), policy);
    assert_eq!(frames(&[HEADER.as_bytes(), "<a>".repeat(64).as_bytes()], 8192), policy);
    assert!(frames(&[HEADER.as_bytes(), &b" ".repeat(100_000)], 8192).is_ok());
}
