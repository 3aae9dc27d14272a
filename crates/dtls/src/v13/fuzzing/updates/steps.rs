//! The steps of an attack.

use std::time::Duration;

use super::super::{
    input::Input,
    server::{KINDS, any_fragment, number},
};
use super::{Attack, Fate};
use crate::{
    v13::{USER_CANCELED, ack, record::Content},
    wire::{self, message},
};

impl Attack {
    /// A message whose place or form is wrong.
    fn misbehave(&mut self, input: &mut Input<'_>) {
        let how = input.byte();
        let mut plain = Vec::new();
        let body = input.bytes();
        let fate = match how % 8 {
            // Heard before, and not yet heard of: neither counts.
            0 => {
                wire::put_message(&mut plain, KINDS[usize::from(how) / 16], self.next - 1, body);
                Fate::Lives
            }
            1 => {
                wire::put_message(&mut plain, KINDS[usize::from(how) / 16], self.next + 1, body);
                Fate::Lives
            }
            // RFC 8446 §4.6.3: neither asked for nor not.
            2 if body != [0] && body != [1] => {
                wire::put_message(&mut plain, message::KEY_UPDATE, self.next, body);
                Fate::Ends
            }
            // Cut, though it is short.
            3 => {
                wire::put_fragment(&mut plain, message::KEY_UPDATE, self.next, 2, 0, &[0]);
                Fate::Ends
            }
            // Messages of a handshake.
            4 => {
                wire::put_message(&mut plain, message::FINISHED, self.next, body);
                Fate::Ends
            }
            _ => {
                plain = any_fragment(input, self.next);
                Fate::Either
            }
        };
        let datagram = self.seal(0, Content::Handshake, &plain);
        self.arrive(&datagram);
        self.check(fate);
        // From here on the model does not know which message is next.
        self.is_over |= fate == Fate::Either;
    }

    pub(super) fn step(&mut self, step: u8, input: &mut Input<'_>) {
        match step % 16 {
            0 | 1 => self.say(message::KEY_UPDATE, &[step >> 4 & 1], Fate::Lives),
            2 => self.exchange(),
            3 | 4 => {
                let nth = input.index(4);
                let number = self.pending.get(nth).or(self.pending.last()).copied();
                number.into_iter().for_each(|number| self.acknowledge(&[number]));
            }
            5 => {
                let numbers: Vec<_> = (0..input.index(40)).map(|_| number(input)).collect();
                self.acknowledge(&numbers);
            }
            6 => self.update(step & 16 != 0),
            7 => self.wait(Duration::from_millis(1 << (input.byte() % 18))),
            8 => self.misbehave(input),
            9 => self.identify(input),
            10 => {
                // Of a key that was changed: data that was on its way is heard, anything older is not.
                let back = 1 + input.index(3);
                let datagram = self.seal(back, Content::ApplicationData, b"late");
                let is_older = self.taken < back;
                let data = self.arrive(&datagram);
                assert!(back == 1 || is_older || data.is_empty(), "data under keys of long ago");
                self.check(Fate::Lives);
            }
            11 => {
                let body = input.bytes();
                let datagram = self.seal(0, Content::Ack, body);
                if ack::numbers(body).is_err() {
                    self.arrive(&datagram);
                    self.check(Fate::Ends);
                } else {
                    // It may name anything.
                    self.arrive_unknown(&datagram);
                }
            }
            12 => {
                let body = input.bytes();
                let ends = body.len() != 2 || body.get(1) != Some(&USER_CANCELED);
                let datagram = self.seal(0, Content::Alert, body);
                self.arrive(&datagram);
                self.check(if ends { Fate::Ends } else { Fate::Lives });
            }
            13 => {
                let bytes = input.bytes();
                assert!(self.arrive(bytes).is_empty());
                self.check(Fate::Lives);
            }
            14 => {
                let mut datagram = self.seal(0, Content::ApplicationData, b"forged");
                let at = input.index(datagram.len());
                datagram[at] ^= input.byte().max(1);
                assert!(self.arrive(&datagram).is_empty(), "forged data");
                self.check(Fate::Lives);
            }
            _ => {
                // Several records in one datagram.
                let mut datagram = self.seal(0, Content::ApplicationData, b"one");
                let more = self.seal(0, Content::ApplicationData, b"two");
                datagram.extend(more);
                let data = self.arrive(&datagram);
                self.check(Fate::Lives);
                assert!(self.is_over || data == [b"one", b"two"]);
            }
        }
    }

    fn arrive_unknown(&mut self, datagram: &[u8]) {
        let had = self.pending.clone();
        self.arrive(datagram);
        // Rather than to read it as the session does.
        if !had.is_empty() {
            self.is_over = true;
        }
    }

    /// The session changes its keys by itself.
    fn update(&mut self, request: bool) {
        if self.of_client {
            let mut said = Vec::new();
            self.pair.client.update_keys(self.pair.now, request, &mut |bytes| said.push(bytes.to_vec()));
            assert!(said.len() <= usize::from(self.pending.is_empty()), "two KeyUpdates at once");
            said.iter().for_each(|datagram| self.read(datagram));
        }
    }

    /// RFC 9147 §9: the session is given other identifiers for what it sends, or asked for some.
    fn identify(&mut self, input: &mut Input<'_>) {
        let how = input.byte();
        if how & 1 == 0 {
            let fate = if self.cid.is_empty() { Fate::Ends } else { Fate::Lives };
            return self.say(message::REQUEST_CONNECTION_ID, &[how], fate);
        }
        let (mut list, mut body) = (Vec::new(), Vec::new());
        let cid = &b"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopq"[..usize::from(how >> 2) % 40];
        wire::put_vector8(&mut list, cid);
        wire::put_vector16(&mut body, &list);
        body.push(how >> 1 & 1);
        let (is_now, is_too_long) = (how >> 1 & 1 == 0, cid.len() > wire::OTHERS_MAX);
        let fate = if self.cid_len == 0 || is_now && is_too_long { Fate::Ends } else { Fate::Lives };
        // The acknowledgement comes under the new one already.
        if fate == Fate::Lives && is_now && !cid.is_empty() {
            self.cid_len = cid.len();
        }
        self.say(message::NEW_CONNECTION_ID, &body, fate);
    }
}
