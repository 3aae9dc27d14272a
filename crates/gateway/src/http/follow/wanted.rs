//! The query of a request for a stream.

use std::sync::Arc;

use fogmux_auth::{Action, Reach};
use fogmux_bus::{Qos, Subscription};
use fogmux_http::{Kind, Problem, Query};

use crate::http::{
    conn::Conn,
    identity::{Gate, Identity},
    streams::Wanted,
};

/// The stream that it asks for, if the client may read some of it.
pub(super) fn wanted(conn: &Conn, identity: &Identity, query: &Query<'_>) -> Result<Wanted, Problem<'static>> {
    if query.filters.is_empty() {
        return Err(Problem::new(Kind::InvalidFilter).detail("`filter` is missing"));
    }
    let mut subscriptions = Vec::with_capacity(query.filters.len());
    for filter in &query.filters {
        let subscription =
            Subscription::parse(filter).map_err(|error| Problem::new(Kind::InvalidFilter).detail(error.to_string()))?;
        match identity.gate.access().may_subscribe(&subscription.filter) {
            Reach::Nothing(decision) => {
                let gate = &identity.gate;
                return Err(gate.forbidden(&conn.ctx, Action::Read, &subscription.filter, &decision));
            }
            Reach::Some | Reach::Everything => {}
        }
        if !subscriptions.contains(&subscription) {
            subscriptions.push(subscription);
        }
    }
    let gate: Arc<dyn fogmux_bus::ReadGate> = Arc::<Gate>::clone(&identity.gate);
    Ok(Wanted {
        principal: identity.principal().clone(),
        owner: identity.owner(conn),
        gate,
        subscriptions,
        max_qos: query.qos.and_then(Qos::from_u8).unwrap_or(Qos::ExactlyOnce),
        kept: query.retained.unwrap_or(true),
    })
}
