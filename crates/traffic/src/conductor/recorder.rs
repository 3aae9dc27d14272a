//! Recording of frames, and of which experiments.

use std::collections::BTreeMap;

use crate::experiment::{Door, Experiment, Operation};
use crate::link::Laid;
use crate::paper::frames::{Frames, Inside};
use crate::pattern::Recording;

/// The most connections whose frames are recorded. Recording more would slow down the measured system.
const RECORDED_MAX: u64 = 2_000;
/// The most deliveries whose frames are recorded: as many as a page shows, and too few for a rate.
const DELIVERED_MAX: u64 = 16;

/// Frames are told apart where single packets are counted: of connections that are made a number of times, and of a few
/// deliveries over a link that changes nothing.
pub(super) fn is_recorded(experiment: &Experiment) -> bool {
    let most = match experiment.operation {
        Operation::Connect => RECORDED_MAX,
        Operation::Deliver if experiment.link == "lossless" && experiment.threads == 1 => DELIVERED_MAX,
        Operation::Deliver | Operation::Get | Operation::Put | Operation::Post | Operation::Hold => return false,
    };
    experiment.count.is_some_and(|count| count <= most)
}

/// Begins to record the frames of a link.
pub(super) fn recorder<'a>(laid: &'a Laid, experiment: &Experiment) -> Box<dyn Fn() -> Option<Recording> + 'a> {
    let inside = match experiment.door {
        Door::Mqtt | Door::Mqtt5 => Inside::Mqtt,
        Door::Http3 => Inside::Quic,
        Door::MqttWs | Door::Coap | Door::CoapTcp | Door::Http1 | Door::Http2 => Inside::Other,
        Door::Xmpp | Door::Xmpps => Inside::Other,
    };
    Box::new(move || {
        let capture = laid.capture(None, Frames::new(inside), Frames::add).ok()?;
        Some(Box::new(move || {
            let mut counts = BTreeMap::new();
            if let Some(captured) = capture.finish().ok().filter(|captured| captured.problem.is_none()) {
                captured.state.write(&mut counts);
            }
            counts
        }))
    })
}
