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
    let Some(context) = Context::of(properties) else { return response };
    let headers = response.headers_mut();
    if let Ok(parent) = HeaderValue::from_str(&context.to_text()) {
        headers.insert(PARENT_FIELD, parent);
    }
    let states = properties.user.iter().filter(|(name, _)| **name == *STATE).map(|(_, value)| &**value);
    if let Some(Ok(state)) = bounded(states).map(|state| HeaderValue::from_str(&state)) {
        headers.insert(STATE_FIELD, state);
    }
    response
}
