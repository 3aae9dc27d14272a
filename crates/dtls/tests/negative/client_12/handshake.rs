//! A server's flights in DTLS 1.2, behind the ServerHello.

use crate::{
    case::{
        BAD_CERTIFICATE,
        Back::{Accepted, Ignored, Over, Stuck},
        DECODE_ERROR, DECRYPT_ERROR, ILLEGAL_PARAMETER, UNEXPECTED_MESSAGE, UNKNOWN_CA, cases,
    },
    peer::{
        pki::PKI,
        server_12::Server12,
        wire::{
            self, ALERT, CHANGE_CIPHER_SPEC, DATA, HANDSHAKE,
            kind::{
                CERTIFICATE, CERTIFICATE_REQUEST, CHANGE_CIPHER, CLIENT_KEY_EXCHANGE, FINISHED, HELLO_REQUEST,
                NEW_SESSION_TICKET, SERVER_HELLO, SERVER_HELLO_DONE, SERVER_KEY_EXCHANGE,
            },
            number, vec8, vec16, vec24,
        },
    },
};

/// Where the scheme of a ServerKeyExchange is: behind curve type, group, and a key of 32 bytes with its length.
const SCHEME: usize = 1 + 2 + 1 + 32;

cases! {
    server_hello_missing: "5246 §7.3", "no ServerHello", UNEXPECTED_MESSAGE,
        Server12::psk(), |e| { e.skip(SERVER_HELLO).shake(); };
    server_hello_twice: "5246 §7.3", "ServerHello twice", UNEXPECTED_MESSAGE,
        Server12::psk(), |e| { e.twice(SERVER_HELLO).shake(); };
    certificate_missing: "5246 §7.4.2", "no Certificate", UNEXPECTED_MESSAGE,
        Server12::certificate(), |e| { e.skip(CERTIFICATE).shake(); };
    certificate_twice: "5246 §7.3", "Certificate twice", UNEXPECTED_MESSAGE,
        Server12::certificate(), |e| { e.twice(CERTIFICATE).shake(); };
    certificate_with_a_key: "4279 §2", "Certificate with a pre-shared key", UNEXPECTED_MESSAGE,
        Server12::psk(), |e| { e.before(SERVER_HELLO_DONE, CERTIFICATE).shake(); };
    certificate_list_empty: "5246 §7.4.2", "empty certificate list", BAD_CERTIFICATE,
        Server12::certificate(), |e| { e.edit(CERTIFICATE, |b| *b = vec![0; 3]).shake(); };
    certificate_list_too_long: "5246 §7.4.2", "certificate list longer than its message", DECODE_ERROR,
        Server12::certificate(), |e| { e.edit(CERTIFICATE, |b| b[2] ^= 1).shake(); };
    certificate_of_a_stranger: "5246 §7.4.2", "certificate of an unknown authority", UNKNOWN_CA,
        Server12::certificate(), |e| { e.proof = &PKI.stranger; e.shake(); };
    certificate_of_garbage: "5246 §7.4.2", "certificate of three bytes", BAD_CERTIFICATE,
        Server12::certificate(), |e| { e.edit(CERTIFICATE, |b| *b = vec24(&vec24(&[1, 2, 3]))).shake(); };
    key_exchange_missing: "5246 §7.4.3", "no ServerKeyExchange", UNEXPECTED_MESSAGE,
        Server12::certificate(), |e| { e.skip(SERVER_KEY_EXCHANGE).shake(); };
    key_exchange_missing_with_a_key: "5489 §2", "the same with a pre-shared key", UNEXPECTED_MESSAGE,
        Server12::ecdhe_psk(), |e| { e.skip(SERVER_KEY_EXCHANGE).shake(); };
    key_exchange_twice: "5246 §7.3", "ServerKeyExchange twice", UNEXPECTED_MESSAGE,
        Server12::certificate(), |e| { e.twice(SERVER_KEY_EXCHANGE).shake(); };
    key_exchange_early: "5246 §7.3", "ServerKeyExchange before Certificate", UNEXPECTED_MESSAGE,
        Server12::certificate(), |e| { e.swap(SERVER_KEY_EXCHANGE, CERTIFICATE).shake(); };
    signature_wrong: "5246 §7.4.3", "signature over other parameters", DECRYPT_ERROR,
        Server12::certificate(), |e| {
            let signature = vec16(&PKI.enemy.sign(b"another"));
            e.edit(SERVER_KEY_EXCHANGE, move |b| { b.truncate(SCHEME + 2); b.extend(&signature); }).shake();
        };
    signature_by_another: "5246 §7.4.3", "signature by another key than the certificate's", DECRYPT_ERROR,
        Server12::certificate(), |e| {
            e.proof = &PKI.stranger;
            e.edit(CERTIFICATE, |b| *b = vec24(&vec24(&PKI.enemy.certificate))).shake();
        };
    signature_by_a_scheme_not_offered: "5246 §7.4.3", "scheme that was not offered: SHA-1", ILLEGAL_PARAMETER,
        Server12::certificate(), |e| { e.edit(SERVER_KEY_EXCHANGE, |b| b[SCHEME] = 2).shake(); };
    signature_by_a_scheme_of_rsa: "5246 §7.4.3", "scheme of RSA with a suite of ECDSA", ILLEGAL_PARAMETER,
        Server12::certificate(), |e| { e.edit(SERVER_KEY_EXCHANGE, |b| b[SCHEME + 1] = 1).shake(); };
    signature_cut_off: "5246 §7.4.3", "ServerKeyExchange cut off", DECODE_ERROR,
        Server12::certificate(), |e| { e.edit(SERVER_KEY_EXCHANGE, |b| { b.pop(); }).shake(); };
    signature_missing: "5246 §7.4.3", "ServerKeyExchange without a signature", DECODE_ERROR,
        Server12::certificate(), |e| { e.edit(SERVER_KEY_EXCHANGE, |b| b.truncate(SCHEME)).shake(); };
    group_not_offered: "8422 §5.4", "a group that was not offered: P-256", ILLEGAL_PARAMETER,
        Server12::ecdhe_psk(), |e| { e.edit(SERVER_KEY_EXCHANGE, |b| b[4] = 23).shake(); };
    curve_explicit: "8422 §5.4", "explicit curve parameters", ILLEGAL_PARAMETER,
        Server12::ecdhe_psk(), |e| { e.edit(SERVER_KEY_EXCHANGE, |b| b[2] = 1).shake(); };
    point_of_zeros: "7748 §6.1", "X25519 key of zeros", ILLEGAL_PARAMETER,
        Server12::ecdhe_psk(), |e| { e.edit(SERVER_KEY_EXCHANGE, |b| b[6..].fill(0)).shake(); };
    point_short: "8422 §5.4", "X25519 key of 31 bytes", ILLEGAL_PARAMETER,
        Server12::ecdhe_psk(), |e| {
            e.edit(SERVER_KEY_EXCHANGE, |b| *b = [&[0, 0, 3, 0, 29][..], &vec8(&[9; 31])].concat()).shake();
        };
    hint: "4279 §2", "ServerKeyExchange with a hint", Accepted,
        Server12::psk(), |e| { e.before(SERVER_HELLO_DONE, SERVER_KEY_EXCHANGE).shake(); };
    hint_twice: "5246 §7.3", "two ServerKeyExchanges with hints", UNEXPECTED_MESSAGE,
        Server12::psk(), |e| { e.before(SERVER_HELLO_DONE, SERVER_KEY_EXCHANGE).twice(SERVER_KEY_EXCHANGE).shake(); };
    hint_cut_off: "4279 §2", "hint shorter than it says", DECODE_ERROR,
        Server12::psk(), |e| {
            e.before(SERVER_HELLO_DONE, SERVER_KEY_EXCHANGE).edit(SERVER_KEY_EXCHANGE, |b| { b.pop(); }).shake();
        };
    request_twice: "5246 §7.3", "CertificateRequest twice", UNEXPECTED_MESSAGE,
        Server12::certificate(), |e| { e.twice(CERTIFICATE_REQUEST).shake(); };
    request_early: "5246 §7.3", "CertificateRequest before ServerKeyExchange", UNEXPECTED_MESSAGE,
        Server12::certificate(), |e| { e.swap(CERTIFICATE_REQUEST, SERVER_KEY_EXCHANGE).shake(); };
    request_of_nobody: "5246 §7.4.4", "CertificateRequest without a certificate", UNEXPECTED_MESSAGE,
        Server12::psk(), |e| { e.before(SERVER_HELLO_DONE, CERTIFICATE_REQUEST).shake(); };
    request_cut_off: "5246 §7.4.4", "CertificateRequest cut off", DECODE_ERROR,
        Server12::certificate(), |e| { e.edit(CERTIFICATE_REQUEST, |b| { b.pop(); }).shake(); };
    done_missing: "5246 §7.4.5", "no ServerHelloDone", Stuck,
        Server12::psk(), |e| { e.skip(SERVER_HELLO_DONE).fly(); };
    done_twice: "5246 §7.3", "ServerHelloDone twice", UNEXPECTED_MESSAGE,
        Server12::psk(), |e| { e.twice(SERVER_HELLO_DONE).shake(); };
    done_filled: "5246 §7.4.5", "ServerHelloDone with content", DECODE_ERROR,
        Server12::psk(), |e| { e.edit(SERVER_HELLO_DONE, |b| b.push(0)).shake(); };
    hello_request: "5246 §7.4.1.1", "HelloRequest in a handshake: it is ignored", Accepted,
        Server12::psk(), |e| { e.before(SERVER_HELLO_DONE, HELLO_REQUEST).shake(); };
    message_of_clients: "5246 §7.3", "ClientKeyExchange by a server", UNEXPECTED_MESSAGE,
        Server12::psk(), |e| { e.before(SERVER_HELLO_DONE, CLIENT_KEY_EXCHANGE).shake(); };
    message_unknown: "5246 §7.4", "a message of type 99", UNEXPECTED_MESSAGE,
        Server12::psk(), |e| { e.before(SERVER_HELLO_DONE, 99).shake(); };
    ticket: "5077 §3.3", "NewSessionTicket that was not asked for", UNEXPECTED_MESSAGE,
        Server12::psk(), |e| { e.before(CHANGE_CIPHER, NEW_SESSION_TICKET).shake(); };
    message_skipped: "6347 §4.2.2", "a gap in `message_seq`", Stuck,
        Server12::psk(), |e| { e.greet(); e.next += 1; e.fly(); };
    message_too_long: "6347 §4.2.3", "a fragment of a message of 16 MiB", Ignored,
        Server12::psk(), |e| {
            e.greet();
            let fragment = wire::fragment(SERVER_HELLO, e.next, 0xff_ffff, 0, &[0; 40]);
            e.send_in(HANDSHAKE, &fragment, 0);
        };
    fragments_differ: "6347 §4.2.3", "fragments that overlap and differ: another ServerHello", ILLEGAL_PARAMETER,
        Server12::psk(), |e| {
            e.greet();
            let body = e.hello.encode();
            // The suite is sent twice, and the second is no suite that was offered.
            for (at, piece) in [(0, &body[..38]), (35, &[0, 0][..]), (37, &body[37..])] {
                let fragment = wire::fragment(SERVER_HELLO, e.next, body.len(), at, piece);
                e.send_in(HANDSHAKE, &fragment, 0);
            }
        };
    done_under_keys: "6347 §4.1", "a message that is not Finished in epoch 1", UNEXPECTED_MESSAGE,
        Server12::psk(), |e| { e.fly(); e.say_in(SERVER_HELLO_DONE, &[], 1); };
    change_cipher_missing: "6347 §4.1", "no ChangeCipherSpec: the epoch says the same", Accepted,
        Server12::psk(), |e| { e.skip(CHANGE_CIPHER).shake(); };
    change_cipher_early: "5246 §7.1", "ChangeCipherSpec before ServerHelloDone: it changes nothing", Accepted,
        Server12::psk(), |e| { e.before(SERVER_HELLO_DONE, CHANGE_CIPHER).shake(); };
    change_cipher_malformed: "5246 §7.1", "ChangeCipherSpec of two other bytes, in the clear", Ignored,
        Server12::psk(), |e| { e.fly(); e.send_in(CHANGE_CIPHER_SPEC, &[7, 7], 0); };
    finished_wrong: "5246 §7.4.9", "Finished with a bit changed: the alert is under the keys", DECRYPT_ERROR,
        Server12::psk(), |e| { e.edit(FINISHED, |b| b[0] ^= 1).shake(); };
    finished_short: "5246 §7.4.9", "Finished of 11 bytes", DECRYPT_ERROR,
        Server12::psk(), |e| { e.edit(FINISHED, |b| b.truncate(11)).shake(); };
    finished_of_a_client: "5246 §7.4.9", "Finished in the words of a client", DECRYPT_ERROR,
        Server12::psk(), |e| {
            e.fly();
            let finished = e.finished("client finished");
            e.edit(FINISHED, move |b| *b = finished).shake();
        };
    finished_in_the_clear: "6347 §4.1", "Finished in epoch 0", UNEXPECTED_MESSAGE,
        Server12::psk(), |e| { e.in_epoch(FINISHED, 0).shake(); };
    finished_early: "5246 §7.3", "Finished in the clear instead of ServerHelloDone", UNEXPECTED_MESSAGE,
        Server12::psk(), |e| { e.in_epoch(FINISHED, 0).skip(SERVER_HELLO_DONE).fly().step(FINISHED); };
    finished_of_epoch_2: "6347 §4.1", "a record under the keys in epoch 2", Ignored,
        Server12::psk(), |e| {
            e.fly();
            let message = wire::message(FINISHED, e.next, &[0; 12]);
            let datagram = e.seal_at(HANDSHAKE, number(2, 0), &message);
            e.raw(&datagram);
        };
    finished_forged: "6347 §4.1.2.7", "a record of epoch 1 under another key", Ignored,
        Server12::psk(), |e| { e.fly(); e.raw(&wire::record(HANDSHAKE, number(1, 0), &[7; 48])); };
    data_before_finished: "5246 §7.4.9", "data under the new keys before Finished", Ignored,
        Server12::psk(), |e| { e.fly(); e.send(DATA, b"early"); assert_eq!(e.guest.said, []); };
    alert_fatal_under_keys: "5246 §7.2.2", "a fatal alert under the keys instead of Finished", Over,
        Server12::psk(), |e| { e.fly(); e.send(ALERT, &[2, 51]); };
    data_in_the_clear: "6347 §4.1.2.7", "data in the clear", Ignored,
        Server12::psk(), |e| { e.greet(); e.send_in(DATA, b"data", 0); };
    alert_warning_in_the_clear: "5246 §7.2.2", "a warning in the clear", Ignored,
        Server12::psk(), |e| { e.greet(); e.send_in(ALERT, &[1, 112], 0); };
    alert_malformed_in_the_clear: "6347 §4.1.2.7", "alerts of one and three bytes in the clear", Ignored,
        Server12::psk(), |e| { e.greet(); e.send_in(ALERT, &[2], 0); e.send_in(ALERT, &[2, 40, 0], 0); };
    alert_fatal_in_the_clear: "5246 §7.2.2", "a fatal alert in the clear", Over,
        Server12::psk(), |e| { e.greet(); e.send_in(ALERT, &[2, 40], 0); };
}
