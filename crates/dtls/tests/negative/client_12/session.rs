//! A session of DTLS 1.2 with a server.

use fogmux_dtls::client::ClientEvent;

use crate::{
    case::{
        Back::{Accepted, Closed, Ignored, Over, Warning},
        DECODE_ERROR, UNEXPECTED_MESSAGE, cases,
    },
    peer::{
        server_12::Server12,
        wire::{
            self, ALERT, CHANGE_CIPHER_SPEC, DATA, Extensions as _, HANDSHAKE,
            kind::{FINISHED, HELLO_REQUEST, SERVER_HELLO},
            number,
        },
    },
};

/// A record under the keys with a change of its bytes.
fn bent(enemy: &mut Server12, bend: fn(&mut Vec<u8>)) {
    enemy.session();
    let mut datagram = enemy.seal(DATA, b"data");
    bend(&mut datagram);
    silently(enemy, &datagram);
}

/// A datagram of which those above hear nothing.
fn silently(enemy: &mut Server12, datagram: &[u8]) {
    let before = enemy.guest.said.len();
    enemy.raw(datagram);
    assert_eq!(enemy.guest.said.len(), before, "{:?}", enemy.guest.said);
}

fn send(enemy: &mut Server12, content: u8, plain: &[u8]) {
    enemy.session();
    enemy.send(content, plain);
}

cases! {
    record_repeated: "6347 §4.1.2.6", "a record twice", Ignored,
        Server12::psk(), |e| { e.session(); let d = e.seal(DATA, b"once"); e.raw(&d); silently(e, &d); };
    record_too_old: "6347 §4.1.2.6", "a record 64 behind the newest", Ignored,
        Server12::psk(), |e| {
            e.session();
            e.sealed += 100;
            e.send(DATA, b"newest");
            let datagram = e.seal_at(DATA, number(1, e.sealed - 65), b"old");
            silently(e, &datagram);
        };
    record_forged: "6347 §4.1.2.7", "a record with a bit changed", Ignored,
        Server12::psk(), |e| bent(e, |datagram| *datagram.last_mut().unwrap() ^= 1);
    record_of_another_type: "6347 §4.1.2.1", "a record with another type", Ignored,
        Server12::psk(), |e| bent(e, |datagram| datagram[0] = ALERT);
    record_of_another_version: "6347 §4.1", "a record of DTLS 1.0", Ignored,
        Server12::psk(), |e| bent(e, |datagram| datagram[2] = 0xff);
    record_cut_off: "6347 §4.1.2.7", "a record longer than its datagram", Ignored,
        Server12::psk(), |e| bent(e, |datagram| { datagram.pop(); });
    record_of_other_epochs: "6347 §4.1", "records in epochs 0, 2 and 65535", Ignored,
        Server12::psk(), |e| {
            e.session();
            for epoch in [0, 2, u16::MAX] {
                let datagram = e.seal_at(DATA, number(epoch, 9), b"data");
                silently(e, &datagram);
            }
        };
    record_too_long: "5246 §6.2.3", "a record that holds 2^14 + 1 bytes", Ignored,
        Server12::psk(), |e| { e.session(); let d = e.seal(DATA, &vec![0; (1 << 14) + 1]); silently(e, &d); };
    record_above_our_limit: "8449 §4", "the same where we have announced 2^14", Ignored,
        Server12::psk(), |e| {
            e.hello.limit(64);
            e.session();
            let datagram = e.seal(DATA, &vec![0; (1 << 14) + 1]);
            silently(e, &datagram);
        };
    record_above_the_limit_of_1_2: "8449 §4", "the same where we have offered both versions, and 2^14 + 1", Ignored,
        Server12::both(), |e| {
            e.hello.limit(64);
            e.session();
            let datagram = e.seal(DATA, &vec![0; (1 << 14) + 1]);
            silently(e, &datagram);
        };
    record_of_our_limit: "8449 §4", "a record that holds 2^14 bytes", Accepted,
        Server12::psk(), |e| {
            e.hello.limit(64);
            let data = vec![0; 1 << 14];
            send(e, DATA, &data);
            assert_eq!(e.guest.said.last(), Some(&ClientEvent::Data(data)));
        };
    record_without_content: "6347 §4.1.2.7", "a record of zero bytes", Ignored,
        Server12::psk(), |e| { e.session(); silently(e, &wire::record(DATA, number(1, 50), &[])); };
    data_without_content: "5246 §6.2.1", "data of zero bytes", Accepted,
        Server12::psk(), |e| send(e, DATA, b"");
    handshake_without_content: "5246 §6.2.1", "a handshake record that holds nothing", DECODE_ERROR,
        Server12::psk(), |e| send(e, HANDSHAKE, b"");
    hello_request: "5246 §7.4.1.1", "HelloRequest for a renegotiation", Warning(100),
        Server12::psk(), |e| { e.session(); let m = wire::message(HELLO_REQUEST, 0, &[]); e.send(HANDSHAKE, &m); };
    server_hello: "5246 §7.3", "ServerHello under the keys", UNEXPECTED_MESSAGE,
        Server12::psk(), |e| { e.session(); e.say_in(SERVER_HELLO, &[], 1); };
    finished_again: "6347 §4.2.4", "Finished once more, as when it is repeated", Ignored,
        Server12::psk(), |e| { e.session(); e.say_in(FINISHED, &[0; 12], 1); };
    change_cipher_under_keys: "5246 §7.1", "ChangeCipherSpec under the keys", UNEXPECTED_MESSAGE,
        Server12::psk(), |e| send(e, CHANGE_CIPHER_SPEC, &[1]);
    in_the_clear: "6347 §4.1.2.7", "handshake, alert, ChangeCipherSpec and data in the clear", Ignored,
        Server12::psk(), |e| {
            e.session();
            let message = wire::message(HELLO_REQUEST, 0, &[]);
            let records = [(HANDSHAKE, &message[..]), (ALERT, &[2, 40]), (CHANGE_CIPHER_SPEC, &[1]), (DATA, b"a")];
            for (content, payload) in records {
                let datagram = e.clear(content, payload);
                silently(e, &datagram);
            }
        };
    alert_close_notify: "5246 §7.2.1", "`close_notify`, which is answered", Closed,
        Server12::psk(), |e| send(e, ALERT, &[1, 0]);
    alert_fatal: "5246 §7.2.2", "a fatal alert", Over,
        Server12::psk(), |e| send(e, ALERT, &[2, 40]);
    alert_fatal_unknown: "5246 §7.2.2", "a fatal alert of number 99", Over,
        Server12::psk(), |e| send(e, ALERT, &[2, 99]);
    alert_warning: "5246 §7.2.2", "warnings: `user_canceled`, and of number 99", Ignored,
        Server12::psk(), |e| { send(e, ALERT, &[1, 90]); e.send(ALERT, &[1, 99]); };
    alert_short: "5246 §7.2", "an alert of one byte", DECODE_ERROR,
        Server12::psk(), |e| send(e, ALERT, &[2]);
    alert_long: "5246 §7.2", "an alert of three bytes", DECODE_ERROR,
        Server12::psk(), |e| send(e, ALERT, &[1, 0, 0]);
    identifier_missing: "9146 §3", "a record without the identifier that was agreed on", Ignored,
        Server12::identified(), |e| {
            e.session();
            let cid = std::mem::take(&mut e.cid);
            let datagram = e.seal(DATA, b"data");
            e.cid = cid;
            silently(e, &datagram);
        };
    identifier_unknown: "9146 §3", "a record with another identifier than ours", Ignored,
        Server12::identified(), |e| {
            e.session();
            e.cid[7] ^= 1;
            let datagram = e.seal(DATA, b"data");
            e.cid[7] ^= 1;
            silently(e, &datagram);
        };
    inner_of_zeros: "9146 §4", "a record that holds zeros and no type", Ignored,
        Server12::identified(), |e| inner(e, &[0; 20]);
    inner_type_unknown: "9146 §4", "a record of an unknown type inside", Ignored,
        Server12::identified(), |e| inner(e, b"data\x63");
    identifier_not_agreed_on: "9146 §3", "a record with an identifier where there is none", Ignored,
        Server12::psk(), |e| {
            e.session();
            e.cid = vec![7; 8];
            let datagram = e.seal(DATA, b"data");
            e.cid.clear();
            silently(e, &datagram);
        };
}

/// A record with all that is inside given.
fn inner(enemy: &mut Server12, inner: &[u8]) {
    enemy.session();
    let (_, write) = enemy.keys.as_ref().unwrap();
    let datagram = write.seal_identified(&enemy.cid, number(1, enemy.sealed), inner);
    enemy.sealed += 1;
    silently(enemy, &datagram);
}
