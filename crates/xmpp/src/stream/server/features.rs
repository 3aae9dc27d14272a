//! Stream features (RFC 6120 §4.3.2).

use super::{Offer, ServerStream, StartTls};
use crate::ns;
use crate::writer::Writer;

/// RFC 6120 §6.3.3; XEP-0440 §3.
fn write_mechanisms(w: &mut Writer<'_>, offer: &Offer) {
    w.start_ns("mechanisms", ns::SASL);
    for mechanism in &offer.mechanisms {
        w.leaf("mechanism", mechanism);
    }
    w.end("mechanisms");
    if !offer.channel_bindings.is_empty() {
        w.start_ns("sasl-channel-binding", ns::SASL_CHANNEL_BINDING);
        for kind in &offer.channel_bindings {
            w.start("channel-binding").attr("type", kind).end("channel-binding");
        }
        w.end("sasl-channel-binding");
    }
}

impl ServerStream {
    /// RFC 6120 §4.3.2
    pub(super) fn write_features(&self, out: &mut Vec<u8>) {
        let mut w = Writer::new(out);
        w.start("stream:features");
        if self.jid.is_some() {
            w.start_ns("bind", ns::BIND).end("bind");
            w.start_ns("session", ns::SESSION).empty("optional").end("session");
            w.start_ns("sm", ns::SM).end("sm");
        } else if let Some(offer) = &self.offer {
            match offer.starttls {
                StartTls::Unavailable => {}
                StartTls::Offered => {
                    w.start_ns("starttls", ns::TLS).end("starttls");
                }
                StartTls::Required => {
                    w.start_ns("starttls", ns::TLS).empty("required").end("starttls");
                }
            }
            if offer.starttls != StartTls::Required && !offer.mechanisms.is_empty() {
                write_mechanisms(&mut w, offer);
            }
        }
        w.end("stream:features");
    }
}
