//! The energy of a repetition, by a model or by a meter.

use serde::{Deserialize, Serialize};

use super::{Outcome, Run};
use crate::measure::energy::{Meter, Model};

/// Joules of the measured time, which lasts from the first operation to the last delivery or answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Energy {
    /// The model and its constants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
    /// By the model: what the gateway's processor time adds to an idle board.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_j: Option<f64>,
    /// By the model: the board for as long, idle, with `gateway_j`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub board_j: Option<f64>,
    /// By the model: the radios of both ends, where the link counted frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub radio_j: Option<f64>,
    /// By the meter: all that it measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meter_j: Option<f64>,
    /// The reason why the meter's file says nothing of this repetition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmetered: Option<String>,
}

impl Run {
    /// Notes the energy of each repetition, by what there is.
    pub fn note_energy(&mut self, model: Option<&Model>, meter: Option<&Result<Meter, String>>) {
        for outcome in &mut self.outcomes {
            let metered =
                meter.map(|meter| meter.as_ref().map_err(Clone::clone).and_then(|meter| metered(outcome, meter)));
            let mut energy = model.map(|model| modelled(outcome, model)).unwrap_or_default();
            match metered {
                Some(Ok(joules)) => energy.meter_j = Some(joules),
                Some(Err(why)) => energy.unmetered = Some(why),
                None => {}
            }
            outcome.energy = (energy != Energy::default()).then_some(energy);
        }
    }
}

fn modelled(outcome: &Outcome, model: &Model) -> Energy {
    let gateway_j = outcome.gateway.as_ref().map(|used| model.processor_joules(used.cpu_us));
    Energy {
        model: Some(model.clone()),
        gateway_j,
        board_j: gateway_j.map(|joules| joules + model.idle_watts * outcome.seconds),
        radio_j: outcome
            .bytes
            .wire
            .map(|wire| model.radio_joules(wire.packets_up + wire.packets_down, wire.bytes_up + wire.bytes_down)),
        ..Energy::default()
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are below 2^53")]
fn metered(outcome: &Outcome, meter: &Meter) -> Result<f64, String> {
    let from = outcome.measured_from_unix_ms.ok_or("it is not known when the repetition was measured")? as f64;
    meter.joules(from, from + outcome.seconds * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::outcome::{Bytes, ProcessUse, Wire};
    use crate::report::figure::Figure;

    const FIGURES: [Figure; 4] = [Figure::EnergyGateway, Figure::EnergyBoard, Figure::EnergyRadio, Figure::EnergyMeter];

    fn run(wire: Option<Wire>, gateway: Option<ProcessUse>) -> Run {
        let bytes = Bytes { wire, ..Bytes::default() };
        let outcome = Outcome { delivered: 1_000, seconds: 2.0, bytes, gateway, ..Outcome::default() };
        Run { outcomes: vec![outcome], ..Run::of(Experiment::default(), "a test".to_owned()) }
    }

    fn figures(run: &Run) -> [Option<f64>; 4] {
        let rounded = |value: f64| (value * 1e9).round() / 1e9;
        FIGURES.map(|figure| figure.of(&run.experiment, &run.outcomes[0]).map(rounded))
    }

    #[test]
    fn figures_are_those_of_a_sum_by_hand() {
        let wire = Wire { bytes_up: 60_000, bytes_down: 40_000, packets_up: 500, packets_down: 500 };
        let gateway = ProcessUse { cpu_us: 400_000.0, ..ProcessUse::default() };
        let mut run = run(Some(wire), Some(gateway));
        assert_eq!(figures(&run), [None; 4], "nobody asked");
        run.note_energy(Model::load("pi4-wifi").ok().as_ref(), None);
        // 0.4 s × 0.925 J/s; 2 s × 2.7 W more; 1 000 × 750 µJ + 800 000 bits × 290 nJ. In mJ for each of 1 000.
        assert_eq!(figures(&run), [Some(0.37), Some(5.77), Some(0.982), None]);
        let json = serde_json::to_string(&run.outcomes[0]).unwrap();
        run.outcomes = vec![serde_json::from_str(&json).unwrap()];
        assert_eq!(figures(&run), [Some(0.37), Some(5.77), Some(0.982), None], "read again");
    }

    #[test]
    fn what_was_not_counted_has_no_energy() {
        let mut run = run(None, None);
        run.note_energy(Model::load("pi4-wifi").ok().as_ref(), Some(&Err("m.csv: broken".to_owned())));
        assert_eq!(figures(&run), [None; 4]);
        let energy = run.outcomes[0].energy.clone().unwrap();
        assert_eq!(energy.unmetered.as_deref(), Some("m.csv: broken"));
    }
}
