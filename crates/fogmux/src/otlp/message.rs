//! Spans as `ExportTraceServiceRequest`, with the attributes of OpenTelemetry's semantic conventions for messaging. The
//! numbers of fields are those of `opentelemetry/proto` 1.x, which never change.

use fogmux_gateway::traces::{Operation, Parent, Span, SpanKind};

use super::protobuf::{Value, Writer, fields};

/// `messaging.system`: no well-known value is meant for a gateway of several protocols.
const SYSTEM: &str = "fogmux";
/// `STATUS_CODE_ERROR`.
const ERROR: u64 = 2;
/// The flags of a span: sampled; whether it is known where its parent is; and that it is elsewhere.
const SAMPLED: u32 = 1;
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// Encodes a request.
pub(super) fn request(service_name: &str, spans: &[Span]) -> Vec<u8> {
    let mut request = Writer::default();
    request.message(1, |of_resource| {
        of_resource.message(1, |resource| {
            text(resource, 1, "service.name", service_name);
            text(resource, 1, "service.version", env!("CARGO_PKG_VERSION"));
        });
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.bytes(1, "fogmux");
                scope.bytes(2, env!("CARGO_PKG_VERSION"));
            });
            spans.iter().for_each(|one| of_scope.message(2, |out| span(out, one)));
        });
    });
    request.into_bytes()
}

/// The number of spans that a collector says it has refused, and why.
pub(super) fn refused(response: &[u8]) -> (u64, String) {
    let (mut count, mut why) = (0, String::new());
    let partial =
        fields(response).filter_map(|field| if let (1, Value::Bytes(bytes)) = field { Some(bytes) } else { None });
    for field in partial.flat_map(fields) {
        match field {
            (1, Value::Number(number)) => count = number,
            (2, Value::Bytes(bytes)) => why = String::from_utf8_lossy(bytes).into_owned(),
            (_, Value::Number(_) | Value::Bytes(_) | Value::Fixed) => {}
        }
    }
    (count, why)
}

fn span(out: &mut Writer, span: &Span) {
    let door = span.door.name();
    out.bytes(1, span.trace.0);
    out.bytes(2, span.id.0);
    out.bytes(3, &*span.state);
    if let Some(parent) = span.parent {
        out.bytes(4, parent.id.0);
    }
    out.bytes(5, format!("{} {door}", span.operation.name()));
    out.varint(6, kind(span.kind()));
    out.fixed64(7, span.start_unix_us.saturating_mul(1000));
    out.fixed64(8, span.end_unix_us.saturating_mul(1000));
    text(out, 9, "messaging.system", SYSTEM);
    text(out, 9, "messaging.operation.name", span.operation.name());
    text(out, 9, "messaging.operation.type", operation_type(span.operation));
    text(out, 9, "messaging.destination.name", &span.topic);
    if !span.client.is_empty() {
        text(out, 9, "messaging.client.id", &span.client);
    }
    attribute(out, 9, "messaging.message.body.size", |value| {
        // An integer of zero is one, too.
        value.present_varint(3, span.body_bytes as u64);
    });
    text(out, 9, "network.protocol.name", door);
    if span.refused {
        text(out, 9, "error.type", "refused");
        out.message(15, |status| status.varint(3, ERROR));
    }
    out.fixed32(16, flags(span.parent));
}

fn flags(parent: Option<Parent>) -> u32 {
    let remote = parent.map_or(0, |parent| HAS_IS_REMOTE | if parent.is_remote { IS_REMOTE } else { 0 });
    SAMPLED | remote
}

const fn kind(kind: SpanKind) -> u64 {
    match kind {
        SpanKind::Server => 2,
        SpanKind::Producer => 4,
        SpanKind::Consumer => 5,
    }
}

/// A delivery is pushed, a read is asked for.
const fn operation_type(operation: Operation) -> &'static str {
    match operation {
        Operation::Publish => "send",
        Operation::Deliver => "process",
        Operation::Read => "receive",
    }
}

fn text(out: &mut Writer, field: u64, key: &str, value: &str) {
    attribute(out, field, key, |any| any.present_bytes(1, value));
}

fn attribute(out: &mut Writer, field: u64, key: &str, value: impl FnOnce(&mut Writer)) {
    out.message(field, |pair| {
        pair.bytes(1, key);
        pair.message(2, value);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_may_refuse_some() {
        let mut response = Writer::default();
        response.message(1, |partial| {
            partial.varint(1, 3);
            partial.bytes(2, "too old");
        });
        assert_eq!(refused(&response.into_bytes()), (3, "too old".to_owned()));
        assert_eq!(refused(b""), (0, String::new()));
        assert_eq!(refused(b"{\"partialSuccess\":{}}").0, 0);
    }
}
