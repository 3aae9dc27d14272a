//! XMPP client-to-server streams and publish-subscribe as data and pure state machines, both roles.
