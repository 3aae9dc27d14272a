//! `fogmux bench matrix`: every door under each of its profiles.

use fogmux_traffic::experiment::Qos;
use fogmux_traffic::{Door, Experiment, Security};

use super::arguments::Matrix;
use crate::exit::{Failure, Status};

const QUICK_SIZES: [usize; 1] = [64];
const SIZES: [usize; 5] = [16, 256, 1_024, 16_384, 65_536];
const QUICK_QOS: [Qos; 1] = [Qos::AtLeastOnce];
const QOS: [Qos; 3] = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];

/// The number of publishers, each with a subscriber and a topic of its own and one message under way, equal for every
/// door. With more messages of one topic under way a CoAP observer would get only the newest (RFC 7641 §4.5), and its
/// rate could not be compared.
const PAIRS: u32 = 16;

/// Returns the experiments and the number of repetitions.
///
/// # Errors
/// None of the doors has one of these profiles and levels of QoS.
pub(super) fn experiments(arguments: &Matrix) -> Result<(Vec<Experiment>, u32), Failure> {
    let quick = arguments.quick;
    let sizes = chosen(&arguments.sizes, if quick { &QUICK_SIZES } else { &SIZES });
    let levels = chosen(&arguments.qos, if quick { &QUICK_QOS } else { &QOS });
    let doors = chosen(&arguments.doors, &Door::ALL);
    let seconds = arguments.seconds.unwrap_or(if quick { 0.5 } else { 3.0 });
    let mut experiments = Vec::new();
    for door in doors {
        let wanted = |security: &Security| arguments.securities.is_empty() || arguments.securities.contains(security);
        for security in door.securities().into_iter().filter(wanted) {
            for qos in levels.iter().copied().filter(|qos| door.has(*qos)) {
                for payload_bytes in sizes.iter().copied() {
                    experiments.push(Experiment {
                        door,
                        security,
                        qos,
                        payload_bytes,
                        seconds,
                        warm_up_seconds: if quick { 0.2 } else { 0.5 },
                        publishers: PAIRS,
                        subscribers: PAIRS,
                        topics: PAIRS,
                        window: 1,
                        in_flight: PAIRS,
                        link: arguments.link.clone(),
                        ..Experiment::default()
                    });
                }
            }
        }
    }
    if experiments.is_empty() {
        let why = "none of --doors has one of --securities with one of --qos: there is nothing to be measured";
        return Err(Failure::new(Status::Usage, why));
    }
    Ok((experiments, arguments.repeat.unwrap_or(if quick { 3 } else { 5 })))
}

fn chosen<T: Copy>(wanted: &[T], otherwise: &[T]) -> Vec<T> {
    if wanted.is_empty() { otherwise.to_vec() } else { wanted.to_vec() }
}
