//! Messages that are delivered but not retained, because their publisher cannot be told: those of QoS 0, and wills.

use fogmux_bus::Publication;

use super::context::MqttContext;
use crate::shown::{cut, shown_client};

/// Logs the first of these messages in a batch, a line a second at most.
pub(super) fn log(ctx: &MqttContext, batch: &[Publication<'_>]) {
    let is_unkept = |one: &&Publication<'_>| one.outcome().unkept && !one.outcome().refused;
    let Some(publication) = batch.iter().find(is_unkept) else { return };
    let Some(suppressed) = ctx.door.unkept_log.admit(ctx.now()) else { return };
    let publisher = publication.publisher;
    let (topic, principal) = (cut(publication.topic.as_str()), &*publisher.principal);
    let client = shown_client(&publisher.client);
    tracing::warn!(
        ?topic,
        ?principal,
        ?client,
        suppressed,
        "a message was delivered but not retained: the table of retained messages is full, or the store failed"
    );
}
