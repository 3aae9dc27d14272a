//! A client's last flight in DTLS 1.2.

use crate::{
    case::{
        BAD_CERTIFICATE,
        Back::{Accepted, Ignored, Stuck},
        DECODE_ERROR, DECRYPT_ERROR, HANDSHAKE_FAILURE, ILLEGAL_PARAMETER, UNEXPECTED_MESSAGE, UNKNOWN_CA, cases,
    },
    peer::{
        client_12::Client12,
        house::Said,
        pki::PKI,
        wire::{
            self, ALERT, CHANGE_CIPHER_SPEC, DATA, HANDSHAKE,
            kind::{
                CERTIFICATE, CERTIFICATE_VERIFY, CHANGE_CIPHER, CLIENT_HELLO, CLIENT_KEY_EXCHANGE, FINISHED,
                HELLO_REQUEST, SERVER_HELLO_DONE,
            },
            number, vec8, vec16, vec24,
        },
    },
};

/// Where a fragment begins, what it says, and of how many bytes in all.
type Piece = (usize, Vec<u8>, usize);

/// Sends the ClientKeyExchange in fragments: where each begins, what it says and of how many bytes in all.
fn fragments(enemy: &mut Client12, cut: fn(&[u8]) -> Vec<Piece>) {
    enemy.greet();
    let body = vec16(b"enemy");
    for (offset, piece, length) in cut(&body) {
        let fragment = wire::fragment(CLIENT_KEY_EXCHANGE, enemy.next, length, offset, &piece);
        enemy.send_in(HANDSHAKE, &fragment, 0);
    }
}

/// The client's keys are there, and its Finished was not sent.
fn with_keys(enemy: &mut Client12) {
    enemy.greet();
    let plan = std::mem::take(&mut enemy.plan);
    plan.iter().filter(|kind| **kind != FINISHED).for_each(|kind| enemy.step(*kind));
    enemy.plan = vec![FINISHED];
}

cases! {
    certificate_missing: "5246 §7.4.6", "no Certificate, though one is asked for", UNEXPECTED_MESSAGE,
        Client12::certificate(), |e| { e.skip(CERTIFICATE).skip(CERTIFICATE_VERIFY).shake(); };
    certificate_twice: "5246 §7.3", "Certificate twice", UNEXPECTED_MESSAGE,
        Client12::certificate(), |e| { e.twice(CERTIFICATE).shake(); };
    certificate_not_asked_for: "5246 §7.4.6", "Certificate with a pre-shared key", UNEXPECTED_MESSAGE,
        Client12::psk(), |e| { e.before(CLIENT_KEY_EXCHANGE, CERTIFICATE).shake(); };
    certificate_late: "5246 §7.3", "Certificate behind ClientKeyExchange", UNEXPECTED_MESSAGE,
        Client12::certificate(), |e| { e.swap(CERTIFICATE, CLIENT_KEY_EXCHANGE).shake(); };
    certificate_list_empty: "5246 §7.4.6", "empty certificate list where one is required", HANDSHAKE_FAILURE,
        Client12::strict(), |e| { e.skip(CERTIFICATE_VERIFY).edit(CERTIFICATE, |b| *b = vec![0; 3]).shake(); };
    certificate_list_too_long: "5246 §7.4.2", "certificate list longer than its message", DECODE_ERROR,
        Client12::certificate(), |e| { e.edit(CERTIFICATE, |b| b[2] ^= 1).shake(); };
    certificate_of_a_stranger: "5246 §7.4.6", "certificate of an unknown authority", UNKNOWN_CA,
        Client12::certificate(), |e| {
            e.edit(CERTIFICATE, |b| *b = vec24(&vec24(&PKI.stranger.certificate))).shake();
        };
    certificate_of_garbage: "5246 §7.4.6", "certificate of three bytes", BAD_CERTIFICATE,
        Client12::certificate(), |e| { e.edit(CERTIFICATE, |b| *b = vec24(&vec24(&[1, 2, 3]))).shake(); };
    key_exchange_missing: "5246 §7.4.7", "no ClientKeyExchange", UNEXPECTED_MESSAGE,
        Client12::certificate(), |e| { e.plan = vec![CERTIFICATE, CERTIFICATE_VERIFY]; e.shake(); };
    key_exchange_twice: "5246 §7.3", "ClientKeyExchange twice", UNEXPECTED_MESSAGE,
        Client12::psk(), |e| { e.twice(CLIENT_KEY_EXCHANGE).shake(); };
    key_exchange_repeated: "6347 §4.2.2", "another ClientKeyExchange with an old `message_seq`", Ignored,
        Client12::psk(), |e| {
            with_keys(e);
            let message = wire::message(CLIENT_KEY_EXCHANGE, e.next - 1, &vec16(b"other"));
            e.send_in(HANDSHAKE, &message, 0);
        };
    key_exchange_and_a_byte: "5246 §7.4.7", "a byte behind the ClientKeyExchange", DECODE_ERROR,
        Client12::psk(), |e| { e.edit(CLIENT_KEY_EXCHANGE, |b| b.push(0)).shake(); };
    key_exchange_cut_off: "4279 §2", "identity shorter than it says", DECODE_ERROR,
        Client12::psk(), |e| { e.edit(CLIENT_KEY_EXCHANGE, |b| b.truncate(4)).shake(); };
    identity_of_256_bytes: "4279 §5.3", "identity of 256 bytes", ILLEGAL_PARAMETER,
        Client12::psk(), |e| { e.edit(CLIENT_KEY_EXCHANGE, |b| *b = vec16(&[b'a'; 256])).shake(); };
    point_of_zeros: "7748 §6.1", "X25519 key of zeros", ILLEGAL_PARAMETER,
        Client12::ecdhe_psk(), |e| {
            e.edit(CLIENT_KEY_EXCHANGE, |b| *b = [vec16(b"enemy"), vec8(&[0; 32])].concat()).shake();
        };
    point_short: "8422 §5.7", "X25519 key of 31 bytes", ILLEGAL_PARAMETER,
        Client12::certificate(), |e| { e.edit(CLIENT_KEY_EXCHANGE, |b| *b = vec8(&[9; 31])).shake(); };
    verify_missing: "5246 §7.4.8", "no CertificateVerify", UNEXPECTED_MESSAGE,
        Client12::certificate(), |e| { e.skip(CERTIFICATE_VERIFY).shake(); };
    verify_without_certificate: "5246 §7.4.8", "CertificateVerify after an empty list", UNEXPECTED_MESSAGE,
        Client12::certificate(), |e| { e.edit(CERTIFICATE, |b| *b = vec![0; 3]).shake(); };
    verify_early: "5246 §7.3", "CertificateVerify before ClientKeyExchange", UNEXPECTED_MESSAGE,
        Client12::certificate(), |e| { e.swap(CERTIFICATE_VERIFY, CLIENT_KEY_EXCHANGE).shake(); };
    verify_of_another_transcript: "5246 §7.4.8", "signature over another transcript", DECRYPT_ERROR,
        Client12::certificate(), |e| {
            e.edit(CERTIFICATE_VERIFY, |b| *b = [&[4, 3][..], &vec16(&PKI.enemy.sign(b"another"))].concat()).shake();
        };
    verify_by_a_scheme_not_offered: "5246 §7.4.8", "scheme that was not offered: SHA-1", ILLEGAL_PARAMETER,
        Client12::certificate(), |e| { e.edit(CERTIFICATE_VERIFY, |b| b[0] = 2).shake(); };
    verify_by_a_scheme_of_rsa: "5246 §7.4.8", "scheme of RSA with a key of ECDSA", ILLEGAL_PARAMETER,
        Client12::certificate(), |e| { e.edit(CERTIFICATE_VERIFY, |b| b[1] = 1).shake(); };
    verify_cut_off: "5246 §7.4.8", "CertificateVerify cut off", DECODE_ERROR,
        Client12::certificate(), |e| { e.edit(CERTIFICATE_VERIFY, |b| b.truncate(20)).shake(); };
    verify_under_keys: "6347 §4.1", "CertificateVerify in epoch 1", UNEXPECTED_MESSAGE,
        Client12::certificate(), |e| { e.in_epoch(CERTIFICATE_VERIFY, 1).shake(); };
    change_cipher_missing: "6347 §4.1", "no ChangeCipherSpec: the epoch says the same", Accepted,
        Client12::psk(), |e| { e.skip(CHANGE_CIPHER).shake(); };
    change_cipher_early: "5246 §7.1", "ChangeCipherSpec before ClientKeyExchange: it changes nothing", Accepted,
        Client12::psk(), |e| { e.before(CLIENT_KEY_EXCHANGE, CHANGE_CIPHER).shake(); };
    change_cipher_malformed: "5246 §7.1", "ChangeCipherSpec of two other bytes, in the clear", Ignored,
        Client12::psk(), |e| { e.greet(); e.send_in(CHANGE_CIPHER_SPEC, &[7, 7], 0); };
    finished_wrong: "5246 §7.4.9", "Finished with a bit changed", DECRYPT_ERROR,
        Client12::psk(), |e| { e.edit(FINISHED, |b| b[0] ^= 1).shake(); };
    finished_short: "5246 §7.4.9", "Finished of 11 bytes", DECRYPT_ERROR,
        Client12::psk(), |e| { e.edit(FINISHED, |b| b.truncate(11)).shake(); };
    finished_in_the_clear: "6347 §4.1", "Finished in epoch 0", UNEXPECTED_MESSAGE,
        Client12::psk(), |e| { e.in_epoch(FINISHED, 0).shake(); };
    finished_of_epoch_2: "6347 §4.1", "a record under the keys in epoch 2", Ignored,
        Client12::psk(), |e| {
            with_keys(e);
            let message = wire::message(FINISHED, e.next, &[0; 12]);
            let datagram = e.seal_at(HANDSHAKE, number(2, 0), &message);
            e.raw(&datagram);
        };
    finished_before_key_exchange: "5246 §7.3", "Finished in the clear first", UNEXPECTED_MESSAGE,
        Client12::psk(), |e| { e.in_epoch(FINISHED, 0).swap(CLIENT_KEY_EXCHANGE, FINISHED).shake(); };
    data_before_finished: "5246 §7.4.9", "data under the new keys before Finished", Ignored,
        Client12::psk(), |e| {
            with_keys(e);
            e.send_in(DATA, b"early", 1);
            assert!(!e.house.said.contains(&Said::Data(b"early".to_vec())));
        };
    data_in_the_clear: "6347 §4.1.2.7", "data in the clear", Ignored,
        Client12::psk(), |e| { e.greet(); e.send_in(DATA, b"data", 0); };
    alert_in_the_clear: "6347 §4.1.2.7", "a fatal alert in the clear", Ignored,
        Client12::psk(), |e| { e.greet(); e.send_in(ALERT, &[2, 40], 0); };
    message_of_servers: "5246 §7.4.5", "ServerHelloDone", UNEXPECTED_MESSAGE,
        Client12::psk(), |e| { e.before(CLIENT_KEY_EXCHANGE, SERVER_HELLO_DONE).shake(); };
    message_hello_request: "5246 §7.4.1.1", "HelloRequest by a client", UNEXPECTED_MESSAGE,
        Client12::psk(), |e| { e.before(CLIENT_KEY_EXCHANGE, HELLO_REQUEST).shake(); };
    message_unknown: "5246 §7.4", "a message of type 99", UNEXPECTED_MESSAGE,
        Client12::psk(), |e| { e.before(CLIENT_KEY_EXCHANGE, 99).shake(); };
    message_skipped: "6347 §4.2.2", "a gap in `message_seq`", Stuck,
        Client12::psk(), |e| { e.greet(); e.next += 1; e.shake(); };
    message_far_ahead: "6347 §4.2.2", "`message_seq` far ahead", Ignored,
        Client12::psk(), |e| {
            e.greet();
            let message = wire::message(CLIENT_KEY_EXCHANGE, e.next + 100, &vec16(b"enemy"));
            e.send_in(HANDSHAKE, &message, 0);
        };
    message_too_long: "6347 §4.2.3", "a fragment of a message of 16 MiB", Ignored,
        Client12::psk(), |e| fragments(e, |body| vec![(0, body.to_vec(), 0xff_ffff)]);
    hello_again: "6347 §4.2.8", "another ClientHello in the clear: a cookie is sent", Accepted,
        Client12::psk(), |e| {
            e.greet();
            let mut other = e.hello.clone();
            (other.random, other.cookie) = ([9; 32], Vec::new());
            let message = wire::message(CLIENT_HELLO, 0, &other.encode());
            e.send_in(HANDSHAKE, &message, 0);
        };
    fragments_overlap: "6347 §4.2.3", "fragments that overlap and agree", Accepted,
        Client12::psk(), |e| {
            fragments(e, |body| vec![(2, body[2..].to_vec(), body.len())]);
            e.shake();
        };
    fragments_differ: "6347 §4.2.3", "fragments that overlap and differ: another length", DECODE_ERROR,
        Client12::psk(), |e| {
            fragments(e, |body| vec![(0, body[..5].to_vec(), 7), (1, [&[9], &body[2..]].concat(), 7)]);
        };
    fragments_of_other_lengths: "6347 §4.2.3", "fragments that give other lengths", Accepted,
        Client12::psk(), |e| {
            fragments(e, |body| vec![(0, body[..5].to_vec(), 7), (0, body.to_vec(), 8)]);
            e.shake();
        };
    fragment_beyond_its_message: "6347 §4.2.3", "a fragment that ends behind its message", Ignored,
        Client12::psk(), |e| fragments(e, |_| vec![(5, vec![b'x'; 4], 7)]);
}
