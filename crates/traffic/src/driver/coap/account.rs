//! The events of the protocol as the pattern counts them.

use fogmux_coap::client::{CallFailed, Event, Events, Registration, Representation};
use fogmux_coap::{Code, Message};

use crate::driver::{Answer, Arrival, DriverError, Sink};
use crate::text;

/// Payload bytes of one client, and why it cannot go on.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) payload_up: u64,
    pub(super) payload_down: u64,
    pub(super) failure: Option<DriverError>,
}

impl Account {
    /// Has events counted here and told to `sink`.
    pub(super) fn relay<'a>(&'a mut self, sink: &'a mut dyn Sink) -> Relay<'a> {
        Relay { account: self, sink }
    }
}

/// Tells a pattern what comes of its requests.
pub(super) struct Relay<'a> {
    account: &'a mut Account,
    sink: &'a mut dyn Sink,
}

impl Events for Relay<'_> {
    fn event(&mut self, tag: u64, event: Event<'_>) {
        match event {
            Event::Sent => self.sink.done(tag, Answer::Success(&[])),
            Event::Answered { representation, registration } => self.answered(tag, &representation, registration),
            Event::Notified { representation, .. } if representation.message.code.is_success() => {
                self.message(&representation.body);
            }
            Event::Notified { representation, .. } => self.ended(&said(&representation.message)),
            Event::Ended(reason) => self.ended(&reason.to_string()),
            Event::Failed(CallFailed::TimedOut) => self.sink.done(tag, Answer::Lost),
            Event::Failed(CallFailed::Reset) => self.sink.done(tag, Answer::Refused("Reset")),
            Event::Failed(reason) => self.sink.done(tag, Answer::Refused(&reason.to_string())),
        }
    }
}

impl Relay<'_> {
    fn answered(&mut self, tag: u64, representation: &Representation<'_>, registration: Registration) {
        let Representation { message, body, .. } = representation;
        if !message.code.is_success() {
            self.sink.done(tag, Answer::Refused(&said(message)));
            return;
        }
        match registration {
            Registration::NotRequested if message.code == Code::CONTENT => {
                self.account.payload_down += length(body);
                self.sink.done(tag, Answer::Success(body));
            }
            Registration::NotRequested => self.sink.done(tag, Answer::Success(&[])),
            Registration::Declined => self.sink.done(tag, Answer::Refused("answered, but not observed")),
            Registration::Established => {
                self.sink.done(tag, Answer::Success(&[]));
                // Our gateway says so that nothing is retained yet (docs/protocols/coap.md).
                if !body.is_empty() {
                    self.message(body);
                }
            }
        }
    }

    fn message(&mut self, body: &[u8]) {
        self.account.payload_down += length(body);
        self.sink.message(Arrival::unnamed(body));
    }

    fn ended(&mut self, why: &str) {
        self.account.failure = Some(DriverError::Refused(format!("the observation was ended: {why}")));
    }
}

/// RFC 7252 §5.5.2: the payload of an error is for people.
fn said(message: &Message<'_>) -> String {
    let code = message.code;
    match std::str::from_utf8(message.payload()) {
        Ok(said) if !said.is_empty() && !code.is_success() => text::said(&format!("{code}: {said}")),
        Ok(_) | Err(_) => code.to_string(),
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
