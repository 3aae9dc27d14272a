//! An association of DTLS 1.3 after its handshake: keys, numbers, and what is said after (RFC 9147 §8 and §9). At rest
//! it is two secrets and counters.

use std::{cmp::Ordering, time::Duration};

use super::{
    ack,
    flight::{INTERVAL_FIRST, INTERVAL_LAST},
    record::{Content, Number, Opened, Reading, Sealed, Writing},
    schedule::Secret,
    server::EPOCH_HANDSHAKE,
};
use crate::{
    Alert,
    prf::Side,
    suite::{Aead, Wear},
    wire::{self, Cid, Fragment, OTHERS_MAX, Reader, message},
};

/// RFC 9147 §6.1: the first epoch of data.
pub(super) const EPOCH_DATA: u64 = 3;
/// RFC 8446 §6.1: a close_notify follows.
pub(crate) const USER_CANCELED: u8 = 90;
/// RFC 9147 §8: the last epoch to which keys may be changed.
const EPOCH_MAX: u64 = (1 << 48) - 1;
/// Records under a key of ours after which it is changed, long before [`Aead::sealed_max`].
const SEALED_WORN: u64 = 1 << 22;
/// Repeats of a KeyUpdate that nobody acknowledges, which are two minutes; the others follow records of the peer.
const REPEATS_MAX: u8 = 7;
/// Records of a peer that acknowledges no KeyUpdate, after the repeats, until the association ends.
const UNHEEDED_MAX: u8 = 8;

/// §4.5.3: forged records under a key after which the peer is asked for another, long before [`Aead::forged_max`].
const fn forged_worn(aead: Aead) -> u64 {
    match aead {
        Aead::Gcm | Aead::Ccm => 1 << 22,
        Aead::Ccm8 => 1 << 7,
    }
}

pub(crate) struct Session {
    aead: Aead,
    read: Reading,
    /// The epoch before: of the handshake, or of the keys before an update. It goes when the session rests and the peer
    /// has used the new one.
    before: Option<Box<Reading>>,
    write: Writing,
    /// The identifier that we want in records to us.
    ours: Option<Cid>,
    /// The identifier that the peer wants in records to it; empty when none.
    theirs: Box<[u8]>,
    /// Of the message that is awaited, and of our next.
    next_in: u16,
    next_out: u16,
    side: Side,
    /// A KeyUpdate of ours that was not acknowledged.
    update: Option<Box<Update>>,
    /// Whether the peer was asked to change the key that is read with.
    asked: bool,
}

/// RFC 9147 §8: until it was acknowledged, the old keys are used.
struct Update {
    message: Vec<u8>,
    sent: Vec<Number>,
    interval: Duration,
    /// Nothing once there were enough repeats.
    again_at: Option<Duration>,
    repeats: u8,
    /// Records of the peer after the last repeat, and whether one was not answered by another.
    unheeded: u8,
    prompted: bool,
}

/// The terms of an association, from the hellos on: all but its keys.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) side: Side,
    pub(super) aead: Aead,
    /// The identifier under which records come to us, and the one in those to the peer.
    pub(super) ours: Option<Cid>,
    pub(super) theirs: Box<[u8]>,
    /// The numbers of the next handshake messages.
    pub(super) next_in: u16,
    pub(super) next_out: u16,
}

/// A record that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) content: Content,
    number: Number,
    /// Whether it comes after everything that came before: from where it came, the peer is now.
    pub(crate) newest: bool,
}

impl Session {
    /// After a handshake with the keys of data; the keys of the handshake are taken too, for messages that are late.
    pub(super) fn new(terms: &Terms, (read, write): (Reading, Writing), handshake: &mut Reading) -> Self {
        let Terms { side, aead, ours, theirs, next_in, next_out } = terms.clone();
        // The value left there is never used.
        let spent = Reading::new(aead, Secret::default(), EPOCH_HANDSHAKE);
        let before = Some(Box::new(std::mem::replace(handshake, spent)));
        Self { aead, read, before, write, ours, theirs, next_in, next_out, side, update: None, asked: false }
    }

    /// The identifier under which records come to it.
    pub(crate) const fn identifier(&self) -> Option<&Cid> {
        self.ours.as_ref()
    }

    /// Appends what a record holds when it is genuine and new.
    pub(crate) fn open(&mut self, record: &Sealed<'_>, out: &mut Vec<u8>) -> Option<Heard> {
        if !record.is_for(self.ours.as_ref()) {
            return None;
        }
        if let Some(Opened { content, number, newest }) = self.read.open(record, out) {
            self.note_unheeded();
            return Some(Heard { content, number, newest });
        }
        let start = out.len();
        let opened = self.before.as_mut().and_then(|before| before.open(record, out));
        if let Some(Opened { content, number, newest }) = opened {
            // RFC 9147 §6.1: the keys of a handshake protect no data.
            if content != Content::ApplicationData || number.epoch >= EPOCH_DATA {
                self.note_unheeded();
                // A peer that has not heard yet that its KeyUpdate came goes on with the old keys, and may move
                // meanwhile.
                return Some(Heard { content, number, newest: newest && self.read.is_unused() });
            }
            out.truncate(start);
        }
        // §4.5.3: of keys that were changed no more than this is needed.
        if self.before.as_ref().is_some_and(|before| before.forged() >= self.aead.forged_max()) {
            self.before = None;
        }
        None
    }

    /// Notes that the peer speaks and has not acknowledged a KeyUpdate that is not repeated any more.
    fn note_unheeded(&mut self) {
        if let Some(update) = self.update.as_mut().filter(|update| update.again_at.is_none()) {
            update.unheeded = update.unheeded.saturating_add(1);
            update.prompted = true;
        }
    }

    /// The most bytes of data in a record: with the type of the content, the limit of the peer (RFC 8449 §4).
    pub(crate) const fn data_max(&self) -> usize {
        self.write.content_max()
    }

    /// Appends a record with data.
    pub(crate) fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Option<()> {
        if self.write.sent() >= self.aead.sealed_max() {
            return None;
        }
        self.write.seal(&self.theirs, Content::ApplicationData, plain, out).map(drop)
    }

    pub(crate) fn put_alert(&mut self, alert: Alert, out: &mut Vec<u8>) {
        // Without a number left nothing more can be said.
        let _ = self.write.seal(&self.theirs, Content::Alert, &alert.bytes(), out);
    }

    pub(super) fn put_ack(&mut self, numbers: &[Number], out: &mut Vec<u8>) {
        ack::put(&mut self.write, &self.theirs, numbers, out);
    }

    /// Deals with a handshake message after the handshake; the answer is appended.
    ///
    /// # Errors
    /// The alert with which the association ends.
    pub(crate) fn handle_message(
        &mut self,
        now: Duration,
        heard: Heard,
        plain: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Alert> {
        // RFC 8446 §5.4.
        if plain.is_empty() {
            return Err(Alert::UnexpectedMessage);
        }
        let mut rest = plain;
        while !rest.is_empty() {
            let (fragment, after) = Fragment::split(rest).ok_or(Alert::DecodeError)?;
            rest = after;
            match fragment.sequence.cmp(&self.next_in) {
                // Our acknowledgement was lost.
                Ordering::Less => continue,
                // One before it was lost; both come again.
                Ordering::Greater => return Ok(()),
                Ordering::Equal => {}
            }
            // Messages that may come now are short, and nobody has reason to cut them.
            if !fragment.is_whole() || heard.number.epoch != self.read.epoch() {
                return Err(Alert::UnexpectedMessage);
            }
            // A peer whose messages have no numbers left has to begin anew.
            self.next_in = self.next_in.checked_add(1).ok_or(Alert::UnexpectedMessage)?;
            match fragment.kind {
                message::KEY_UPDATE => self.handle_key_update(now, fragment.body, out)?,
                message::NEW_CONNECTION_ID => self.handle_new_identifier(fragment.body)?,
                // §9: one is enough for anybody; to ask again is of no use.
                message::REQUEST_CONNECTION_ID if self.ours.is_some() => {
                    let [_] = fragment.body else { return Err(Alert::DecodeError) };
                }
                // A ticket, which we have no use for: resumption is not spoken.
                message::NEW_SESSION_TICKET if self.side == Side::Client => {}
                _ => return Err(Alert::UnexpectedMessage),
            }
        }
        self.put_ack(&[heard.number], out);
        Ok(())
    }

    /// RFC 8446 §4.6.3.
    fn handle_key_update(&mut self, now: Duration, body: &[u8], out: &mut Vec<u8>) -> Result<(), Alert> {
        let requested = match body {
            [0] => false,
            [1] => true,
            [_] => return Err(Alert::IllegalParameter),
            _ => return Err(Alert::DecodeError),
        };
        let next = self.read.next();
        self.before = Some(Box::new(std::mem::replace(&mut self.read, next)));
        self.asked = false;
        // §8: a request that would lead past the last epoch is ignored.
        if requested && self.update.is_none() && self.may_update() {
            self.start_update(now, false, out);
        }
        Ok(())
    }

    /// Whether there is an epoch left, and a number for the message.
    const fn may_update(&self) -> bool {
        self.write.epoch() < EPOCH_MAX && self.next_out < u16::MAX
    }

    /// RFC 9147 §9: a list of identifiers, and whether the first is to be used at once.
    fn handle_new_identifier(&mut self, body: &[u8]) -> Result<(), Alert> {
        if self.theirs.is_empty() {
            return Err(Alert::UnexpectedMessage);
        }
        let mut reader = Reader(body);
        let mut list = Reader(reader.vector16().ok_or(Alert::DecodeError)?);
        let usage = reader.u8().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)?;
        let (mut usable, is_any) = (None, !list.is_empty());
        while !list.is_empty() {
            let identifier = list.vector8().ok_or(Alert::DecodeError)?;
            usable = usable.or(Some(identifier).filter(|cid| cid.len() <= OTHERS_MAX));
        }
        match (usage, usable) {
            // cid_immediate: one of them is used from now on. To use none there would be no message for.
            (0, Some([])) => Ok(()),
            (0, Some(identifier)) => {
                self.theirs = identifier.into();
                Ok(())
            }
            // All are longer than ours to others can be.
            (0, None) if is_any => Err(Alert::IllegalParameter),
            // Spare ones are for whoever chooses to move.
            (0, None) | (1, _) => Ok(()),
            (_, _) => Err(Alert::IllegalParameter),
        }
    }

    /// Changes our keys, and asks the peer to change its own if `request`. Nothing while an update is under way.
    pub(crate) fn update_keys(&mut self, now: Duration, request: bool, out: &mut Vec<u8>) {
        if self.update.is_none() {
            self.start_update(now, request, out);
        }
    }

    fn start_update(&mut self, now: Duration, request: bool, out: &mut Vec<u8>) {
        let mut message = Vec::new();
        wire::put_message(&mut message, message::KEY_UPDATE, self.next_out, &[u8::from(request)]);
        self.next_out += 1;
        let (interval, again_at) = (INTERVAL_FIRST, Some(now + INTERVAL_FIRST));
        let sent = self.write.seal(&self.theirs, Content::Handshake, &message, out).into_iter().collect();
        let (repeats, unheeded, prompted) = (0, 0, false);
        self.update = Some(Box::new(Update { message, sent, interval, again_at, repeats, unheeded, prompted }));
    }

    /// An acknowledgement: of our KeyUpdate, after which the new keys are used.
    ///
    /// # Errors
    /// The alert with which the association ends: it is not well formed.
    pub(crate) fn handle_ack(&mut self, body: &[u8]) -> Result<(), Alert> {
        let mut numbers = ack::numbers(body)?;
        let Some(update) = &self.update else { return Ok(()) };
        if numbers.any(|number| update.sent.contains(&number)) {
            self.write = self.write.next();
            self.update = None;
        }
        Ok(())
    }

    /// Changes keys under which much was sealed or forged, when they are [worn](Session::wear); the message is
    /// appended.
    pub(crate) fn refresh(&mut self, now: Duration, out: &mut Vec<u8>) {
        if self.update.is_some() {
            self.repeat_update(out);
            return;
        }
        self.asked = self.read.forged() >= forged_worn(self.aead);
        self.start_update(now, self.asked, out);
    }

    /// Whether [`Session::refresh`] has something to do, or the association has to end (RFC 9147 §4.5.3): a key is used
    /// up, or the peer speaks and acknowledges no KeyUpdate.
    pub(crate) fn wear(&self) -> Wear {
        let (sent, forged) = (self.write.sent(), self.read.forged());
        let unheeded = self.update.as_ref().map_or(0, |update| update.unheeded);
        if sent >= self.aead.sealed_max() || forged >= self.aead.forged_max() || unheeded > UNHEEDED_MAX {
            return Wear::Spent;
        }
        let worn = match &self.update {
            Some(update) => update.prompted,
            None => self.may_update() && (sent >= SEALED_WORN || forged >= forged_worn(self.aead) && !self.asked),
        };
        if worn { Wear::Worn } else { Wear::Fresh }
    }

    /// When it wants [`Session::resend`].
    pub(crate) fn again_at(&self) -> Option<Duration> {
        self.update.as_ref().and_then(|update| update.again_at)
    }

    /// Says again what was not acknowledged.
    pub(crate) fn resend(&mut self, now: Duration, out: &mut Vec<u8>) {
        self.repeat_update(out);
        if let Some(update) = &mut self.update {
            update.repeats += 1;
            update.interval = (update.interval * 2).min(INTERVAL_LAST);
            update.again_at = (update.repeats < REPEATS_MAX).then_some(now + update.interval);
        }
    }

    fn repeat_update(&mut self, out: &mut Vec<u8>) {
        let Some(update) = &mut self.update else { return };
        let number = self.write.seal(&self.theirs, Content::Handshake, &update.message, out);
        if update.sent.len() < ack::NUMBERS_MAX {
            update.sent.extend(number);
        }
        update.prompted = false;
    }

    /// Lets go of what can be computed again, and of the keys of before once the peer uses the new ones: until then it
    /// may not have heard our acknowledgement, and says again what we must acknowledge again.
    pub(crate) fn rest(&mut self) {
        self.read.rest();
        self.write.rest();
        if self.read.is_unused() {
            self.before.iter_mut().for_each(|before| before.rest());
        } else {
            self.before = None;
        }
    }

    /// As if so many records had been forged.
    #[cfg(test)]
    pub(super) const fn forged_so_far(&mut self, forged: u64) {
        self.read.forge(forged);
    }

    #[cfg(test)]
    pub(super) const fn forged(&self) -> u64 {
        self.read.forged()
    }

    /// As if it were this epoch, and so many records had been sent.
    #[cfg(test)]
    pub(super) const fn sent_so_far(&mut self, epoch: u64, sent: u64) {
        self.write.skip(epoch, sent);
    }

    /// As if these were the next messages.
    #[cfg(test)]
    pub(super) const fn message_numbers(&mut self, next_in: u16, next_out: u16) {
        (self.next_in, self.next_out) = (next_in, next_out);
    }

    /// Of reading and writing.
    #[cfg(test)]
    pub(super) const fn epochs(&self) -> (u64, u64) {
        (self.read.epoch(), self.write.epoch())
    }

    #[cfg(test)]
    pub(crate) const fn is_at_rest(&self) -> bool {
        self.read.is_at_rest() && (self.before.is_none() || self.read.is_unused())
    }
}
