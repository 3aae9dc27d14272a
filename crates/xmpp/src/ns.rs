//! Namespace names, each as the document that registers it spells it.

/// Client stanzas (RFC 6120 §4.8.2).
pub const CLIENT: &str = "jabber:client";
/// The stream element, its features and errors (RFC 6120 §4.8.1).
pub const STREAM: &str = "http://etherx.jabber.org/streams";
/// Conditions of stream errors (RFC 6120 §4.9).
pub const STREAM_ERRORS: &str = "urn:ietf:params:xml:ns:xmpp-streams";
/// Conditions of stanza errors (RFC 6120 §8.3).
pub const STANZA_ERRORS: &str = "urn:ietf:params:xml:ns:xmpp-stanzas";
/// STARTTLS (RFC 6120 §5).
pub const TLS: &str = "urn:ietf:params:xml:ns:xmpp-tls";
/// SASL (RFC 6120 §6).
pub const SASL: &str = "urn:ietf:params:xml:ns:xmpp-sasl";
/// Which channel bindings the `-PLUS` mechanisms take (XEP-0440).
pub const SASL_CHANNEL_BINDING: &str = "urn:xmpp:sasl-cb:0";
/// Resource binding (RFC 6120 §7).
pub const BIND: &str = "urn:ietf:params:xml:ns:xmpp-bind";
/// Session establishment (RFC 3921, kept by RFC 6121 for old clients).
pub const SESSION: &str = "urn:ietf:params:xml:ns:xmpp-session";
/// Stream management (XEP-0198).
pub const SM: &str = "urn:xmpp:sm:3";
/// Roster (RFC 6121 §2).
pub const ROSTER: &str = "jabber:iq:roster";
/// The `xml` prefix (Namespaces in XML §3).
pub const XML: &str = "http://www.w3.org/XML/1998/namespace";
/// The `xmlns` prefix (Namespaces in XML §3).
pub const XMLNS: &str = "http://www.w3.org/2000/xmlns/";
/// Service discovery, information (XEP-0030).
pub const DISCO_INFO: &str = "http://jabber.org/protocol/disco#info";
/// Service discovery, items (XEP-0030).
pub const DISCO_ITEMS: &str = "http://jabber.org/protocol/disco#items";
/// Data forms (XEP-0004).
pub const DATA_FORMS: &str = "jabber:x:data";
/// Result sets (XEP-0059).
pub const RSM: &str = "http://jabber.org/protocol/rsm";
/// Publish-subscribe (XEP-0060).
pub const PUBSUB: &str = "http://jabber.org/protocol/pubsub";
/// Publish-subscribe errors (XEP-0060).
pub const PUBSUB_ERRORS: &str = "http://jabber.org/protocol/pubsub#errors";
/// Publish-subscribe notifications (XEP-0060).
pub const PUBSUB_EVENT: &str = "http://jabber.org/protocol/pubsub#event";
/// Publish-subscribe, what owners do (XEP-0060).
pub const PUBSUB_OWNER: &str = "http://jabber.org/protocol/pubsub#owner";
/// Form type of a node's configuration (XEP-0060 §16.4.3).
pub const NODE_CONFIG: &str = "http://jabber.org/protocol/pubsub#node_config";
/// Form type of a node's metadata (XEP-0060 §16.4.4).
pub const META_DATA: &str = "http://jabber.org/protocol/pubsub#meta-data";
/// Form type of publish options (XEP-0060 §16.4.5).
pub const PUBLISH_OPTIONS: &str = "http://jabber.org/protocol/pubsub#publish-options";
/// Form type of subscription options (XEP-0060 §16.4.2).
pub const SUBSCRIBE_OPTIONS: &str = "http://jabber.org/protocol/pubsub#subscribe_options";
/// Ping (XEP-0199).
pub const PING: &str = "urn:xmpp:ping";
/// Software version (XEP-0092).
pub const VERSION: &str = "jabber:iq:version";
/// Stanza headers (XEP-0131).
pub const SHIM: &str = "http://jabber.org/protocol/shim";
/// JSON containers (XEP-0335).
pub const JSON: &str = "urn:xmpp:json:0";
/// Delayed delivery (XEP-0203).
pub const DELAY: &str = "urn:xmpp:delay";
/// Our own elements: `<data/>` around payloads that are neither JSON nor XML, and the wildcard option.
pub const FOGMUX: &str = "urn:fogmux:0";
