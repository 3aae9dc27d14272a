//! A session of DTLS 1.3 with a server.

use fogmux_dtls::client::ClientEvent;

use crate::{
    case::{
        Back::{Accepted, Closed, Ignored, Over},
        DECODE_ERROR, ILLEGAL_PARAMETER, UNEXPECTED_MESSAGE, cases,
    },
    peer::{
        server_13::{Server13, ack},
        wire::{
            self, ACK, ALERT, CHANGE_CIPHER_SPEC, DATA, HANDSHAKE,
            kind::{
                CERTIFICATE, CERTIFICATE_REQUEST, CLIENT_HELLO, FINISHED, HELLO_REQUEST, KEY_UPDATE, NEW_CONNECTION_ID,
                NEW_SESSION_TICKET, REQUEST_CONNECTION_ID, SERVER_HELLO,
            },
            vec8, vec16,
        },
    },
};

/// A record under the keys with a change of its bytes.
fn bent(enemy: &mut Server13, bend: fn(&mut Vec<u8>)) {
    enemy.session();
    let mut datagram = enemy.seal(3, DATA, b"data");
    bend(&mut datagram);
    silently(enemy, &datagram);
}

/// A datagram of which those above hear nothing.
fn silently(enemy: &mut Server13, datagram: &[u8]) {
    let before = enemy.guest.said.len();
    enemy.raw(datagram);
    assert_eq!(enemy.guest.said.len(), before, "{:?}", enemy.guest.said);
}

fn say(enemy: &mut Server13, kind: u8, body: &[u8]) {
    enemy.session();
    enemy.say(3, kind, body);
}

fn send(enemy: &mut Server13, content: u8, plain: &[u8]) {
    enemy.session();
    enemy.send(3, content, plain);
}

/// NewConnectionId: identifiers, and their use.
fn identifiers(list: &[&[u8]], usage: u8) -> Vec<u8> {
    let list: Vec<u8> = list.iter().flat_map(|cid| vec8(cid)).collect();
    [&vec16(&list)[..], &[usage]].concat()
}

cases! {
    record_repeated: "9147 §4.5.1", "a record twice", Ignored,
        Server13::psk(), |e| { e.session(); let d = e.seal(3, DATA, b"once"); e.raw(&d); silently(e, &d); };
    record_too_old: "9147 §4.5.1", "a record 64 behind the newest", Ignored,
        Server13::psk(), |e| {
            e.session();
            let old = e.seal(3, DATA, b"old");
            e.half(3).next += 63;
            e.send(3, DATA, b"newest");
            silently(e, &old);
        };
    record_far_ahead: "9147 §4.2.2", "a record whose number cannot be told: 40 000 ahead of the newest", Ignored,
        Server13::psk(), |e| {
            e.session();
            e.half(3).next += 30_000;
            e.send(3, DATA, b"newest");
            e.half(3).next += 40_000;
            let datagram = e.seal(3, DATA, b"data");
            e.half(3).next -= 40_001;
            silently(e, &datagram);
        };
    record_forged: "9147 §4.5.2", "a record with a bit changed", Ignored,
        Server13::psk(), |e| bent(e, |datagram| *datagram.last_mut().unwrap() ^= 1);
    record_of_another_epoch: "9147 §4.2.2", "a record with the bits of another epoch", Ignored,
        Server13::psk(), |e| bent(e, |datagram| datagram[0] ^= 1);
    record_cut_off: "9147 §4.5.2", "a record longer than its datagram", Ignored,
        Server13::psk(), |e| bent(e, |datagram| { datagram.pop(); });
    record_of_a_few_bytes: "9147 §4.2.3", "a record of less than 16 bytes", Ignored,
        Server13::psk(), |e| { e.session(); silently(e, &[0b0010_1111, 0, 0, 0, 5, 1, 2, 3, 4, 5]); };
    record_too_long: "8446 §5.4", "a record that holds 2^14 + 2 bytes", Ignored,
        Server13::psk(), |e| { e.session(); let d = e.seal(3, DATA, &vec![7; (1 << 14) + 1]); silently(e, &d); };
    record_above_our_limit: "8449 §4", "the same where both have announced a limit", Ignored,
        Server13::psk(), |e| {
            e.announce(64).session();
            let datagram = e.seal(3, DATA, &vec![7; (1 << 14) + 1]);
            silently(e, &datagram);
        };
    record_padded_above_our_limit: "8449 §4", "four bytes, and padding above that", Ignored,
        Server13::psk(), |e| {
            e.announce(64).session();
            let before = e.guest.said.len();
            e.send_inner(3, &[&b"data\x17"[..], &[0; 1 << 14]].concat());
            assert_eq!(e.guest.said.len(), before);
        };
    record_of_our_limit: "8449 §4", "a record that holds 2^14 + 1 bytes", Accepted,
        Server13::psk(), |e| {
            e.announce(64).session();
            let data = vec![7; 1 << 14];
            e.send(3, DATA, &data);
            assert_eq!(e.guest.said.last(), Some(&ClientEvent::Data(data)));
        };
    data_without_content: "8446 §5.4", "data of zero bytes", Accepted,
        Server13::psk(), |e| send(e, DATA, b"");
    data_padded: "8446 §5.4", "data with zeros behind its type", Accepted,
        Server13::psk(), |e| { e.session(); e.send_inner(3, b"data\x17\0\0\0\0"); };
    data_under_keys_of_handshake: "9147 §6.1", "data in epoch 2", Ignored,
        Server13::psk(), |e| { e.session(); let d = e.seal(2, DATA, b"data"); silently(e, &d); };
    handshake_without_content: "8446 §5.4", "a handshake record that holds nothing", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| send(e, HANDSHAKE, b"");
    alert_without_content: "8446 §5.4", "an alert record that holds nothing", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| send(e, ALERT, b"");
    inner_of_zeros: "8446 §5.4", "a record that holds zeros and no type", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| { e.session(); e.send_inner(3, &[0; 20]); };
    inner_type_unknown: "8446 §5", "a record of an unknown type inside", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| send(e, 99, b"data");
    change_cipher_under_keys: "8446 §5", "ChangeCipherSpec under the keys", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| send(e, CHANGE_CIPHER_SPEC, &[1]);
    in_the_clear: "9147 §4.5.2", "handshake, alert, acknowledgement and data in the clear", Ignored,
        Server13::psk(), |e| {
            e.session();
            let update = wire::message(KEY_UPDATE, e.next, &[0]);
            for (content, payload) in [(HANDSHAKE, &update[..]), (ALERT, &[2, 40]), (ACK, &[0, 0]), (DATA, b"data")] {
                e.clear(content, payload);
            }
        };
    alert_close_notify: "8446 §6.1", "`close_notify`, which is answered", Closed,
        Server13::psk(), |e| send(e, ALERT, &[1, 0]);
    alert_fatal: "8446 §6.2", "a fatal alert", Over,
        Server13::psk(), |e| send(e, ALERT, &[2, 40]);
    alert_fatal_by_its_name: "8446 §6", "`handshake_failure` that calls itself a warning", Over,
        Server13::psk(), |e| send(e, ALERT, &[1, 40]);
    alert_unknown: "8446 §6.2", "an alert of number 99", Over,
        Server13::psk(), |e| send(e, ALERT, &[1, 99]);
    alert_user_canceled: "8446 §6.1", "`user_canceled`", Ignored,
        Server13::psk(), |e| send(e, ALERT, &[1, 90]);
    alert_short: "8446 §6.2", "an alert of one byte", DECODE_ERROR,
        Server13::psk(), |e| send(e, ALERT, &[2]);
    alert_long: "8446 §6.2", "an alert of three bytes", DECODE_ERROR,
        Server13::psk(), |e| send(e, ALERT, &[1, 0, 0]);
    key_update: "9147 §8", "KeyUpdate, and data under the new keys", Accepted,
        Server13::psk(), |e| { e.session(); e.key_update(&[0]); e.next_keys(); };
    key_update_and_limit: "8449 §4", "KeyUpdate that asks for ours, and a limit of 64: it holds for new keys", Accepted,
        Server13::psk(), |e| {
            e.announce(64).session();
            e.key_update(&[1]);
            e.next_keys();
            e.acknowledge();
            e.gets_at_most(63);
        };
    key_update_unknown: "8446 §4.6.3", "`request_update` 2", ILLEGAL_PARAMETER,
        Server13::psk(), |e| say(e, KEY_UPDATE, &[2]);
    key_update_empty: "8446 §4.6.3", "KeyUpdate of zero bytes", DECODE_ERROR,
        Server13::psk(), |e| say(e, KEY_UPDATE, &[]);
    key_update_long: "8446 §4.6.3", "KeyUpdate of two bytes", DECODE_ERROR,
        Server13::psk(), |e| say(e, KEY_UPDATE, &[0, 0]);
    key_update_twice: "9147 §8", "a second KeyUpdate under the old keys", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| { say(e, KEY_UPDATE, &[0]); e.say(3, KEY_UPDATE, &[0]); };
    key_update_twice_in_a_record: "8446 §5.1", "two KeyUpdates in one record", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| {
            e.session();
            let both = [wire::message(KEY_UPDATE, e.next, &[0]), wire::message(KEY_UPDATE, e.next + 1, &[0])].concat();
            e.send(3, HANDSHAKE, &both);
        };
    key_update_under_keys_of_handshake: "9147 §8", "KeyUpdate in epoch 2", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| { e.session(); e.say(2, KEY_UPDATE, &[0]); };
    key_update_repeated: "9147 §8", "KeyUpdate once more: it is acknowledged again, the keys stay", Accepted,
        Server13::psk(), |e| {
            say(e, KEY_UPDATE, &[0]);
            e.next -= 1;
            e.say(3, KEY_UPDATE, &[0]);
            e.next_keys();
        };
    key_update_not_announced: "9147 §8", "data under keys that were not announced", Ignored,
        Server13::psk(), |e| {
            e.session();
            let datagram = e.half(3).updated().seal(&[], DATA, b"data");
            silently(e, &datagram);
        };
    message_skipped: "9147 §5.2", "a gap in `message_seq`", Ignored,
        Server13::psk(), |e| {
            e.session();
            let m = wire::message(KEY_UPDATE, e.next + 1, &[0]);
            e.send(3, HANDSHAKE, &m);
        };
    message_and_garbage: "8446 §6.2", "three bytes instead of a message", DECODE_ERROR,
        Server13::psk(), |e| send(e, HANDSHAKE, &[1, 2, 3]);
    message_cut_off: "8446 §6.2", "a fragment shorter than it says", DECODE_ERROR,
        Server13::psk(), |e| {
            e.session();
            let mut message = wire::message(KEY_UPDATE, e.next, &[0]);
            message.pop();
            e.send(3, HANDSHAKE, &message);
        };
    client_hello: "8446 §4.1.2", "ClientHello by a server", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| say(e, CLIENT_HELLO, &[0]);
    server_hello: "8446 §4.1.3", "ServerHello for a renegotiation", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| { let body = e.hello.encode(); say(e, SERVER_HELLO, &body); };
    hello_request: "8446 §4", "HelloRequest", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| say(e, HELLO_REQUEST, &[]);
    finished: "8446 §4.4.4", "a second Finished", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| say(e, FINISHED, &[0; 32]);
    certificate: "8446 §4.6.2", "Certificate after the handshake", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| say(e, CERTIFICATE, &[0; 4]);
    certificate_request: "8446 §4.6.2", "CertificateRequest after the handshake", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| say(e, CERTIFICATE_REQUEST, &[0; 3]);
    ticket: "8446 §4.6.1", "NewSessionTicket: it is acknowledged, and nothing more", Accepted,
        Server13::psk(), |e| say(e, NEW_SESSION_TICKET, &[0; 13]);
    message_unknown: "8446 §4", "a message of type 99", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| say(e, 99, &[]);
    ack_of_nothing: "9147 §7", "an acknowledgement of records that were never sent", Ignored,
        Server13::psk(), |e| send(e, ACK, &ack(&[(3, 4711), (u64::MAX, u64::MAX)]));
    ack_of_no_record: "9147 §7", "an acknowledgement of no record", Ignored,
        Server13::psk(), |e| send(e, ACK, &ack(&[]));
    ack_cut_off: "9147 §7", "an acknowledgement cut off", DECODE_ERROR,
        Server13::psk(), |e| send(e, ACK, &[0, 16, 1, 2]);
    ack_of_half_a_record: "9147 §7", "an acknowledgement of 24 bytes", DECODE_ERROR,
        Server13::psk(), |e| send(e, ACK, &vec16(&[0; 24]));
    identifier_not_agreed_on: "9147 §9", "a record with an identifier where there is none", Ignored,
        Server13::psk(), |e| {
            e.session();
            e.cid = vec![7; 8];
            let datagram = e.seal(3, DATA, b"data");
            e.cid.clear();
            silently(e, &datagram);
        };
    identifier_unknown: "9147 §9", "a record with another identifier than ours", Ignored,
        Server13::identified(), |e| {
            e.session();
            e.cid[7] ^= 1;
            let datagram = e.seal(3, DATA, b"data");
            e.cid[7] ^= 1;
            silently(e, &datagram);
        };
    identifiers_not_agreed_on: "9147 §9", "NewConnectionId without identifiers", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| say(e, NEW_CONNECTION_ID, &identifiers(&[b"new"], 0));
    identifiers_asked_for: "9147 §9", "RequestConnectionId without identifiers", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| say(e, REQUEST_CONNECTION_ID, &[1]);
    identifiers_new: "9147 §9", "NewConnectionId for later", Accepted,
        Server13::identified(), |e| say(e, NEW_CONNECTION_ID, &identifiers(&[b"new"], 1));
    identifiers_none: "9147 §9", "NewConnectionId without any", Accepted,
        Server13::identified(), |e| say(e, NEW_CONNECTION_ID, &identifiers(&[], 0));
    identifiers_of_unknown_use: "9147 §9", "NewConnectionId of use 7", ILLEGAL_PARAMETER,
        Server13::identified(), |e| say(e, NEW_CONNECTION_ID, &identifiers(&[b"new"], 7));
    identifiers_cut_off: "9147 §9", "NewConnectionId cut off", DECODE_ERROR,
        Server13::identified(), |e| say(e, NEW_CONNECTION_ID, &[0, 9, 3, 1]);
    identifiers_too_long: "9147 §9", "NewConnectionId with 33 bytes for now", ILLEGAL_PARAMETER,
        Server13::identified(), |e| say(e, NEW_CONNECTION_ID, &identifiers(&[&[1; 33]], 0));
    identifiers_one_too_long: "9147 §9", "NewConnectionId with 33 bytes, or others, for now", Accepted,
        Server13::identified(), |e| { say(e, NEW_CONNECTION_ID, &identifiers(&[&[1; 33], b"new"], 0)); };
    identifiers_asked_for_by_two_bytes: "9147 §9", "RequestConnectionId of two bytes", DECODE_ERROR,
        Server13::identified(), |e| say(e, REQUEST_CONNECTION_ID, &[1, 1]);
    identifiers_of_another_length: "9147 §9", "NewConnectionId whose second is cut off", DECODE_ERROR,
        Server13::identified(), |e| say(e, NEW_CONNECTION_ID, &[0, 5, 2, 1, 1, 9, 9, 1]);
}
