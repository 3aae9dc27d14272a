//! The server's half of a handshake (RFC 8446 §2, RFC 9147 §5), from a ClientHello whose cookie was good. The server
//! has said everything with its first flight; each state is named for the message of the client's that it awaits.

mod answer;

use std::{net::IpAddr, sync::Arc, time::Duration};

use rustls::{pki_types::CertificateDer, server::danger::ClientCertVerifier};

use self::answer::{Answer, Proof};
pub(crate) use self::answer::{Identities, Psks};
pub(super) use self::answer::{PSK_DHE_KE, PSK_KE};
use super::{
    Retry, Suite13, ack,
    certificates::{chain, signed, verify},
    flight::{Flight, Writers},
    record::{Content, Number, Opened, Reading, Sealed, Writing},
    schedule::{self, Hash, Secret, Transcript},
    session::{EPOCH_DATA, Session, Terms},
};
use crate::{
    Alert, Channel, ChannelSuite, ProvenPsk, Refused, Watch,
    hello::Verified,
    limit::RecordLimit,
    platform::Host,
    prf::Side,
    reassembly::{Message, Reassembly},
    refused::{self, Judged},
    suite::Aead,
    wire::{Cid, OTHERS_MAX, Reader, message},
};

/// Bytes of handshake messages of one client that are not finished: its certificates.
const MESSAGES_MAX: usize = 16 << 10;
/// RFC 9147 §7.1: how long the rest of a flight is waited for before what is there is acknowledged.
pub(super) const ACK_AFTER: Duration = Duration::from_millis(250);
/// RFC 9147 §6.1.
pub(super) const EPOCH_HANDSHAKE: u64 = 2;

/// Why no handshake begins.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The client is told. The keys of these identities did not hold.
    Alert(Alert, Identities),
    /// It came too early after attempts that failed: nothing is said, and nothing is counted against it.
    TooEarly,
}

impl From<Alert> for Refusal {
    fn from(alert: Alert) -> Self {
        Self::Alert(alert, Identities::new())
    }
}

/// The outcome of a record.
pub(crate) enum Step {
    /// More is awaited.
    Waiting,
    /// It is done; what the client has to hear is in the buffer.
    Done(Box<Session>, Box<Channel>, Option<Watch>),
    /// It has failed, and the client is told.
    Failed(Alert),
    /// The client has given up.
    Abandoned,
}

pub(crate) struct Handshake {
    state: State,
    suite: Suite13,
    /// Up to our Finished, and then on.
    transcript: Transcript,
    /// Of the ClientHello, to know it again.
    hello: Hash,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// By what certificates were judged when it began.
    trust: u64,
    reassembly: Reassembly,
    flight: Flight,
    plain_sent: u64,
    read: Reading,
    write: Writing,
    data_read: Option<Reading>,
    data_write: Writing,
    terms: Terms,
    received: Vec<Number>,
    ack_at: Option<Duration>,
    psk: Option<ProvenPsk>,
    refused: Option<Box<Refused>>,
    began: Duration,
}

/// The message that comes next.
enum State {
    Certificate,
    CertificateVerify(Chain),
    Finished(Chain),
    Over,
}

/// A client's certificate and those it came with; empty when it has none.
type Chain = Vec<CertificateDer<'static>>;

impl Handshake {
    /// Answers a ClientHello; [`Handshake::send`] has the answer. `ours` is handed out when the client wants one.
    /// Beside the handshake: other identities that were offered, whose keys did not hold.
    pub(crate) fn begin(
        host: Host<'_>,
        now: Duration,
        from: IpAddr,
        verified: &Verified<'_>,
        retry: &Retry,
        ours: Option<Cid>,
    ) -> Result<(Self, Identities), Refusal> {
        let hello = &verified.hello;
        let mut proof = Proof::choose(host, from, verified, retry)?;
        // §9: who cannot have what it wants in its records has no identifiers at all.
        let theirs = hello.connection_id.filter(|cid| cid.len() <= OTHERS_MAX);
        let ours = ours.filter(|_| theirs.is_some());
        let certificates = proof.is_certificate();
        let verifier =
            host.credentials.client_verifier().filter(|verifier| certificates && verifier.offer_client_auth());
        let trust = verifier.as_ref().map_or(0, |_| host.credentials.trust());
        let (psk, refused) = proof.take_keys();
        let answer = Answer::make(host.platform, verified, retry, proof, verifier.as_deref(), ours.as_ref());
        let answer = match answer {
            Ok(answer) => answer,
            Err(alert) => return Err(Refusal::Alert(alert, refused)),
        };
        let Answer { messages, sequence, transcript, stage, master, .. } = answer;
        let aead = retry.suite.aead();
        let [hello_hash, finished_hash] = [answer.at_server_hello, transcript.hash()];
        let traffic = |side| stage.traffic(side, &hello_hash);
        let data = |side| master.traffic(side, &finished_hash);
        let next_in = verified.message_sequence.wrapping_add(1);
        let theirs = theirs.unwrap_or_default().into();
        let [write, data_write] = [(traffic(Side::Server), EPOCH_HANDSHAKE), (data(Side::Server), EPOCH_DATA)]
            .map(|(secret, epoch)| writing(aead, secret, epoch, hello.record_limit));
        let terms = Terms { side: Side::Server, aead, ours, theirs, next_in, next_out: sequence };
        let handshake = Self {
            state: if verifier.is_some() { State::Certificate } else { State::Finished(Chain::new()) },
            suite: retry.suite,
            transcript,
            hello: schedule::hash(verified.message),
            verifier,
            trust,
            reassembly: Reassembly::new(next_in, MESSAGES_MAX),
            flight: Flight::new(messages, write.content_max()),
            plain_sent: verified.record_sequence,
            read: Reading::new(aead, traffic(Side::Client), EPOCH_HANDSHAKE),
            write,
            data_read: Some(Reading::new(aead, data(Side::Client), EPOCH_DATA)),
            data_write,
            terms,
            received: Vec::new(),
            ack_at: None,
            psk,
            refused: None,
            began: now,
        };
        Ok((handshake, refused))
    }

    /// Sends the flight, for the first time or again.
    pub(crate) fn send(&mut self, now: Duration, send: &mut dyn FnMut(&[u8])) {
        let Self { flight, plain_sent, write, terms, .. } = self;
        flight.send(now, &mut Writers { plain: plain_sent, sealed: write, cid: &terms.theirs }, send);
    }

    /// Does what is due: says what has come, or says the flight again.
    pub(crate) fn resend(&mut self, now: Duration, send: &mut dyn FnMut(&[u8])) {
        if self.ack_at.is_some_and(|at| at <= now) {
            self.ack_at = None;
            let mut out = Vec::new();
            // §7: under the keys of the handshake, for the client need not have others yet.
            ack::put(&mut self.write, &self.terms.theirs, &self.received, &mut out);
            if !out.is_empty() {
                send(&out);
            }
        }
        if self.flight.again_at().is_some_and(|at| at <= now) {
            self.flight.slow_down();
            self.send(now, send);
        }
    }

    /// When it wants [`Handshake::resend`].
    pub(crate) fn again_at(&self) -> Option<Duration> {
        self.flight.again_at().into_iter().chain(self.ack_at).min()
    }

    pub(crate) const fn began(&self) -> Duration {
        self.began
    }

    /// The identifier that it hands out.
    pub(crate) const fn identifier(&self) -> Option<&Cid> {
        self.terms.ours.as_ref()
    }

    /// Whether this is the ClientHello that began it, once more. Nobody else knows its cookie.
    pub(crate) fn is_repeated(&self, verified: &Verified<'_>) -> bool {
        verified.retry.is_some() && self.hello == schedule::hash(verified.message)
    }

    /// Appends the alert with which a handshake fails. Our Finished is said, so that the keys are those of data
    /// (RFC 8446 §6): a client that has sent its own has them.
    pub(crate) fn put_alert(&mut self, alert: Alert, out: &mut Vec<u8>) {
        let _ = self.data_write.seal(&self.terms.theirs, Content::Alert, &alert.bytes(), out);
    }

    /// Takes in a record.
    pub(crate) fn handle(&mut self, now: Duration, host: Host<'_>, record: &Sealed<'_>, out: &mut Vec<u8>) -> Step {
        if !record.is_for(self.terms.ours.as_ref()) {
            return Step::Waiting;
        }
        let mut plain = Vec::new();
        let Some(Opened { content, number, .. }) = self.read.open(record, &mut plain) else { return Step::Waiting };
        self.handle_inner(now, host, content, number, &plain, out).unwrap_or_else(Step::Failed)
    }

    fn handle_inner(
        &mut self,
        now: Duration,
        host: Host<'_>,
        content: Content,
        number: Number,
        plain: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step, Alert> {
        match content {
            Content::Handshake => {
                // §5.8.1: nobody answers who has not read our flight to its end.
                self.flight.acknowledge_all();
                if self.received.len() < ack::NUMBERS_MAX {
                    self.received.push(number);
                }
                self.ack_at.get_or_insert(now + ACK_AFTER);
                self.reassembly.push_all(plain)?;
                self.advance(host, out)
            }
            Content::Ack => {
                ack::numbers(plain)?.for_each(|number| self.flight.acknowledge(number));
                Ok(Step::Waiting)
            }
            Content::Alert => Alert::of_record(plain).map(|_| Step::Abandoned),
            // Data has keys of its own.
            Content::ApplicationData | Content::Unknown => Err(Alert::UnexpectedMessage),
        }
    }

    /// Deals with messages as long as there are any.
    fn advance(&mut self, host: Host<'_>, out: &mut Vec<u8>) -> Result<Step, Alert> {
        while let Some(message) = self.reassembly.pop() {
            self.terms.next_in = message.sequence.wrapping_add(1);
            if let Some(step) = self.handle_message(host, &message, out)? {
                return Ok(step);
            }
        }
        Ok(Step::Waiting)
    }

    fn handle_message(&mut self, host: Host<'_>, message: &Message, out: &mut Vec<u8>) -> Result<Option<Step>, Alert> {
        self.state = match (std::mem::replace(&mut self.state, State::Over), message.kind) {
            (State::Certificate, message::CERTIFICATE) => {
                let chain = self.verified_chain(host, &message.body)?;
                if chain.is_empty() { State::Finished(chain) } else { State::CertificateVerify(chain) }
            }
            (State::CertificateVerify(chain), message::CERTIFICATE_VERIFY) => {
                let mut reader = Reader(&message.body);
                let scheme = reader.u16().ok_or(Alert::DecodeError)?;
                let signature = reader.vector16().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)?;
                let leaf = chain.first().ok_or(Alert::InternalError)?;
                let verified = verify(leaf, scheme, &signed(Side::Client, &self.transcript.hash()), signature);
                verified.inspect_err(|_| self.refuse(Refused::Unproven(leaf.clone())))?;
                State::Finished(chain)
            }
            (State::Finished(chain), message::FINISHED) => {
                let expected = schedule::finished(self.read.secret(), &self.transcript.hash());
                if !bool::from(subtle::ConstantTimeEq::ct_eq(&expected[..], &message.body)) {
                    chain.first().into_iter().for_each(|leaf| self.refuse(Refused::Unproven(leaf.clone())));
                    return Err(Alert::DecryptError);
                }
                return self.finish(host, &chain, out).map(Some);
            }
            (_, _) => return Err(Alert::UnexpectedMessage),
        };
        self.transcript.add(message.kind, &message.body);
        Ok(None)
    }

    /// The client's certificate and its chain when they hold; nothing when it has none and need not.
    fn verified_chain(&mut self, host: Host<'_>, body: &[u8]) -> Result<Chain, Alert> {
        let verifier = self.verifier.clone().ok_or(Alert::UnexpectedMessage)?;
        let chain = chain(body)?;
        // RFC 8446 §4.4.2.4.
        refused::check_chain(&*verifier, host, &chain, Alert::CertificateRequired).map_err(|(alert, refused)| {
            self.refused = refused.map(Box::new);
            alert
        })?;
        Ok(chain)
    }

    fn refuse(&mut self, refused: Refused) {
        self.refused = Some(Box::new(refused));
    }

    /// The certificate for which a handshake has failed. A client that has got here by a pre-shared key has proved its
    /// own.
    pub(crate) fn take_refused(&mut self) -> Option<Refused> {
        self.refused.take().map(|refused| *refused)
    }

    fn finish(&mut self, host: Host<'_>, chain: &Chain, out: &mut Vec<u8>) -> Result<Step, Alert> {
        let psk = self.psk.take();
        let watch = host.credentials.watch(chain);
        let judged = Judged { verifier: self.verifier.as_deref(), chain, psk: psk.as_ref(), trust: self.trust };
        judged.check(host).map_err(|(alert, refused)| {
            self.refused = refused.map(Box::new);
            alert
        })?;
        let channel = Channel { suite: ChannelSuite::V13(self.suite), certificate: chain.first().cloned(), psk };
        let read = self.data_read.take().ok_or(Alert::InternalError)?;
        // The value left here is never used.
        let spent = Writing::new(self.terms.aead, schedule::Secret::default(), EPOCH_DATA);
        let write = std::mem::replace(&mut self.data_write, spent);
        let mut session = Box::new(Session::new(&self.terms, (read, write), &mut self.read));
        session.put_ack(&self.received, out);
        Ok(Step::Done(session, Box::new(channel), watch))
    }
}

/// An epoch that we write, under the limit that the client has announced, if it has (RFC 8449 §4).
fn writing(aead: Aead, secret: Secret, epoch: u64, limit: Option<RecordLimit>) -> Writing {
    let mut writing = Writing::new(aead, secret, epoch);
    limit.into_iter().for_each(|limit| writing.limit_to(limit));
    writing
}
