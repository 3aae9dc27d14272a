//! What is asked of one topic: the bytes of its requests, made once and stamped with a number each time.

use fogmux_coap::message::Type;
use fogmux_coap::{Block, Code, Encoder, OptionNumber, Token};

use super::exchanges::Number;
use crate::driver::DriverError;
use crate::experiment::{CoapAnswer, Door, Experiment, Operation, Visit};

/// RFC 7252 §5.10: what a Uri-Path option holds at most.
const LEVEL_BYTES_MAX: usize = 255;
/// Where the message ID of a message stands (RFC 7252 §3); the token comes behind it.
const NUMBER_AT: std::ops::Range<usize> = 2..6;

/// What an experiment wants of requests.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// PUT or POST.
    publish: Code,
    /// Publications are Confirmable.
    pub(super) confirmed: bool,
    /// Questions are Confirmable. Observations always are: without an answer there is none.
    pub(super) confirmed_get: bool,
    /// Non-confirmable publications are done when they are sent; else when the answer comes.
    pub(super) fire_and_forget: bool,
    /// What stands before a topic.
    prefix: Option<String>,
    /// What is asked of our own gateway: notifications of this QoS.
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
        // Then what is published is only there to be asked for, and must arrive.
        let asks = match experiment.operation {
            Operation::Get => true,
            Operation::Connect => experiment.visit == Visit::Get,
            Operation::Deliver | Operation::Put | Operation::Post | Operation::Hold => false,
        };
        Self {
            publish,
            confirmed: asks || (level > 0 && !unconfirmed),
            confirmed_get: !unconfirmed,
            // RFC 7252 §5.2.3: whoever asks for a Non-confirmable answer waits for one.
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
    levels: Vec<Box<str>>,
    publish: Code,
    observe_query: Option<String>,
    /// A publication without payload.
    publication: Vec<u8>,
    /// A question.
    question: Vec<u8>,
}

/// What is not the same in all requests for a resource.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts<'a> {
    pub(super) observe: Option<u32>,
    pub(super) block1: Option<Block>,
    pub(super) block2: Option<Block>,
    pub(super) size1: Option<u32>,
    pub(super) payload: &'a [u8],
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Publish,
    Get,
    /// GET as observations are asked for, whose blocks are fetched under the same URI (RFC 7959 §3.4).
    Follow,
}

impl Resource {
    pub(super) fn new(topic: &str, shape: &Shape) -> Result<Self, DriverError> {
        let levels: Vec<Box<str>> =
            shape.prefix.as_deref().into_iter().chain(topic.split('/')).map(Box::from).collect();
        if levels.iter().any(|level| level.len() > LEVEL_BYTES_MAX) {
            return Err(DriverError::Unsupported { door: Door::Coap, what: "level of more than 255 bytes in a topic" });
        }
        let mut this = Self {
            topic: topic.into(),
            levels,
            publish: shape.publish,
            observe_query: shape.observe_query.clone(),
            publication: Vec::new(),
            question: Vec::new(),
        };
        let kind = |confirmed| if confirmed { Type::Confirmable } else { Type::NonConfirmable };
        let (mut publication, mut question) = (Vec::new(), Vec::new());
        this.encode(Method::Publish, kind(shape.confirmed), 0, &token(0), Parts::default(), &mut publication);
        this.encode(Method::Get, kind(shape.confirmed_get), 0, &token(0), Parts::default(), &mut question);
        (this.publication, this.question) = (publication, question);
        Ok(this)
    }

    pub(super) fn is_of(&self, topic: &str) -> bool {
        *self.topic == *topic
    }

    /// Writes a publication that fits into one message.
    pub(super) fn publication(&self, number: Number, payload: &[u8], out: &mut Vec<u8>) {
        stamp(&self.publication, number, out);
        if !payload.is_empty() {
            out.push(fogmux_coap::message::PAYLOAD_MARKER);
            out.extend_from_slice(payload);
        }
    }

    /// Writes a question for what is kept.
    pub(super) fn question(&self, number: Number, out: &mut Vec<u8>) {
        stamp(&self.question, number, out);
    }

    /// Writes any other request.
    pub(super) fn encode(
        &self,
        method: Method,
        kind: Type,
        message_id: u16,
        token: &Token,
        parts: Parts<'_>,
        out: &mut Vec<u8>,
    ) {
        out.clear();
        let code = match method {
            Method::Publish => self.publish,
            Method::Get | Method::Follow => Code::GET,
        };
        let mut encoder =
            Encoder::new(out, kind, code, message_id, token).uint_if(OptionNumber::OBSERVE, parts.observe);
        self.levels.iter().for_each(|level| encoder.push(OptionNumber::URI_PATH, level.as_bytes()));
        if let Some(query) = self.observe_query.as_ref().filter(|_| method == Method::Follow) {
            encoder.push(OptionNumber::URI_QUERY, query.as_bytes());
        }
        encoder
            .uint_if(OptionNumber::BLOCK2, parts.block2.map(Block::encode))
            .uint_if(OptionNumber::BLOCK1, parts.block1.map(Block::encode))
            .uint_if(OptionNumber::SIZE1, parts.size1)
            .payload(parts.payload);
    }
}

/// The token of a request is its message ID. RFC 7252 §5.3.1 wants tokens that nobody can guess where nothing else
/// protects; who forges answers to a load generator gains nothing, and two bytes are what other generators send.
pub(super) fn token(number: Number) -> Token {
    Token::new(&number.to_be_bytes()).unwrap_or_default()
}

/// The number that a token of ours is.
pub(super) fn number(token: &Token) -> Option<Number> {
    token.as_slice().try_into().ok().map(Number::from_be_bytes)
}

fn stamp(template: &[u8], number: Number, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(template);
    let [high, low] = number.to_be_bytes();
    if let Some(at) = out.get_mut(NUMBER_AT) {
        at.copy_from_slice(&[high, low, high, low]);
    }
}

#[cfg(test)]
mod tests {
    use fogmux_coap::Message;

    use super::*;

    fn resource(prefix: Option<&str>, experiment: &Experiment) -> Resource {
        Resource::new("bench/0", &Shape::new(experiment, prefix)).unwrap()
    }

    #[test]
    fn a_stamped_request_is_the_one_that_would_be_encoded() {
        let experiment = Experiment { qos: crate::experiment::Qos::AtLeastOnce, ..Experiment::default() };
        let resource = resource(Some("ps"), &experiment);
        let (mut stamped, mut encoded) = (Vec::new(), Vec::new());
        resource.publication(0x1234, b"hello", &mut stamped);
        let parts = Parts { payload: b"hello", ..Parts::default() };
        resource.encode(Method::Publish, Type::Confirmable, 0x1234, &token(0x1234), parts, &mut encoded);
        assert_eq!(stamped, encoded);
        let message = Message::decode(&stamped).unwrap();
        assert_eq!((message.code, number(&message.token)), (Code::POST, Some(0x1234)));
        let path: Vec<_> = message.options().map(|option| option.text().unwrap()).collect();
        assert_eq!(path, ["ps", "bench", "0"]);
    }

    #[test]
    fn a_peer_hears_the_topic_alone() {
        let experiment = Experiment { operation: Operation::Put, ..Experiment::default() };
        let resource = resource(None, &experiment);
        let mut out = Vec::new();
        resource.publication(1, b"", &mut out);
        let message = Message::decode(&out).unwrap();
        assert_eq!((message.kind, message.code), (Type::NonConfirmable, Code::PUT));
        assert_eq!(message.options().count(), 2);
        resource.encode(
            Method::Follow,
            Type::Confirmable,
            1,
            &token(1),
            Parts { observe: Some(0), ..Parts::default() },
            &mut out,
        );
        assert!(Message::decode(&out).unwrap().option(OptionNumber::URI_QUERY).is_none());
    }
}
