//! The handshake as the peer makes it.

use std::time::Duration;

use super::Peer;
use crate::{
    exchange::{Ephemeral, Group},
    hello::extension,
    prf::Side,
    reassembly::Message,
    tests::platform,
    v13::{
        certificates::{SCHEMES, signed},
        record::{Reading, Writing},
        schedule::{self, Early, Transcript},
    },
    wire::{self, Reader, message},
};

impl Peer {
    pub(super) fn handle_message(&mut self, now: Duration, message: &Message) {
        match message.kind {
            message::SERVER_HELLO if self.cookie.is_empty() => self.retry(now, message),
            message::SERVER_HELLO => self.server_hello(message),
            message::KEY_UPDATE => {
                let next = self.reading.last().unwrap().next();
                self.reading.push(next);
                if message.body == [1] {
                    self.update(now, false);
                }
            }
            message::FINISHED => self.finish(now, message),
            // Before a ServerHello there is nothing that it could belong to: a bent offer may be answered by DTLS 1.2.
            _ => {
                if let Some(transcript) = &mut self.transcript {
                    transcript.add(message.kind, &message.body);
                }
            }
        }
    }

    fn extensions(body: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let mut reader = Reader(body);
        reader.take(34).unwrap();
        reader.vector8().unwrap();
        reader.take(3).unwrap();
        let mut list = Reader(reader.vector16().unwrap());
        std::iter::from_fn(|| Some((list.u16()?, list.vector16()?.to_vec()))).collect()
    }

    fn retry(&mut self, now: Duration, message: &Message) {
        for (number, body) in Self::extensions(&message.body) {
            match number {
                extension::COOKIE => self.cookie = body[2..].to_vec(),
                extension::KEY_SHARE => {
                    let group = Group::parse(Reader(&body).u16().unwrap()).unwrap();
                    self.offer.share = Some(group);
                    self.ephemeral = Some(Ephemeral::generate(&platform(), group).unwrap());
                }
                _ => {}
            }
        }
        self.transcript = Some(Transcript::after_retry(&schedule::hash_of_hello(&self.first), &message.body));
        let hello = self.hello();
        self.transcript.as_mut().unwrap().add(message::CLIENT_HELLO, &hello);
        self.flight.clear();
        self.say(0, message::CLIENT_HELLO, &hello);
        self.send(now);
    }

    fn server_hello(&mut self, message: &Message) {
        self.transcript.as_mut().unwrap().add(message.kind, &message.body);
        let extensions = Self::extensions(&message.body);
        let find = |at: u16| extensions.iter().find(|(number, _)| *number == at).map(|(_, body)| &body[..]);
        let agreed = find(extension::KEY_SHARE).map(|share| self.ephemeral.take().unwrap().agree(&share[4..]).unwrap());
        self.exchanged = agreed.is_some();
        if find(extension::PRE_SHARED_KEY).is_none() {
            self.early = Early::new(None);
        }
        self.theirs = find(extension::CONNECTION_ID).map(|cid| cid[1..].to_vec()).unwrap_or_default();
        let stage = self.early.handshake(agreed.as_ref().map(|agreed| &agreed[..]));
        self.hello_hash = self.transcript.as_ref().unwrap().hash();
        let aead = self.offer.suite.aead();
        self.handshake = Some(Writing::new(aead, stage.traffic(Side::Client, &self.hello_hash), 2));
        self.reading.push(Reading::new(aead, stage.traffic(Side::Server, &self.hello_hash), 2));
        self.stage = Some(stage);
    }

    fn finish(&mut self, now: Duration, message: &Message) {
        let (stage, aead) = (self.stage.take().unwrap(), self.offer.suite.aead());
        let mut transcript = self.transcript.take().unwrap();
        assert_eq!(schedule::finished(self.reading[0].secret(), &transcript.hash())[..], message.body);
        transcript.add(message.kind, &message.body);
        let (master, hash) = (stage.master(), transcript.hash());
        self.reading.push(Reading::new(aead, master.traffic(Side::Server, &hash), 3));
        self.data = Some(Writing::new(aead, master.traffic(Side::Client, &hash), 3));
        self.flight.clear();
        if let Some(certified) = self.offer.certified.clone() {
            let mut list = Vec::new();
            for certificate in &certified.cert {
                wire::put_vector24(&mut list, certificate);
                list.extend([0, 0]);
            }
            let mut body = vec![0];
            wire::put_vector24(&mut body, &list);
            self.say(2, message::CERTIFICATE, &body);
            transcript.add(message::CERTIFICATE, &body);
            let signer = certified.key.choose_scheme(&SCHEMES).unwrap();
            let mut body = u16::from(signer.scheme()).to_be_bytes().to_vec();
            wire::put_vector16(&mut body, &signer.sign(&signed(Side::Client, &transcript.hash())).unwrap());
            self.say(2, message::CERTIFICATE_VERIFY, &body);
            transcript.add(message::CERTIFICATE_VERIFY, &body);
        } else if self.offer.psk.is_none() {
            self.say(2, message::CERTIFICATE, &[0, 0, 0, 0]);
            transcript.add(message::CERTIFICATE, &[0, 0, 0, 0]);
        }
        let finished = schedule::finished(self.handshake.as_ref().unwrap().secret(), &transcript.hash());
        self.say(2, message::FINISHED, &finished);
        self.send(now);
    }
}
