//! Payload forms: every byte string and content type comes out of an item as it went in.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use fogmux_xmpp::parse::{self, Scope};
use fogmux_xmpp::{Limits, Payload, payload};
use proptest::prelude::*;

fn form(content_type: Option<&str>, bytes: &[u8]) -> String {
    let mut out = Vec::new();
    payload::write(&mut out, content_type, bytes);
    String::from_utf8(out).unwrap()
}

/// Writes a payload as a notification and parses it as a publication.
fn through(content_type: Option<&str>, bytes: &[u8]) -> (Option<String>, Vec<u8>) {
    let text = format!("<iq><item xmlns='http://jabber.org/protocol/pubsub'>{}</item></iq>", form(content_type, bytes));
    let stanza = parse::stanza(text.as_bytes(), &Scope::default(), &Limits::default()).expect(&text);
    let item = stanza.elements().next().unwrap();
    let payload = Payload::of_item(item).unwrap().unwrap();
    (payload.content_type.map(str::to_owned), payload.bytes.into_owned())
}

#[test]
fn forms_by_content_type() {
    let cases: [(Option<&str>, &[u8], &str); 12] = [
        (Some("application/json"), br#"{"a":"<&"}"#, r#"<json xmlns='urn:xmpp:json:0'>{"a":"&lt;&amp;"}</json>"#),
        (
            Some("application/json"),
            b"\"\xff\"",
            "<data xmlns='urn:fogmux:0' content-type='application/json' encoding='base64'>Iv8i</data>",
        ),
        (Some("application/xml"), b"<e xmlns='u'>1</e>", "<e xmlns='u'>1</e>"),
        (Some("application/xml"), b"<e>1</e>", "<e xmlns=''>1</e>"),
        (Some("application/xml"), b"<p:e xmlns:p='u'><f/></p:e>", "<p:e xmlns='' xmlns:p='u'><f/></p:e>"),
        (Some("application/xml"), b"<p:e xmlns:p='u'/>", "<p:e xmlns:p='u'/>"),
        (
            Some("application/xml"),
            b"<?xml version='1.0'?><e/>",
            "<data xmlns='urn:fogmux:0' content-type='application/xml' encoding='utf8'>&lt;?xml version='1.0'?&gt;&lt;e/&gt;</data>",
        ),
        (
            Some("application/xml"),
            b"<e/>\n",
            "<data xmlns='urn:fogmux:0' content-type='application/xml' encoding='utf8'>&lt;e/&gt;\n</data>",
        ),
        (
            Some("text/plain"),
            b"a\r\n",
            "<data xmlns='urn:fogmux:0' content-type='text/plain' encoding='utf8'>a&#13;\n</data>",
        ),
        (None, b"21.5", "<data xmlns='urn:fogmux:0' encoding='utf8'>21.5</data>"),
        (None, b"\0\xff", "<data xmlns='urn:fogmux:0' encoding='base64'>AP8=</data>"),
        (None, b"", "<data xmlns='urn:fogmux:0' encoding='utf8'></data>"),
    ];
    for (content_type, bytes, expected) in cases {
        assert_eq!(form(content_type, bytes), expected);
    }
}

#[test]
fn control_characters_and_large_bodies_survive() {
    for bytes in
        [&b"\x01"[..], b"\x7f", b"\r", b"\xef\xbf\xbf", b"]]>", &vec![0xAB; 1 << 20], "€".repeat(300_000).as_bytes()]
    {
        assert_eq!(through(None, bytes), (None, bytes.to_vec()));
    }
}

#[test]
fn wrong_wrappers_are_refused() {
    for inside in [
        "<data xmlns='urn:fogmux:0' encoding='base64'>?</data>",
        "<data xmlns='urn:fogmux:0' encoding='rot13'>x</data>",
        "<data xmlns='urn:fogmux:0'><x/></data>",
        "<json xmlns='urn:xmpp:json:0'><x/></json>",
        "<a xmlns='u'/><b xmlns='u'/>",
        "text",
    ] {
        let text = format!("<iq><item xmlns='http://jabber.org/protocol/pubsub'>{inside}</item></iq>");
        let stanza = parse::stanza(text.as_bytes(), &Scope::default(), &Limits::default()).unwrap();
        let error = Payload::of_item(stanza.elements().next().unwrap()).unwrap_err();
        assert_eq!(error.pubsub, Some(fogmux_xmpp::PubsubCondition::InvalidPayload), "{inside}");
    }
}

proptest! {
    #[test]
    fn any_bytes_of_any_type_come_out_as_they_went_in(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        content_type in proptest::option::of("[ -~]{1,30}"),
    ) {
        prop_assert_eq!(through(content_type.as_deref(), &bytes), (content_type, bytes));
    }

    #[test]
    fn any_text_comes_out_as_it_went_in(text in "\\PC{0,80}|[<>&'\"\\]\r\n\t a-c/=!\\[]{0,60}", json in any::<bool>()) {
        let content_type = if json { "application/json" } else { "application/xml" };
        let (came_type, came) = through(Some(content_type), text.as_bytes());
        prop_assert_eq!(came_type.as_deref(), Some(content_type));
        // An element without namespace is written with `xmlns=''`, which a re-publication keeps.
        let came = String::from_utf8(came).unwrap();
        prop_assert_eq!(came.replacen(" xmlns=''", "", usize::from(!text.contains(" xmlns=''"))), text);
    }
}
