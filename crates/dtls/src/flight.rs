//! A flight (RFC 6347 §4.2.4): kept until the answer comes, cut to the path, sent again.

use std::time::Duration;

use super::{
    limit::RecordLimit,
    wire::{self, ContentType, DTLS_1_2, Fragment, RECORD_HEADER},
};

/// Bytes of a datagram of a handshake: what goes through IPv6 everywhere (RFC 8200 §5) with some room for tunnels.
const DATAGRAM: usize = 1200;

/// RFC 6347 §4.2.4.1: one second at first, doubled, up to a minute.
const INTERVAL_FIRST: Duration = Duration::from_secs(1);
const INTERVAL_LAST: Duration = Duration::from_secs(60);

/// Whole handshake messages, one behind the other.
#[derive(Default)]
pub(super) struct Flight {
    messages: Vec<u8>,
    /// The limit of the peer, if it has announced one.
    limit: Option<RecordLimit>,
    interval: Duration,
    again_at: Option<Duration>,
}

impl Flight {
    pub(super) fn new(messages: Vec<u8>, limit: Option<RecordLimit>) -> Self {
        Self { messages, limit, interval: INTERVAL_FIRST, again_at: None }
    }

    /// Gives the datagrams to `send`, with numbers of epoch 0 that were not used before, and sets the alarm.
    pub(super) fn send(&mut self, now: Duration, record_sequence: &mut u64, send: &mut dyn FnMut(&[u8])) {
        let mut datagram = Vec::with_capacity(DATAGRAM);
        self.cut(record_sequence, &mut datagram, send);
        if !datagram.is_empty() {
            send(&datagram);
        }
        self.set_alarm(now);
    }

    pub(super) fn set_alarm(&mut self, now: Duration) {
        self.again_at = Some(now + self.interval);
    }

    /// The most bytes of a datagram. RFC 8449 §4 limits protected records only, but GnuTLS keeps to its limit in the
    /// clear, too, and reads no more of a datagram than one record of that size.
    pub(super) fn datagram_max(&self) -> usize {
        self.limit.map_or(DATAGRAM, |limit| DATAGRAM.min(RECORD_HEADER + limit.bytes()))
    }

    /// Fills datagrams; the last stays in `datagram`, for what comes behind it.
    pub(super) fn cut(&self, record_sequence: &mut u64, datagram: &mut Vec<u8>, send: &mut dyn FnMut(&[u8])) {
        const HEADERS: usize = RECORD_HEADER + wire::HANDSHAKE_HEADER;
        let bytes_max = self.datagram_max();
        let mut rest = &self.messages[..];
        let mut payload = Vec::new();
        while let Some((message, after)) = Fragment::split(rest) {
            rest = after;
            let mut offset = 0;
            loop {
                let left = message.length - offset;
                // Rather a fresh datagram than a piece of a few bytes.
                if datagram.len() + HEADERS + left.min(64) > bytes_max && !datagram.is_empty() {
                    send(datagram);
                    datagram.clear();
                    continue;
                }
                let take = left.min(bytes_max.saturating_sub(datagram.len() + HEADERS).max(1));
                let piece = message.body.get(offset..offset + take).unwrap_or_default();
                payload.clear();
                wire::put_fragment(&mut payload, message.kind, message.sequence, message.length, offset, piece);
                wire::put_record(datagram, ContentType::Handshake, DTLS_1_2, *record_sequence, &payload);
                *record_sequence += 1;
                offset += take;
                if offset >= message.length {
                    break;
                }
            }
        }
    }

    /// When it goes out again unless something comes.
    pub(super) const fn again_at(&self) -> Option<Duration> {
        self.again_at
    }

    /// The next repeat waits twice as long.
    pub(super) fn slow_down(&mut self) {
        self.interval = (self.interval * 2).min(INTERVAL_LAST);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reassembly::Reassembly;

    proptest! {
        #[test]
        fn what_is_cut_is_whole_again_and_no_datagram_is_too_long(
            lengths in proptest::collection::vec(prop_oneof![0_usize..3000, 1100_usize..1200, Just(0)], 1..4),
            limit in proptest::option::of(prop_oneof![64_u16..1300, any::<u16>().prop_map(|limit| limit.max(64))]),
        ) {
            let limit = limit.map(|limit| RecordLimit::parse(&limit.to_be_bytes()).unwrap());
            let (record_max, datagram_max) = limit.map_or((DATAGRAM, DATAGRAM), |limit| {
                (limit.bytes(), DATAGRAM.min(13 + limit.bytes()))
            });
            let mut messages = Vec::new();
            for (sequence, length) in (0..).zip(&lengths) {
                wire::put_message(&mut messages, 11, sequence, &vec![9; *length]);
            }
            let (mut sequence, mut datagrams) = (3, Vec::new());
            let send = &mut |bytes: &[u8]| datagrams.push(bytes.to_vec());
            Flight::new(messages, limit).send(Duration::ZERO, &mut sequence, send);
            let mut parts = Reassembly::new(0, 20_000);
            for datagram in datagrams {
                prop_assert!(datagram.len() <= datagram_max);
                let mut rest = &datagram[..];
                while let Some((record, after)) = wire::Record::split(rest) {
                    prop_assert!(record.payload.len() <= record_max);
                    parts.push(0, &Fragment::split(record.payload).unwrap().0);
                    rest = after;
                }
            }
            for length in lengths {
                prop_assert_eq!(parts.pop().unwrap().body.len(), length);
            }
        }
    }
}
