//! A client's last flight in DTLS 1.3.

use crate::{
    case::{
        BAD_CERTIFICATE,
        Back::{Accepted, Ignored, Over, Stuck},
        CERTIFICATE_REQUIRED, DECODE_ERROR, DECRYPT_ERROR, ILLEGAL_PARAMETER, UNEXPECTED_MESSAGE, UNKNOWN_CA,
        UNSUPPORTED_EXTENSION, cases,
    },
    peer::{
        client_13::Client13,
        house::Said,
        pki::PKI,
        schedule::signed,
        server_13::ack,
        wire::{
            self, ACK, ALERT, CHANGE_CIPHER_SPEC, DATA, HANDSHAKE,
            kind::{
                CERTIFICATE, CERTIFICATE_VERIFY, CLIENT_HELLO, ENCRYPTED_EXTENSIONS, FINISHED, KEY_UPDATE,
                NEW_CONNECTION_ID,
            },
            vec16, vec24,
        },
    },
};

/// A Certificate message with one entry.
fn certificate(der: &[u8], extensions: &[u8]) -> Vec<u8> {
    [&[0][..], &vec24(&[&vec24(der)[..], &vec16(extensions)].concat())].concat()
}

cases! {
    certificate_missing: "8446 §4.4.2", "no Certificate, though one is asked for", UNEXPECTED_MESSAGE,
        Client13::certificate(), |e| { e.skip(CERTIFICATE).skip(CERTIFICATE_VERIFY).shake(); };
    certificate_twice: "8446 §4", "Certificate twice", UNEXPECTED_MESSAGE,
        Client13::certificate(), |e| { e.before(CERTIFICATE, CERTIFICATE).shake(); };
    certificate_not_asked_for: "8446 §4.4.2", "Certificate with a pre-shared key", UNEXPECTED_MESSAGE,
        Client13::psk(), |e| { e.before(FINISHED, CERTIFICATE).shake(); };
    certificate_list_empty: "8446 §4.4.2.4", "empty certificate list where one is required", CERTIFICATE_REQUIRED,
        Client13::strict(), |e| { e.skip(CERTIFICATE_VERIFY).edit(CERTIFICATE, |b| *b = vec![0; 4]).shake(); };
    certificate_of_a_stranger: "8446 §4.4.2.4", "certificate of an unknown authority", UNKNOWN_CA,
        Client13::certificate(), |e| {
            e.edit(CERTIFICATE, |b| *b = certificate(&PKI.stranger.certificate, &[])).shake();
        };
    certificate_of_garbage: "8446 §4.4.2.4", "certificate of three bytes", BAD_CERTIFICATE,
        Client13::certificate(), |e| { e.edit(CERTIFICATE, |b| *b = certificate(&[1, 2, 3], &[])).shake(); };
    certificate_with_context: "8446 §4.4.2", "a context that was not asked for", DECODE_ERROR,
        Client13::certificate(), |e| { e.edit(CERTIFICATE, |b| { b[0] = 1; b.insert(1, 7); }).shake(); };
    certificate_with_extension: "8446 §4.4.2", "`status_request` that was not asked for", UNSUPPORTED_EXTENSION,
        Client13::certificate(), |e| {
            e.edit(CERTIFICATE, |b| *b = certificate(&PKI.enemy.certificate, &[0, 5, 0, 0])).shake();
        };
    certificate_cut_off: "8446 §4.4.2", "certificate list shorter than it says", DECODE_ERROR,
        Client13::certificate(), |e| { e.edit(CERTIFICATE, |b| { b.pop(); }).shake(); };
    verify_missing: "8446 §4.4.3", "no CertificateVerify", UNEXPECTED_MESSAGE,
        Client13::certificate(), |e| { e.skip(CERTIFICATE_VERIFY).shake(); };
    verify_without_certificate: "8446 §4.4.3", "CertificateVerify after an empty list", UNEXPECTED_MESSAGE,
        Client13::certificate(), |e| { e.edit(CERTIFICATE, |b| *b = vec![0; 4]).shake(); };
    verify_of_another_transcript: "8446 §4.4.3", "signature over another transcript", DECRYPT_ERROR,
        Client13::certificate(), |e| {
            let signature = PKI.enemy.sign(&signed("client", &[7; 32]));
            e.edit(CERTIFICATE_VERIFY, move |b| *b = [&[4, 3][..], &vec16(&signature)].concat()).shake();
        };
    verify_of_a_server: "8446 §4.4.3", "signature in the words of a server", DECRYPT_ERROR,
        Client13::certificate(), |e| {
            e.greet();
            e.step(CERTIFICATE);
            e.plan.remove(0);
            let signature = PKI.enemy.sign(&signed("server", &e.schedule.hash()));
            e.edit(CERTIFICATE_VERIFY, move |b| *b = [&[4, 3][..], &vec16(&signature)].concat()).shake();
        };
    verify_by_a_scheme_not_offered: "8446 §4.4.3", "scheme that was not offered: SHA-1", ILLEGAL_PARAMETER,
        Client13::certificate(), |e| { e.edit(CERTIFICATE_VERIFY, |b| b[0] = 2).shake(); };
    verify_by_a_scheme_of_rsa: "8446 §4.4.3", "scheme of RSA with a key of ECDSA", ILLEGAL_PARAMETER,
        Client13::certificate(), |e| {
            e.edit(CERTIFICATE_VERIFY, |b| b[..2].copy_from_slice(&[8, 4])).shake();
        };
    verify_cut_off: "8446 §4.4.3", "CertificateVerify cut off", DECODE_ERROR,
        Client13::certificate(), |e| { e.edit(CERTIFICATE_VERIFY, |b| b.truncate(20)).shake(); };
    finished_wrong: "8446 §4.4.4", "Finished with a bit changed", DECRYPT_ERROR,
        Client13::psk(), |e| { e.edit(FINISHED, |b| b[0] ^= 1).shake(); };
    finished_short: "8446 §4.4.4", "Finished of 31 bytes", DECRYPT_ERROR,
        Client13::psk(), |e| { e.edit(FINISHED, |b| b.truncate(31)).shake(); };
    finished_in_the_clear: "9147 §4", "Finished in epoch 0", Ignored,
        Client13::psk(), |e| { e.greet(); let m = wire::message(FINISHED, e.next, &[0; 32]); e.clear(HANDSHAKE, &m); };
    finished_under_keys_of_data: "9147 §6.1", "Finished in epoch 3", Ignored,
        Client13::psk(), |e| {
            e.greet();
            let m = wire::message(FINISHED, e.next, &[0; 32]);
            e.send(3, HANDSHAKE, &m);
        };
    finished_and_more: "8446 §5.1", "a message behind Finished in one record", UNEXPECTED_MESSAGE,
        Client13::psk(), |e| {
            e.greet();
            let body = crate::peer::crypto::finished(&e.write[0].secret, &e.schedule.hash());
            let both = [wire::message(FINISHED, e.next, &body), wire::message(KEY_UPDATE, e.next + 1, &[0])].concat();
            e.send(2, HANDSHAKE, &both);
        };
    key_update_before_finished: "8446 §4.6.3", "KeyUpdate before Finished", UNEXPECTED_MESSAGE,
        Client13::psk(), |e| { e.before(FINISHED, KEY_UPDATE).shake(); };
    new_identifier_before_finished: "9147 §9", "NewConnectionId before Finished", UNEXPECTED_MESSAGE,
        Client13::psk(), |e| { e.before(FINISHED, NEW_CONNECTION_ID).shake(); };
    hello_under_keys: "8446 §4.1.2", "ClientHello in epoch 2", UNEXPECTED_MESSAGE,
        Client13::psk(), |e| { e.before(FINISHED, CLIENT_HELLO).shake(); };
    message_of_servers: "8446 §4", "EncryptedExtensions", UNEXPECTED_MESSAGE,
        Client13::psk(), |e| { e.before(FINISHED, ENCRYPTED_EXTENSIONS).shake(); };
    message_unknown: "8446 §4", "a message of type 99", UNEXPECTED_MESSAGE,
        Client13::psk(), |e| { e.before(FINISHED, 99).shake(); };
    message_skipped: "9147 §5.2", "a gap in `message_seq`", Stuck,
        Client13::psk(), |e| { e.greet(); e.next += 1; e.shake(); };
    message_and_garbage: "8446 §6.2", "three bytes behind a message", DECODE_ERROR,
        Client13::certificate(), |e| {
            e.greet();
            let body = certificate(&PKI.enemy.certificate, &[]);
            let payload = [wire::message(CERTIFICATE, e.next, &body), vec![1, 2, 3]].concat();
            e.send(2, HANDSHAKE, &payload);
        };
    message_too_long: "9147 §5.5", "a fragment of a message of 16 MiB", Ignored,
        Client13::psk(), |e| {
            e.greet();
            e.send(2, HANDSHAKE, &wire::fragment(FINISHED, e.next, 0xff_ffff, 0, &[0; 32]));
        };
    fragments_differ: "9147 §5.5", "fragments that overlap and differ", DECRYPT_ERROR,
        Client13::psk(), |e| {
            e.greet();
            let body = crate::peer::crypto::finished(&e.write[0].secret, &e.schedule.hash());
            e.send(2, HANDSHAKE, &wire::fragment(FINISHED, e.next, 32, 0, &body[..20]));
            e.send(2, HANDSHAKE, &wire::fragment(FINISHED, e.next, 32, 16, &[7; 16]));
        };
    data_under_keys_of_handshake: "9147 §6.1", "data in epoch 2", UNEXPECTED_MESSAGE,
        Client13::psk(), |e| { e.greet(); e.send(2, DATA, b"data"); };
    data_before_finished: "9147 §6.1", "data in epoch 3 before Finished", Ignored,
        Client13::psk(), |e| {
            e.greet();
            e.send(3, DATA, b"early");
            assert!(!e.house.said.contains(&Said::Data(b"early".to_vec())));
        };
    handshake_without_content: "8446 §5.4", "a handshake record that holds nothing", UNEXPECTED_MESSAGE,
        Client13::psk(), |e| { e.greet(); e.send(2, HANDSHAKE, &[]); };
    alert_without_content: "8446 §5.4", "an alert record that holds nothing", UNEXPECTED_MESSAGE,
        Client13::psk(), |e| { e.greet(); e.send(2, ALERT, &[]); };
    inner_of_zeros: "8446 §5.4", "a record that holds zeros and no type", UNEXPECTED_MESSAGE,
        Client13::psk(), |e| { e.greet(); e.send_inner(2, &[0; 20]); };
    inner_type_unknown: "8446 §5", "a record of an unknown type inside", UNEXPECTED_MESSAGE,
        Client13::psk(), |e| { e.greet(); e.send(2, 99, b"data"); };
    change_cipher_under_keys: "8446 §5", "ChangeCipherSpec in epoch 2", UNEXPECTED_MESSAGE,
        Client13::psk(), |e| { e.greet(); e.send(2, CHANGE_CIPHER_SPEC, &[1]); };
    change_cipher_in_the_clear: "9147 §5", "ChangeCipherSpec in the clear", Ignored,
        Client13::psk(), |e| { e.greet(); e.clear(CHANGE_CIPHER_SPEC, &[1]); };
    alert_in_the_clear: "9147 §4.5.2", "a fatal alert in the clear", Ignored,
        Client13::psk(), |e| { e.greet(); e.clear(ALERT, &[2, 40]); };
    alert_fatal: "8446 §6.2", "a fatal alert", Over,
        Client13::psk(), |e| { e.greet(); e.send(2, ALERT, &[2, 40]); };
    ack_of_nothing: "9147 §7", "an acknowledgement of records that were never sent", Ignored,
        Client13::psk(), |e| { e.greet(); e.send(2, ACK, &ack(&[(2, 4711), (9, 9)])); };
    ack_malformed: "9147 §7", "an acknowledgement cut off", DECODE_ERROR,
        Client13::psk(), |e| { e.greet(); e.send(2, ACK, &[0, 16, 1]); };
    record_of_another_key: "9147 §4.5.2", "a record of epoch 2 under another key", Ignored,
        Client13::psk(), |e| { e.greet(); e.raw(&[&[0b0010_1110, 0, 0, 0, 40][..], &[7; 40]].concat()); };
    identifier_unknown: "9147 §9", "Finished with an identifier of nobody", Ignored,
        Client13::identified(), |e| {
            e.greet();
            e.cid[7] ^= 1;
            let m = wire::message(FINISHED, e.next, &[0; 32]);
            e.send(2, HANDSHAKE, &m);
            e.cid[7] ^= 1;
        };
    finished_repeated: "9147 §7", "Finished once more: it is acknowledged again", Accepted,
        Client13::psk(), |e| {
            e.session();
            let m = wire::message(FINISHED, e.next - 1, &[0; 32]);
            e.send(2, HANDSHAKE, &m);
        };
}
