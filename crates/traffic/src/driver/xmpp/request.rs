//! Requests as bytes. What is the same in every request of a topic is written once; a request is that with an
//! identifier and a payload between the pieces.

use fogmux_xmpp::form::{self, FieldType};
use fogmux_xmpp::iq::{self, IqKind};
use fogmux_xmpp::{Writer, ns, payload};

/// The placeholder for identifier and payload. XML cannot contain it, so it occurs nowhere else.
const GAP: &str = "\0";
const GAP_BYTE: u8 = 0;

/// The kind of a request, encoded in its identifier as a letter and a hexadecimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A publication, under the pattern's tag.
    Publish(u64),
    /// A request for the persisted item.
    Get(u64),
    /// A subscription.
    Subscribe(u64),
    /// Something about the node of that index, for ourselves.
    Node(u64),
}

impl Asked {
    fn parts(self) -> (u8, u64) {
        match self {
            Self::Publish(tag) => (b'p', tag),
            Self::Get(tag) => (b'g', tag),
            Self::Subscribe(tag) => (b's', tag),
            Self::Node(index) => (b'n', index),
        }
    }

    /// Appends the identifier.
    fn write(self, out: &mut Vec<u8>) {
        let (letter, number) = self.parts();
        out.push(letter);
        let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(1);
        for digit in (0..digits).rev() {
            let nibble = (number >> (4 * digit)) & 0xF;
            out.push(b"0123456789abcdef".get(usize::try_from(nibble).unwrap_or(0)).copied().unwrap_or(b'0'));
        }
    }

    /// Of an identifier; nothing for one that is not ours.
    pub(super) fn read(id: &[u8]) -> Option<Self> {
        let (letter, digits) = id.split_first()?;
        if digits.is_empty() || digits.len() > 16 {
            return None;
        }
        let number = digits.iter().try_fold(0_u64, |number, digit| {
            let nibble = char::from(*digit).to_digit(16)?;
            Some((number << 4) | u64::from(nibble))
        })?;
        match letter {
            b'p' => Some(Self::Publish(number)),
            b'g' => Some(Self::Get(number)),
            b's' => Some(Self::Subscribe(number)),
            b'n' => Some(Self::Node(number)),
            _ => None,
        }
    }
}

/// A request with gaps.
#[derive(Debug)]
struct Template {
    before_id: Box<[u8]>,
    before_payload: Box<[u8]>,
    end: Box<[u8]>,
}

impl Template {
    fn new(kind: IqKind, service: &str, body: impl FnOnce(&mut Writer<'_>)) -> Self {
        let mut whole = Vec::new();
        iq::request(&mut whole, kind, GAP, Some(service), body);
        let mut pieces = whole.split(|byte| *byte == GAP_BYTE).map(Into::into);
        let mut piece = || pieces.next().unwrap_or_default();
        Self { before_id: piece(), before_payload: piece(), end: piece() }
    }

    fn append(&self, out: &mut Vec<u8>, asked: Asked, payload: Option<&[u8]>) {
        out.extend_from_slice(&self.before_id);
        asked.write(out);
        out.extend_from_slice(&self.before_payload);
        if let Some(payload) = payload {
            // Without a type: as MQTT and CoAP send it, so that every door carries the same.
            payload::write(out, None, payload);
        }
        out.extend_from_slice(&self.end);
    }
}

/// How a publication is made a passing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passing {
    /// It is not, or the node sees to it.
    ByNode,
    /// By publish-options (XEP-0060 §7.1.5) in each.
    ByOptions,
}

/// The requests of one topic.
#[derive(Debug)]
pub(super) struct Requests {
    publish: Template,
    get: Template,
    subscribe: Template,
}

impl Requests {
    /// For the node `topic` at `service`, by the client `jid`.
    pub(super) fn new(service: &str, jid: &str, topic: &str, passing: Passing) -> Self {
        let publish = Template::new(IqKind::Set, service, |w| {
            w.start_ns("pubsub", ns::PUBSUB);
            w.start("publish").attr("node", topic);
            w.start("item").raw(GAP.as_bytes()).end("item");
            w.end("publish");
            if passing == Passing::ByOptions {
                w.start("publish-options");
                submit(w, ns::PUBLISH_OPTIONS, &[("pubsub#persist_items", "0")]);
                w.end("publish-options");
            }
            w.end("pubsub");
        });
        let get = Template::new(IqKind::Get, service, |w| {
            w.start_ns("pubsub", ns::PUBSUB);
            w.start("items").attr("node", topic).attr("max_items", "1").end("items");
            w.end("pubsub");
        });
        let subscribe = Template::new(IqKind::Set, service, |w| {
            w.start_ns("pubsub", ns::PUBSUB);
            w.start("subscribe").attr("node", topic).attr("jid", jid).end("subscribe");
            w.end("pubsub");
        });
        Self { publish, get, subscribe }
    }

    /// Appends a publication.
    pub(super) fn publish(&self, out: &mut Vec<u8>, tag: u64, payload: &[u8]) {
        self.publish.append(out, Asked::Publish(tag), Some(payload));
    }

    /// Appends the question for the kept item.
    pub(super) fn get(&self, out: &mut Vec<u8>, tag: u64) {
        self.get.append(out, Asked::Get(tag), None);
    }

    /// Appends a subscription of this very connection: with its resource, for who connects under the same account must
    /// not get it too (XEP-0060 §6.1.6 leaves either to the subscriber).
    pub(super) fn subscribe(&self, out: &mut Vec<u8>, tag: u64) {
        self.subscribe.append(out, Asked::Subscribe(tag), None);
    }
}

/// Appends a form that is filled in.
fn submit(w: &mut Writer<'_>, form_type: &str, fields: &[(&str, &str)]) {
    form::open(w, "submit", form_type);
    for (var, value) in fields {
        form::field(w, var, FieldType::TextSingle, None, &[value], &[]);
    }
    form::close(w);
}

/// Writes the configuration of a node for the experiment: everybody may publish and subscribe, new subscribers receive
/// no old item, and the newest item is persisted if `retain`.
fn configuration(w: &mut Writer<'_>, retain: bool) {
    const OPEN: [(&str, &str); 3] = [
        ("pubsub#access_model", "open"),
        ("pubsub#publish_model", "open"),
        ("pubsub#send_last_published_item", "never"),
    ];
    const KEPT: [(&str, &str); 3] =
        [("pubsub#persist_items", "1"), ("pubsub#max_items", "1"), ("pubsub#notify_retract", "0")];
    const PASSING: [(&str, &str); 1] = [("pubsub#persist_items", "0")];
    let fields = [&OPEN[..], if retain { &KEPT } else { &PASSING }].concat();
    submit(w, ns::NODE_CONFIG, &fields);
}

/// Appends the creation of a node with its configuration (XEP-0060 §8.1.3).
pub(super) fn create(out: &mut Vec<u8>, service: &str, index: u64, topic: &str, retain: bool) {
    let template = Template::new(IqKind::Set, service, |w| {
        w.start_ns("pubsub", ns::PUBSUB);
        w.start("create").attr("node", topic).end("create");
        w.start("configure");
        configuration(w, retain);
        w.end("configure").end("pubsub");
    });
    template.append(out, Asked::Node(index), None);
}

/// Appends the configuration of a node that is there already (§8.2.5).
pub(super) fn configure(out: &mut Vec<u8>, service: &str, index: u64, topic: &str, retain: bool) {
    let template = Template::new(IqKind::Set, service, |w| {
        w.start_ns("pubsub", ns::PUBSUB_OWNER);
        w.start("configure").attr("node", topic);
        configuration(w, retain);
        w.end("configure").end("pubsub");
    });
    template.append(out, Asked::Node(index), None);
}

/// Appends the question what the service can do (XEP-0030 §3).
pub(super) fn discover(out: &mut Vec<u8>, service: &str, index: u64) {
    let template = Template::new(IqKind::Get, service, |w| {
        w.start_ns("query", ns::DISCO_INFO).end("query");
    });
    template.append(out, Asked::Node(index), None);
}

#[cfg(test)]
mod tests {
    use fogmux_xmpp::pubsub::Request;
    use fogmux_xmpp::{Limits, Query, Scope, iq::IqHead, parse};

    use super::*;

    /// Parses a stanza as the server does.
    fn served<T>(stanza: &[u8], see: impl FnOnce(&IqHead<'_>, &Query<'_>) -> T) -> T {
        let element = parse::stanza(stanza, &Scope::default(), &Limits::default()).unwrap();
        let head = IqHead::of(&element).unwrap();
        see(&head, &Query::of(&element, head.kind).unwrap())
    }

    #[test]
    fn identifiers_are_read_as_they_are_written() {
        for number in [0, 1, 0xF, 0x10, 0xABC, u64::MAX] {
            for asked in [Asked::Publish(number), Asked::Get(number), Asked::Subscribe(number), Asked::Node(number)] {
                let mut id = Vec::new();
                asked.write(&mut id);
                assert_eq!(id.get(1..), Some(format!("{number:x}").as_bytes()));
                assert_eq!(Asked::read(&id), Some(asked));
            }
        }
        for foreign in ["", "p", "bind", "x1", "p11111111111111111"] {
            assert_eq!(Asked::read(foreign.as_bytes()), None, "{foreign}");
        }
    }

    #[test]
    fn a_publication_arrives_whatever_its_topic_and_bytes() {
        let topic = "a/<'b'>&\"c\"/ü";
        for payload in [&b"12.5"[..], b"", b"<&>", b"\0\xff binary", "ü\r\n".as_bytes()] {
            for passing in [Passing::ByNode, Passing::ByOptions] {
                let requests = Requests::new("pubsub.localhost", "a@localhost/x", topic, passing);
                let mut stanza = Vec::new();
                requests.publish(&mut stanza, 0x2a, payload);
                served(&stanza, |head, query| {
                    assert_eq!((head.id, head.to, head.kind), ("p2a", Some("pubsub.localhost"), IqKind::Set));
                    let Query::Pubsub(Request::Publish { node, items, options, .. }) = query else {
                        panic!("{query:?}")
                    };
                    assert_eq!(*node, topic);
                    let sent = items.first().and_then(|item| item.payload.as_ref()).unwrap();
                    assert_eq!((sent.content_type, sent.bytes.as_ref()), (None, payload));
                    let kept = (passing == Passing::ByOptions).then_some(false);
                    assert_eq!(options.persist_items, kept);
                });
            }
        }
    }

    #[test]
    fn the_other_requests_are_what_xep_0060_asks_for() {
        let requests = Requests::new("pubsub.localhost", "a@localhost/x", "t/1", Passing::ByNode);
        let mut stanza = Vec::new();
        requests.get(&mut stanza, 7);
        served(&stanza, |head, query| {
            assert_eq!((head.id, head.kind), ("g7", IqKind::Get));
            let Query::Pubsub(Request::Items { node, max_items, .. }) = query else { panic!("{query:?}") };
            assert_eq!((*node, *max_items), ("t/1", Some(1)));
        });
        stanza.clear();
        requests.subscribe(&mut stanza, 8);
        served(&stanza, |_, query| {
            let Query::Pubsub(Request::Subscribe { node, jid, .. }) = query else { panic!("{query:?}") };
            assert_eq!((*node, jid.as_str()), (Some("t/1"), "a@localhost/x"));
        });
    }

    #[test]
    fn nodes_are_made_as_the_experiment_wants_them() {
        use fogmux_xmpp::pubsub::{NodeConfig, SendLast};
        for retain in [false, true] {
            let (mut made, mut changed) = (Vec::new(), Vec::new());
            create(&mut made, "pubsub.localhost", 3, "t", retain);
            configure(&mut changed, "pubsub.localhost", 3, "t", retain);
            for stanza in [made, changed] {
                served(&stanza, |head, query| {
                    assert_eq!(head.id, "n3");
                    let (Query::Pubsub(Request::Create { node: Some("t"), config: Some(form) })
                    | Query::Pubsub(Request::SetConfig { node: "t", config: Some(form) })) = query
                    else {
                        panic!("{query:?}")
                    };
                    let mut config = NodeConfig { persist_items: !retain, ..NodeConfig::default() };
                    config.apply(form).unwrap();
                    assert_eq!((config.persist_items, config.send_last), (retain, SendLast::Never));
                });
            }
        }
    }
}
