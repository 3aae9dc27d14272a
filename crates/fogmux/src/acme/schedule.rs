//! When a certificate is ordered: the first at once, the next at two thirds of its lifetime or when the server says
//! (RFC 9773), and after failures later and later. Reads no clock.

use super::state::{Failure, State};

const MINUTE_S: u64 = 60;
/// Between a certificate and the next order.
const SHORTEST_S: u64 = 10;
const DAY_S: u64 = 86_400;
/// The longest wait that a server may ask for; rate limits are those of a week.
const ASKED_MAX_S: u64 = 8 * DAY_S;
/// RFC 9773 §4.3.3: between a minute and a day.
const ASK_EVERY_S: std::ops::RangeInclusive<u64> = MINUTE_S..=DAY_S;

/// The work that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Order,
    /// The server may have another time for the renewal.
    RenewalInfo,
}

/// A certificate that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) not_before_unix_s: u64,
    pub(super) not_after_unix_s: u64,
    /// Whether it has every name of the configuration.
    pub(super) covers_all: bool,
}

/// The window of a server for a renewal (RFC 9773 §4.2), and when to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) start_unix_s: u64,
    pub(super) end_unix_s: u64,
    pub(super) again_s: u64,
}

/// Decides what to do at a moment at which the clock is believable.
pub(super) fn due(state: &State, held: Option<Held>, now: u64) -> Due {
    // A clock that was in the future when this was written must not delay it for years.
    let waits = |until: u64, longest: u64| until > now && until - now <= longest;
    if waits(state.next_unix_s, DAY_S + DAY_S / 10) || waits(state.asked_unix_s, ASKED_MAX_S) {
        return Due::Nothing;
    }
    let Some(held) = held.filter(|held| held.covers_all) else { return Due::Order };
    if now < held.not_before_unix_s {
        // The clock is in the past.
        return Due::Nothing;
    }
    if now >= renewal(state, held) {
        return Due::Order;
    }
    if state.ask_unix_s != 0 && !waits(state.ask_unix_s, DAY_S) { Due::RenewalInfo } else { Due::Nothing }
}

/// When a certificate is renewed.
pub(super) fn renewal(state: &State, held: Held) -> u64 {
    let Held { not_before_unix_s: begin, not_after_unix_s: end, .. } = held;
    let usual = begin + end.saturating_sub(begin) / 3 * 2;
    // That of another certificate is outside of this one's dates.
    if (begin..=end).contains(&state.renew_unix_s) { state.renew_unix_s } else { usual }
}

/// Notes that a certificate was issued.
pub(super) fn succeed(state: &mut State, held: Held, window: Option<Window>, now: u64, random: u64) {
    // Some servers date certificates back.
    let left = held.not_after_unix_s.saturating_sub(now.max(held.not_before_unix_s));
    let usual = held.not_after_unix_s.saturating_sub(left / 3);
    *state = State {
        subject: std::mem::take(&mut state.subject),
        // The server is not asked in a loop, whatever it says next, and however short its certificates are.
        next_unix_s: now + MINUTE_S.min((left / 2).max(SHORTEST_S)),
        renew_unix_s: usual + random % (left / 20 + 1),
        ..State::default()
    };
    plan(state, held, window, now, random);
}

/// Chooses a moment of the server's window, if it has a sensible one, and when to ask again.
pub(super) fn plan(state: &mut State, held: Held, window: Option<Window>, now: u64, random: u64) {
    let Some(Window { start_unix_s: start, end_unix_s: end, again_s }) = window else {
        // One that had windows may have failed to answer.
        state.ask_unix_s = if state.ask_unix_s == 0 { 0 } else { now + DAY_S };
        return;
    };
    state.ask_unix_s = now + again_s.clamp(*ASK_EVERY_S.start(), *ASK_EVERY_S.end());
    // RFC 9773 §4.2: one that ends before it begins is none. One beyond the certificate would let it expire.
    let is_sensible = start < end && end <= held.not_after_unix_s && end > held.not_before_unix_s;
    let is_new = !(start..=end).contains(&state.renew_unix_s);
    if is_sensible && is_new {
        state.renew_unix_s = (start + random % (end - start)).max(held.not_before_unix_s);
    }
}

/// Notes that an order begins. If the gateway ends before it does, the next start waits as if it had failed: one that
/// is restarted again and again would use up what the server allows.
pub(super) fn begin(state: &mut State, now: u64, random: u64) {
    state.begun = state.begun.saturating_add(1);
    state.next_unix_s = now + wait_behind(state.begun, random);
}

/// The wait behind so many attempts without success.
fn wait_behind(attempts: u32, random: u64) -> u64 {
    let doublings = attempts.saturating_sub(1);
    let wait = MINUTE_S.checked_shl(doublings).filter(|wait| wait >> doublings == MINUTE_S);
    let wait = wait.unwrap_or(DAY_S).min(DAY_S);
    wait + random % (wait / 10 + 1)
}

/// Notes that an attempt failed: the next is a minute later, then two, up to a day, or when the server says.
pub(super) fn fail(state: &mut State, failure: Failure, asked_unix_s: Option<u64>, now: u64, random: u64) {
    state.failures = state.failures.saturating_add(1);
    state.begun = state.begun.max(state.failures);
    state.next_unix_s = now + wait_behind(state.begun, random);
    state.asked_unix_s = asked_unix_s.unwrap_or(0).min(now + ASKED_MAX_S);
    state.last_failure = Some(failure);
}

/// Has the next attempt made at once, unless the server has asked to wait.
pub(super) fn retry(state: &mut State) {
    state.next_unix_s = 0;
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const HELD: Held = Held { not_before_unix_s: NOW, not_after_unix_s: NOW + 90 * DAY_S, covers_all: true };

    fn failure() -> Failure {
        Failure { unix_s: NOW, reason: "why".into(), problem: None }
    }

    #[test]
    fn the_first_is_ordered_at_once_and_the_next_at_two_thirds_of_the_lifetime() {
        let mut state = State::default();
        assert_eq!(due(&state, None, NOW), Due::Order);
        assert_eq!(due(&state, Some(HELD), NOW), Due::Nothing);
        assert_eq!(due(&state, Some(Held { covers_all: false, ..HELD }), NOW), Due::Order, "a new name");
        assert_eq!(due(&state, Some(HELD), NOW + 60 * DAY_S - 1), Due::Nothing);
        assert_eq!(due(&state, Some(HELD), NOW + 60 * DAY_S), Due::Order);
        assert_eq!(due(&state, Some(HELD), NOW - 1), Due::Nothing, "a clock in the past");
        for random in [0, 1, 7 * DAY_S, u64::MAX] {
            succeed(&mut state, HELD, None, NOW, random);
            assert!((60..=65).contains(&((state.renew_unix_s - NOW) / DAY_S)), "{state:?}");
            assert_eq!(due(&state, None, NOW), Due::Nothing, "no loop");
            assert_eq!(due(&state, Some(HELD), state.renew_unix_s - 1), Due::Nothing);
            assert_eq!(due(&state, Some(HELD), state.renew_unix_s), Due::Order);
        }
        // Dated back by most of its lifetime, and short.
        let held = Held { not_before_unix_s: NOW - 80, not_after_unix_s: NOW + 20, covers_all: true };
        succeed(&mut state, held, None, NOW, 0);
        assert_eq!((due(&state, Some(held), NOW + 9), due(&state, Some(held), NOW + 14)), (Due::Nothing, Due::Order));
        let expired = Held { not_after_unix_s: NOW - 1, ..held };
        succeed(&mut state, expired, None, NOW, u64::MAX);
        assert_eq!(due(&state, Some(expired), NOW + SHORTEST_S - 1), Due::Nothing, "no loop");
    }

    #[test]
    fn failures_wait_from_a_minute_to_a_day_and_for_what_the_server_asks() {
        let mut state = State::default();
        let mut waits = Vec::new();
        for _ in 0..80 {
            fail(&mut state, failure(), None, NOW, 0);
            waits.push((state.next_unix_s - NOW) / 60);
            assert_eq!(due(&state, None, state.next_unix_s - 1), Due::Nothing);
            assert_eq!(due(&state, None, state.next_unix_s), Due::Order);
        }
        assert_eq!(waits[..12], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1440]);
        assert_eq!(waits[79], 1440);
        fail(&mut state, failure(), None, NOW, u64::MAX);
        assert!(state.next_unix_s <= NOW + DAY_S + DAY_S / 10);
        assert_eq!(due(&state, None, NOW - 3 * DAY_S), Due::Order, "the clock was in the future");
        retry(&mut state);
        assert_eq!(due(&state, None, NOW), Due::Order);
        fail(&mut state, failure(), Some(NOW + 2 * DAY_S), NOW, 0);
        retry(&mut state);
        assert_eq!(due(&state, None, NOW + 2 * DAY_S - 1), Due::Nothing, "nobody is asked before that");
        assert_eq!(due(&state, None, NOW + 2 * DAY_S), Due::Order);
        fail(&mut state, failure(), Some(u64::MAX), NOW, 0);
        assert_eq!(due(&state, None, NOW + 9 * DAY_S), Due::Order);
        succeed(&mut state, HELD, None, NOW, 0);
        assert_eq!((state.failures, &state.last_failure, state.asked_unix_s), (0, &None, 0));
    }

    #[test]
    fn an_order_that_is_cut_off_counts_at_the_next_start() {
        let mut state = State::default();
        for wait in [1, 2, 4, 8] {
            begin(&mut state, NOW, 0);
            assert_eq!(due(&state, None, NOW + wait * 60 - 1), Due::Nothing, "the start after {wait} minutes");
            assert_eq!(due(&state, None, NOW + wait * 60), Due::Order);
        }
        fail(&mut state, failure(), None, NOW, 0);
        assert_eq!((state.next_unix_s - NOW, state.failures), (8 * 60, 1), "the attempt counts once");
        succeed(&mut state, HELD, None, NOW, 0);
        assert_eq!(state.begun, 0);
    }

    #[test]
    fn a_window_of_the_server_is_kept_to_if_it_is_within_the_dates() {
        let window = |start, end| Some(Window { start_unix_s: start, end_unix_s: end, again_s: 6 * 3600 });
        let mut state = State::default();
        succeed(&mut state, HELD, window(NOW + 10 * DAY_S, NOW + 12 * DAY_S), NOW, 5 * DAY_S);
        assert_eq!(state.renew_unix_s, NOW + 11 * DAY_S);
        assert_eq!(due(&state, Some(HELD), NOW + 6 * 3600 - 1), Due::Nothing);
        assert_eq!(due(&state, Some(HELD), NOW + 6 * 3600), Due::RenewalInfo);
        plan(&mut state, HELD, window(NOW + 10 * DAY_S, NOW + 12 * DAY_S), NOW + DAY_S, 0);
        assert_eq!(state.renew_unix_s, NOW + 11 * DAY_S, "the moment that was chosen stays");
        plan(&mut state, HELD, window(NOW - DAY_S, NOW + 1), NOW + DAY_S, 0);
        assert_eq!(due(&state, Some(HELD), NOW + DAY_S), Due::Order, "it has been revoked");
        for (start, end) in [(NOW + 80 * DAY_S, NOW + 91 * DAY_S), (NOW + 9, NOW + 9), (NOW - 9, NOW - 1)] {
            succeed(&mut state, HELD, window(start, end), NOW, 0);
            assert_eq!(state.renew_unix_s, NOW + 60 * DAY_S, "{start} {end}");
        }
        plan(&mut state, HELD, None, NOW, 0);
        assert_eq!(due(&state, Some(HELD), NOW + DAY_S - 1), Due::Nothing, "it has not answered");
        assert_eq!(due(&state, Some(HELD), NOW + DAY_S), Due::RenewalInfo);
        succeed(&mut state, HELD, None, NOW, 0);
        plan(&mut state, HELD, None, NOW, 0);
        assert_eq!(due(&state, Some(HELD), NOW + DAY_S), Due::Nothing, "the server has no windows");
    }
}
