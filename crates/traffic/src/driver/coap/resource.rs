//! The requests for one topic, encoded once and sent any number of times.

use fogmux_coap::client::Template;
use fogmux_coap::message::Type;
use fogmux_coap::option::UintValue;
use fogmux_coap::{Code, OptionNumber};

use crate::driver::{DriverError, Request};
use crate::experiment::{CoapAnswer, Door, Experiment, Operation, Visit};

/// RFC 7252 §5.10: the longest Uri-Path option, in bytes.
const LEVEL_BYTES_MAX: usize = 255;
/// The value of Observe that registers (RFC 7641 §2).
const REGISTER: u32 = 0;

/// The requests that an experiment wants.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// PUT or POST.
    publish: Code,
    /// Publications are Confirmable.
    confirmed: bool,
    /// Requests for the retained message are Confirmable. Observations always are: without an answer there is none.
    confirmed_get: bool,
    /// Non-confirmable publications are done when they are sent; else when the answer comes.
    fire_and_forget: bool,
    /// The first level of the path, before the topic.
    prefix: Option<String>,
    /// Asks our own gateway for notifications of this QoS.
    observe_query: Option<String>,
}

impl Shape {
    /// As the experiment says. `prefix` is there for a gateway of ours, which knows query parameters too.
    pub(super) fn new(experiment: &Experiment, prefix: Option<&str>) -> Self {
        let publish = match experiment.operation {
            Operation::Put | Operation::Get => Code::PUT,
            Operation::Deliver | Operation::Post | Operation::Connect | Operation::Hold => {
                if experiment.retain {
                    Code::PUT
                } else {
                    Code::POST
                }
            }
        };
        let unconfirmed = experiment.coap_answer == CoapAnswer::NonConfirmable;
        let level = experiment.qos.level().min(1);
        // Then publications are only there to be asked for, and must arrive.
        let asks = match experiment.operation {
            Operation::Get => true,
            Operation::Connect => experiment.visit == Visit::Get,
            Operation::Deliver | Operation::Put | Operation::Post | Operation::Hold => false,
        };
        Self {
            publish,
            confirmed: asks || (level > 0 && !unconfirmed),
            confirmed_get: !unconfirmed,
            // RFC 7252 §5.2.3: a client that asks for a Non-confirmable answer waits for it.
            fire_and_forget: level == 0 && !unconfirmed && !asks,
            prefix: prefix.filter(|prefix| !prefix.is_empty()).map(str::to_owned),
            observe_query: (prefix.is_some() && level > 0).then(|| format!("qos={level}")),
        }
    }
}

/// One topic.
#[derive(Debug)]
pub(super) struct Resource {
    topic: Box<str>,
    publish: Template,
    get: Template,
    observe: Template,
}

impl Resource {
    pub(super) fn new(topic: &str, shape: &Shape) -> Result<Self, DriverError> {
        let levels: Vec<&str> = shape.prefix.as_deref().into_iter().chain(topic.split('/')).collect();
        if levels.iter().any(|level| level.len() > LEVEL_BYTES_MAX) {
            return Err(DriverError::Unsupported { door: Door::Coap, what: "level of more than 255 bytes in a topic" });
        }
        let kind = |confirmed| if confirmed { Type::Confirmable } else { Type::NonConfirmable };
        let request = |kind, code, observes| {
            Template::new(kind, code, |encoder| {
                if observes {
                    encoder.push(OptionNumber::OBSERVE, UintValue::new(REGISTER).as_slice());
                }
                levels.iter().for_each(|level| encoder.push(OptionNumber::URI_PATH, level.as_bytes()));
                if let Some(query) = shape.observe_query.as_ref().filter(|_| observes) {
                    encoder.push(OptionNumber::URI_QUERY, query.as_bytes());
                }
            })
        };
        let publish = request(kind(shape.confirmed), shape.publish, false);
        Ok(Self {
            topic: topic.into(),
            publish: if shape.fire_and_forget { publish.unanswered() } else { publish },
            get: request(kind(shape.confirmed_get), Code::GET, false),
            observe: request(Type::Confirmable, Code::GET, true),
        })
    }

    pub(super) fn is_of(&self, topic: &str) -> bool {
        *self.topic == *topic
    }

    /// The template of a request for this topic.
    pub(super) fn template(&self, request: &Request<'_>) -> &Template {
        match request {
            Request::Publish { .. } => &self.publish,
            Request::Get { .. } => &self.get,
            Request::Subscribe { .. } => &self.observe,
        }
    }
}

#[cfg(test)]
mod tests {
    use fogmux_coap::Message;
    use fogmux_coap::client::{ClientConfig, Machine, TokenForm};

    use super::*;

    /// The request as it is sent: type, code, options and payload.
    fn sent(prefix: Option<&str>, experiment: &Experiment, request: Request<'_>) -> (Type, Code, Vec<String>, Vec<u8>) {
        let resource = Resource::new("bench/0", &Shape::new(experiment, prefix)).unwrap();
        let config = ClientConfig { tokens: TokenForm::MessageId, ..ClientConfig::default() };
        let mut machine: Machine = Machine::new(config, 1, None);
        let payload = if let Request::Publish { payload, .. } = request { payload } else { &[] };
        machine.request(resource.template(&request), payload, 0).unwrap();
        let message = Message::decode(machine.front().unwrap()).unwrap();
        assert_eq!(message.token.as_slice(), message.message_id.to_be_bytes());
        let options = message.options().map(|option| format!("{}={}", option.number.get(), option.text().unwrap()));
        (message.kind, message.code, options.collect(), message.payload().to_vec())
    }

    #[test]
    fn our_gateway_is_asked_for_what_the_experiment_says() {
        let experiment = Experiment { qos: crate::experiment::Qos::AtLeastOnce, ..Experiment::default() };
        let path = ["11=ps", "11=bench", "11=0"].map(str::to_owned);
        let publish = Request::Publish { topic: "bench/0", payload: b"hello" };
        let expected = (Type::Confirmable, Code::POST, path.to_vec(), b"hello".to_vec());
        assert_eq!(sent(Some("ps"), &experiment, publish), expected);
        let mut options = path.to_vec();
        options.insert(0, "6=".to_owned());
        options.push("15=qos=1".to_owned());
        let expected = (Type::Confirmable, Code::GET, options, Vec::new());
        assert_eq!(sent(Some("ps"), &experiment, Request::Subscribe { topic: "bench/0" }), expected);
    }

    #[test]
    fn a_peer_hears_the_topic_alone() {
        let experiment = Experiment { operation: Operation::Put, ..Experiment::default() };
        let path = ["11=bench", "11=0"].map(str::to_owned).to_vec();
        let publish = Request::Publish { topic: "bench/0", payload: b"" };
        assert_eq!(sent(None, &experiment, publish), (Type::NonConfirmable, Code::PUT, path.clone(), Vec::new()));
        let options = [vec!["6=".to_owned()], path].concat();
        let observed = sent(None, &experiment, Request::Subscribe { topic: "bench/0" });
        assert_eq!(observed, (Type::Confirmable, Code::GET, options, Vec::new()));
    }
}
