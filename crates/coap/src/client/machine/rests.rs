//! States of observations that did not fit into a notification (RFC 7959 §3.4): the rest of each is fetched by requests
//! of its own, a bounded number at a time.

use std::borrow::Cow;

use super::{Machine, Missed};
use crate::block::Block;
use crate::client::ahead::State;
use crate::client::blockwise::Download;
use crate::client::event::{CallFailed, Events, Representation};
use crate::client::exchanges::{Number, Purpose};
use crate::client::protection::Protection;
use crate::client::waiting::Path;
use crate::code::Code;
use crate::encode::Encoder;
use crate::message::{Message, Type};
use crate::option::OptionNumber;
use crate::token::Token;

/// Rests that are fetched at a time for one observation. Further resources wait.
pub(super) const RESTS_MAX: usize = 16;

impl Missed {
    /// A state is not fetched.
    pub(super) fn note(&mut self, location: Path) {
        self.states += 1;
        self.last = location;
    }
}

impl<P: Protection> Machine<P> {
    /// Fetches the rest of a notification by requests of their own, for others come meanwhile (RFC 7959 §3.4). When the
    /// rest of an older one of the same resource is on its way, that is finished first: a state that changes faster
    /// than it can be fetched would never be told otherwise.
    pub(super) fn fetch(
        &mut self,
        observed: Number,
        path: Vec<String>,
        message: &Message<'_>,
        part: Block,
        events: &mut dyn Events,
    ) {
        let older = self.rest(observed, &path).and_then(|number| self.exchanges.get_mut(number));
        if let Some(download) = older.and_then(|older| older.download.as_mut()) {
            (download.superseded, download.notified) = (true, Some(State::of(message)));
            return;
        }
        let Some(observation) = self.observation(observed) else { return };
        let is_full = observation.rests.len() >= RESTS_MAX;
        let mut download = Download::new(part.size, path, message.kind == Type::Confirmable);
        download.notified = Some(State::of(message));
        if is_full {
            // The first block of any state fits.
            let _ = download.take(message, part, usize::MAX);
            self.wait(observed, download);
            return;
        }
        if let Some(number) = self.begin_rest(observed, download) {
            self.take_block(number, message, part, events);
        }
    }

    /// Whether a notification may be older than what was told of its resource, because that was fetched. Then its state
    /// is not told: the resource is fetched again, for as long as older ones may come.
    pub(super) fn is_behind(
        &mut self,
        observed: Number,
        path: &[String],
        message: &Message<'_>,
        events: &mut dyn Events,
    ) -> bool {
        let (now, notified) = (self.now, State::of(message));
        let Some(observation) = self.observation(observed) else { return false };
        let Some(told) = observation.ahead.told(path, now) else { return false };
        let is_full = observation.rests.len() >= RESTS_MAX;
        let under_way = self.rest(observed, path).and_then(|number| self.exchanges.get_mut(number));
        if let Some(download) = under_way.and_then(|exchange| exchange.download.as_mut()) {
            (download.superseded, download.notified) = (true, Some(notified));
        } else if told == notified {
            // Nothing new.
        } else if is_full {
            let mut state = Download::new(self.config.block_size, path.to_vec(), false);
            state.notified = Some(notified);
            self.wait(observed, state);
        } else {
            self.refetch(observed, path.to_vec(), Some(notified), events);
        }
        true
    }

    /// Prepares a request for a state of an observation. `None` when too many are under way: then it is lost like one
    /// that was superseded.
    fn begin_rest(&mut self, observed: Number, download: Download) -> Option<Number> {
        let observing = self.exchanges.get(observed)?;
        let (tag, confirmable) = (observing.tag, observing.confirmable);
        self.scratch.clear();
        if download.location.is_empty() {
            self.scratch.extend_from_slice(&observing.plain);
        } else {
            let kind = if confirmable { Type::Confirmable } else { Type::NonConfirmable };
            let mut encoder = Encoder::new(&mut self.scratch, kind, Code::GET, 0, &Token::EMPTY);
            download.location.iter().for_each(|level| encoder.push(OptionNumber::URI_PATH, level.as_bytes()));
        }
        let Some(number) = self.exchanges.begin() else {
            self.missed.note(download.location);
            return None;
        };
        self.rests += 1;
        if let Some(observation) = self.observation(observed) {
            observation.rests.push(number);
        }
        let exchange = self.exchanges.get_mut(number)?;
        (exchange.tag, exchange.purpose, exchange.confirmable) = (tag, Purpose::Rest(observed), confirmable);
        exchange.download = Some(Box::new(download));
        std::mem::swap(&mut exchange.plain, &mut self.scratch);
        Some(number)
    }

    /// The request for the rest of a notification of this resource.
    fn rest(&self, observed: Number, path: &[String]) -> Option<Number> {
        let observation = self.exchanges.get(observed)?.observation.as_ref()?;
        let is_it = |number: &&Number| {
            let download = self.exchanges.get(**number).and_then(|exchange| exchange.download.as_ref());
            download.is_some_and(|download| download.location == path)
        };
        observation.rests.iter().find(is_it).copied()
    }

    /// A newer state is there: the rest of an older one would come after it.
    pub(super) fn remove_rest(&mut self, observed: Number, path: &[String]) {
        if let Some(number) = self.rest(observed, path) {
            self.remove(number);
        } else if let Some(observation) = self.observation(observed) {
            observation.waiting.remove(path);
        }
    }

    /// Has a state fetched when fewer are on their way. Where too many wait, the oldest is never fetched.
    fn wait(&mut self, observed: Number, state: Download) {
        let Some(observation) = self.observation(observed) else { return };
        let dropped = observation.waiting.push(state);
        if !self.waiting.contains(&observed) {
            self.waiting.push(observed);
        }
        dropped.into_iter().for_each(|path| self.missed.note(path));
    }

    /// Fetches states that wait, as many as may be on their way.
    pub(super) fn next_rests(&mut self, events: &mut dyn Events) {
        let mut at = 0;
        while let Some(observed) = self.waiting.get(at).copied() {
            let Some(observation) = self.observation(observed) else {
                self.waiting.swap_remove(at);
                continue;
            };
            if observation.waiting.is_empty() {
                self.waiting.swap_remove(at);
            } else if observation.rests.len() >= RESTS_MAX {
                at += 1;
            } else if let Some(state) = observation.waiting.pop() {
                self.begin_waiting(observed, state, events);
            }
        }
    }

    /// Asks for the rest of a state that has waited; if there is no room for its first block, for the whole of it.
    fn begin_waiting(&mut self, observed: Number, mut state: Download, events: &mut dyn Events) {
        if self.body_bytes + state.body.len() > self.config.bodies_bytes_max {
            let notified = state.notified;
            state = Download::new(state.next.size, state.location, false);
            state.notified = notified;
        }
        let bytes = state.body.len();
        if let Some(number) = self.begin_rest(observed, state) {
            self.body_bytes += bytes;
            self.send_again(number, None, events);
        }
    }

    /// The rest of a notification is there.
    pub(super) fn complete_rest(
        &mut self,
        number: Number,
        observed: Number,
        message: &Message<'_>,
        body: Cow<'_, [u8]>,
        events: &mut dyn Events,
    ) {
        let now = self.now;
        let location = self.exchanges.get(number).and_then(|rest| Some(&rest.download.as_ref()?.location));
        let location = location.cloned().unwrap_or_default();
        let told = self.observation(observed).and_then(|observation| observation.ahead.told(&location, now));
        // The value of a resource that was fetched before its notifications may be gone as well.
        let is_gone = told.is_some() && message.code == Code::NOT_FOUND;
        if !message.code.is_success() && !is_gone {
            self.give_up(number, observed, CallFailed::Blocks, events);
            return;
        }
        let download = self.take_download(number);
        self.remove(number);
        let Some(download) = download else { return };
        let Download { location, confirmable, superseded, notified, .. } = *download;
        let fetched = State::of(message);
        if let Some(observation) = self.observation(observed).filter(|_| !location.is_empty()) {
            observation.ahead.note(&location, fetched, notified, now);
        }
        let again = superseded.then(|| location.clone());
        if told != Some(fetched) {
            let body = if is_gone { Cow::Borrowed(&[][..]) } else { body };
            let mut message = *message;
            message.code = if is_gone { Code::CONTENT } else { message.code };
            self.report(observed, Representation::joined(message, body, location), confirmable, events);
        }
        if let Some(location) = again {
            self.refetch(observed, location, notified, events);
        }
    }

    /// The rest of a notification cannot be had. An observation that was answered goes on: a state that has changed is
    /// notified again (RFC 7641 §1.3). One that was not has failed.
    pub(super) fn give_up(&mut self, number: Number, observed: Number, reason: CallFailed, events: &mut dyn Events) {
        let download = self.take_download(number);
        self.remove(number);
        let Some(download) = download else { return };
        if download.superseded {
            self.refetch(observed, download.location, download.notified, events);
        } else if self.is_unanswered(observed) {
            self.fail(observed, reason, events);
        } else {
            self.missed.note(download.location);
        }
    }

    /// Asks for the newest state as a whole; `notified` is the state of the newest notification, if that is known.
    fn refetch(&mut self, observed: Number, location: Path, notified: Option<State>, events: &mut dyn Events) {
        if location.is_empty() {
            self.register_again(observed, events);
            return;
        }
        let mut download = Download::new(self.config.block_size, location, false);
        download.notified = notified;
        if let Some(number) = self.begin_rest(observed, download) {
            self.send_again(number, None, events);
        }
    }
}
