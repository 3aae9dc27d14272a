//! The context of a trace in header fields (W3C Trace Context §3), which other doors have in the user properties of a
//! message. Nothing is done with them unless messages are traced.

use std::sync::Arc;

use fogmux_bus::{Message, Properties};
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::{context::HttpContext, payload::Payload};
use crate::traces::{Context, PARENT, STATE, bounded};

const PARENT_FIELD: HeaderName = HeaderName::from_static(PARENT);
const STATE_FIELD: HeaderName = HeaderName::from_static(STATE);

/// Adds the context of a request to the properties of its message. One that the query names is the message's own, and
/// stays; one that is not valid is ignored.
pub(super) fn take(
    ctx: &HttpContext,
    headers: &HeaderMap,
    properties: Option<Arc<Properties>>,
) -> Option<Arc<Properties>> {
    let has_own =
        |properties: &Arc<Properties>| properties.user.iter().any(|(name, _)| matches!(&**name, PARENT | STATE));
    if ctx.shared.traces.is_none() || properties.as_ref().is_some_and(has_own) {
        return properties;
    }
    let mut parents = headers.get_all(PARENT_FIELD).iter();
    let (Some(parent), None) = (parents.next().and_then(|value| value.to_str().ok()), parents.next()) else {
        return properties;
    };
    if Context::parse(parent).is_none() {
        return properties;
    }
    let mut with = properties.map(Arc::unwrap_or_clone).unwrap_or_default();
    with.user.push((PARENT.into(), parent.into()));
    let states = headers.get_all(STATE_FIELD).iter().map(|value| value.to_str().unwrap_or("="));
    with.user.extend(bounded(states).map(|state| (STATE.into(), state)));
    Some(Arc::new(with))
}

/// Adds the context of a message to the answer that has it: a parent of version 00 and a bounded state, however many
/// properties of these names the message has.
pub(super) fn put(ctx: &HttpContext, message: &Message, mut response: Response<Payload>) -> Response<Payload> {
    let Some(properties) = message.properties.as_deref().filter(|_| ctx.shared.traces.is_some()) else {
        return response;
    };
    response.headers_mut().extend(fields(properties));
    response
}

/// The context of a message as header fields; none if it has none that is valid.
fn fields(properties: &Properties) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let context = Context::of(properties);
    let states = properties.user.iter().filter(|(name, _)| **name == *STATE).map(|(_, value)| &**value);
    let state = context.and_then(|_| bounded(states));
    let parent = context.map(|context| (PARENT_FIELD, context.to_text()));
    let fields = parent.into_iter().chain(state.map(|state| (STATE_FIELD, state)));
    fields.filter_map(|(name, value)| Some((name, HeaderValue::from_str(&value).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_adds_two_fields_at_most_however_many_properties_it_has() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        let later = format!("cc{}-{}", &parent[2..], "x".repeat(10_000));
        for (parent, states) in [(parent, 0), (parent, 1), (parent, 8_000), (&later, 8_000)] {
            let state = |number: usize| (STATE.into(), format!("k{number}={}", "v".repeat(90)).into());
            let user = std::iter::once((PARENT.into(), parent.into())).chain((0..states).map(state)).collect();
            let fields: Vec<_> = fields(&Properties { user, ..Properties::default() }).collect();
            let bytes: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
            assert!((1..=2).contains(&fields.len()) && bytes < 600, "{states}: {} fields, {bytes} bytes", fields.len());
        }
        assert_eq!(fields(&Properties::default()).count(), 0);
    }
}
