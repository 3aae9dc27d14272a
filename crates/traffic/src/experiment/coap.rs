//! CoAP's servers: which one is asked, and how it answers.

use serde::{Deserialize, Serialize};

use super::{Door, Experiment, Operation};

/// How a CoAP server answers, or notifies: the scenarios of seed 002.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoapAnswer {
    /// In the acknowledgement (RFC 7252 §5.2.1).
    #[default]
    Piggybacked,
    /// Acknowledged first and answered by a Confirmable message of its own (§5.2.2).
    Separate,
    /// Non-confirmable, asked and answered (§5.2.3).
    NonConfirmable,
}

/// The tokens of CoAP requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoapToken {
    /// Two bytes: the message ID.
    #[default]
    MessageId,
    /// None, for requests one after the other (RFC 7252 §5.3.1).
    Empty,
}

/// The server of requests over CoAP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoapServer {
    /// The gateway; but for answers that it cannot give, separate or late ones, the origin.
    #[default]
    Gateway,
    /// An origin server of the generator, in a process of its own. It answers in each way that there is, so that the
    /// ways can be compared.
    Origin,
}

impl Experiment {
    /// Whether requests are answered by an origin of the generator: it is asked for, or the gateway cannot.
    #[must_use]
    pub fn has_origin(&self) -> bool {
        let asks = match self.operation {
            Operation::Get | Operation::Put | Operation::Post | Operation::Connect => true,
            Operation::Deliver | Operation::Hold => false,
        };
        let is_needed = self.coap_answer == CoapAnswer::Separate || self.coap_delay_seconds > 0.0;
        self.door == Door::Coap && asks && (is_needed || self.coap_server == CoapServer::Origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_answers_what_the_gateway_cannot_and_whenever_it_is_asked_for() {
        let asked = Experiment { door: Door::Coap, operation: Operation::Get, ..Experiment::default() };
        assert!(!asked.has_origin());
        assert!(Experiment { coap_answer: CoapAnswer::Separate, ..asked.clone() }.has_origin());
        assert!(Experiment { coap_delay_seconds: 0.72, ..asked.clone() }.has_origin());
        let origin = Experiment { coap_server: CoapServer::Origin, ..asked };
        assert!(origin.has_origin());
        assert!(!Experiment { door: Door::Mqtt, ..origin.clone() }.has_origin());
        assert!(!Experiment { operation: Operation::Deliver, ..origin }.has_origin());
    }
}
