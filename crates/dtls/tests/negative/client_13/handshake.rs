//! A server's flight in DTLS 1.3, behind the ServerHello.

use std::time::Duration;

use crate::{
    case::{
        BAD_CERTIFICATE,
        Back::{Accepted, Ignored, Over, Stuck},
        DECODE_ERROR, DECRYPT_ERROR, ILLEGAL_PARAMETER, MISSING_EXTENSION, UNEXPECTED_MESSAGE, UNKNOWN_CA,
        UNSUPPORTED_EXTENSION, cases,
    },
    peer::{
        crypto,
        pki::PKI,
        schedule::signed,
        server_13::{Server13, ack},
        wire::{
            self, ACK, ALERT, CHANGE_CIPHER_SPEC, DATA, HANDSHAKE, ext,
            kind::{
                CERTIFICATE, CERTIFICATE_REQUEST, CERTIFICATE_VERIFY, CLIENT_HELLO, ENCRYPTED_EXTENSIONS, FINISHED,
                KEY_UPDATE, NEW_SESSION_TICKET, SERVER_HELLO,
            },
            vec16, vec24,
        },
    },
};

/// The ServerHello, and the keys that follow from it.
fn greet(enemy: &mut Server13) {
    enemy.step(SERVER_HELLO);
    enemy.plan.remove(0);
}

/// A record under the keys of the handshake.
fn send(enemy: &mut Server13, content: u8, plain: &[u8]) {
    greet(enemy);
    enemy.send(2, content, plain);
}

/// EncryptedExtensions with these.
fn encrypted(enemy: &mut Server13, list: &[(u16, Vec<u8>)]) {
    let body = vec16(&wire::extensions(list));
    enemy.edit(ENCRYPTED_EXTENSIONS, move |b| *b = body).shake();
}

/// A CertificateRequest with these.
fn request(enemy: &mut Server13, list: &[(u16, Vec<u8>)]) {
    let body = [&[0][..], &vec16(&wire::extensions(list))].concat();
    enemy.edit(CERTIFICATE_REQUEST, move |b| *b = body).shake();
}

/// A Certificate message with one entry.
fn certificate(der: &[u8], extensions: &[u8]) -> Vec<u8> {
    [&[0][..], &vec24(&[&vec24(der)[..], &vec16(extensions)].concat())].concat()
}

/// Up to the Finished, which is given.
fn before_finished(enemy: &mut Server13) -> Vec<u8> {
    greet(enemy);
    enemy.step(ENCRYPTED_EXTENSIONS);
    enemy.plan.clear();
    let hash = enemy.schedule.hash();
    crypto::finished(&enemy.half(2).secret, &hash).to_vec()
}

cases! {
    server_hello_again: "9147 §5.2", "another ServerHello in the clear", Ignored,
        Server13::psk(), |e| {
            greet(e);
            let message = wire::message(SERVER_HELLO, e.next, &e.hello.encode());
            e.clear(HANDSHAKE, &message);
        };
    encrypted_missing: "8446 §4.3.1", "no EncryptedExtensions", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| { e.skip(ENCRYPTED_EXTENSIONS).shake(); };
    encrypted_twice: "8446 §4", "EncryptedExtensions twice", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| { e.twice(ENCRYPTED_EXTENSIONS).shake(); };
    encrypted_cut_off: "8446 §4.3.1", "EncryptedExtensions of one byte", DECODE_ERROR,
        Server13::psk(), |e| { e.edit(ENCRYPTED_EXTENSIONS, |b| { b.pop(); }).shake(); };
    encrypted_and_a_byte: "8446 §4.3.1", "a byte behind the extensions", DECODE_ERROR,
        Server13::psk(), |e| { e.edit(ENCRYPTED_EXTENSIONS, |b| b.push(0)).shake(); };
    encrypted_extension_twice: "8446 §4.2", "`supported_groups` twice", ILLEGAL_PARAMETER,
        Server13::psk(), |e| encrypted(e, &[(ext::GROUPS, vec16(&[0, 29])), (ext::GROUPS, vec16(&[0, 29]))]);
    encrypted_extension_of_server_hello: "8446 §4.3.1", "`key_share`, which belongs elsewhere", ILLEGAL_PARAMETER,
        Server13::psk(), |e| encrypted(e, &[(ext::KEY_SHARE, vec![0, 29])]);
    encrypted_extension_unknown: "8446 §4.2", "an extension that was not asked for", UNSUPPORTED_EXTENSION,
        Server13::psk(), |e| encrypted(e, &[(ext::UNKNOWN, Vec::new())]);
    encrypted_early_data: "8446 §4.2.10", "`early_data`, which was not asked for", UNSUPPORTED_EXTENSION,
        Server13::psk(), |e| encrypted(e, &[(ext::EARLY_DATA, Vec::new())]);
    encrypted_server_name: "6066 §3", "`server_name`, where none was said", UNSUPPORTED_EXTENSION,
        Server13::psk(), |e| encrypted(e, &[(ext::SERVER_NAME, Vec::new())]);
    encrypted_server_name_filled: "6066 §3", "`server_name` with content", DECODE_ERROR,
        Server13::certificate(), |e| encrypted(e, &[(ext::SERVER_NAME, vec![1])]);
    encrypted_groups: "8446 §4.2.7", "`supported_groups`, for another time", Accepted,
        Server13::psk(), |e| encrypted(e, &[(ext::GROUPS, vec16(&[0, 23]))]);
    limit_of_63: "8449 §4", "`record_size_limit` of 63", ILLEGAL_PARAMETER,
        Server13::psk(), |e| { encrypted(e, &[(ext::RECORD_SIZE_LIMIT, vec![0, 63])]); };
    limit_of_one_byte: "8449 §4", "`record_size_limit` of one byte", DECODE_ERROR,
        Server13::psk(), |e| encrypted(e, &[(ext::RECORD_SIZE_LIMIT, vec![64])]);
    limit_of_three_bytes: "8449 §4", "`record_size_limit` of three bytes", DECODE_ERROR,
        Server13::psk(), |e| encrypted(e, &[(ext::RECORD_SIZE_LIMIT, vec![0, 64, 0])]);
    limit_twice: "8446 §4.2", "`record_size_limit` twice", ILLEGAL_PARAMETER,
        Server13::psk(), |e| {
            encrypted(e, &[(ext::RECORD_SIZE_LIMIT, vec![0, 64]), (ext::RECORD_SIZE_LIMIT, vec![0, 64])]);
        };
    limit_of_64: "8449 §4", "`record_size_limit` of 64: data of 64 bytes and their type are not sent", Accepted,
        Server13::psk(), |e| e.announce(64).gets_at_most(63);
    limit_of_64_and_identifier: "8449 §4", "the same with an identifier", Accepted,
        Server13::identified(), |e| e.announce(64).gets_at_most(63);
    limit_of_64_and_certificate: "8449 §4", "`record_size_limit` of 64: our Certificate comes in pieces", Accepted,
        Server13::certificate(), |e| e.announce(64).gets_at_most(63);
    limit_that_comes_late: "8449 §4", "no EncryptedExtensions yet: acknowledgements keep to 64 bytes", Accepted,
        Server13::certificate(), |e| {
            greet(e);
            e.announce(64);
            // Pieces of the last message, which do not keep our client from the right ones.
            for at in 0..8 {
                let piece = wire::fragment(FINISHED, e.next + 4, 32, at, &[7]);
                e.send(2, HANDSHAKE, &piece);
            }
            e.guest.wait(Duration::from_secs(1));
            e.hear();
            assert_eq!(e.acked.len(), 8);
        };
    limit_of_1_2: "8449 §4", "`record_size_limit` of 2^14", Accepted,
        Server13::psk(), |e| e.announce(1 << 14).gets_at_most((1 << 14) - 1);
    limit_of_the_protocol: "8449 §4", "`record_size_limit` of 2^14 + 1", Accepted,
        Server13::psk(), |e| e.announce((1 << 14) + 1).gets_at_most(1 << 14);
    limit_above_the_protocol: "8449 §4", "`record_size_limit` of 2^14 + 2, which is as good as 2^14 + 1", Accepted,
        Server13::psk(), |e| e.announce((1 << 14) + 2).gets_at_most(1 << 14);
    limit_and_fragment_length: "8449 §5", "`max_fragment_length` beside `record_size_limit`", UNSUPPORTED_EXTENSION,
        Server13::psk(), |e| {
            encrypted(e, &[(ext::RECORD_SIZE_LIMIT, vec![0, 64]), (ext::MAX_FRAGMENT_LENGTH, vec![1])]);
        };
    request_with_a_key: "8446 §4.3.2", "CertificateRequest with a pre-shared key", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| { e.before(FINISHED, CERTIFICATE_REQUEST).shake(); };
    request_twice: "8446 §4", "CertificateRequest twice", UNEXPECTED_MESSAGE,
        Server13::certificate(), |e| { e.twice(CERTIFICATE_REQUEST).shake(); };
    request_late: "8446 §4", "CertificateRequest behind Certificate", UNEXPECTED_MESSAGE,
        Server13::certificate(), |e| { e.swap(CERTIFICATE_REQUEST, CERTIFICATE).shake(); };
    request_with_context: "8446 §4.3.2", "CertificateRequest with a context", ILLEGAL_PARAMETER,
        Server13::certificate(), |e| { e.edit(CERTIFICATE_REQUEST, |b| { b[0] = 1; b.insert(1, 7); }).shake(); };
    request_without_schemes: "8446 §4.3.2", "CertificateRequest without `signature_algorithms`", MISSING_EXTENSION,
        Server13::certificate(), |e| request(e, &[]);
    request_schemes_twice: "8446 §4.2", "CertificateRequest with them twice", ILLEGAL_PARAMETER,
        Server13::certificate(), |e| request(e, &[(ext::SCHEMES, vec16(&[4, 3])), (ext::SCHEMES, vec16(&[4, 3]))]);
    request_schemes_of_odd_length: "8446 §4.2.3", "CertificateRequest with schemes of 3 bytes", DECODE_ERROR,
        Server13::certificate(), |e| request(e, &[(ext::SCHEMES, vec16(&[4, 3, 8]))]);
    request_schemes_unknown: "8446 §4.4.2", "no scheme of ours: no certificate is sent", Accepted,
        Server13::certificate(), |e| request(e, &[(ext::SCHEMES, vec16(&[2, 3]))]);
    request_extension_unknown: "8446 §4.2", "CertificateRequest with an unknown extension", Accepted,
        Server13::certificate(), |e| request(e, &[(ext::UNKNOWN, vec![1]), (ext::SCHEMES, vec16(&[4, 3]))]);
    request_cut_off: "8446 §4.3.2", "CertificateRequest cut off", DECODE_ERROR,
        Server13::certificate(), |e| { e.edit(CERTIFICATE_REQUEST, |b| { b.pop(); }).shake(); };
    certificate_missing: "8446 §4.4.2", "no Certificate", UNEXPECTED_MESSAGE,
        Server13::certificate(), |e| { e.skip(CERTIFICATE).shake(); };
    certificate_twice: "8446 §4", "Certificate twice", UNEXPECTED_MESSAGE,
        Server13::certificate(), |e| { e.twice(CERTIFICATE).shake(); };
    certificate_with_a_key: "8446 §4.4.2", "Certificate with a pre-shared key", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| { e.before(FINISHED, CERTIFICATE).shake(); };
    certificate_list_empty: "8446 §4.4.2.4", "empty certificate list", DECODE_ERROR,
        Server13::certificate(), |e| { e.edit(CERTIFICATE, |b| *b = vec![0; 4]).shake(); };
    certificate_of_a_stranger: "8446 §4.4.2.4", "certificate of an unknown authority", UNKNOWN_CA,
        Server13::certificate(), |e| { e.proof = &PKI.stranger; e.shake(); };
    certificate_of_garbage: "8446 §4.4.2.4", "certificate of three bytes", BAD_CERTIFICATE,
        Server13::certificate(), |e| { e.edit(CERTIFICATE, |b| *b = certificate(&[1, 2, 3], &[])).shake(); };
    certificate_of_zero_bytes: "8446 §4.4.2", "certificate of zero bytes", DECODE_ERROR,
        Server13::certificate(), |e| { e.edit(CERTIFICATE, |b| *b = certificate(&[], &[])).shake(); };
    certificate_with_context: "8446 §4.4.2", "Certificate with a context", DECODE_ERROR,
        Server13::certificate(), |e| { e.edit(CERTIFICATE, |b| { b[0] = 1; b.insert(1, 7); }).shake(); };
    certificate_with_extension: "8446 §4.4.2", "`status_request` that was not asked for", UNSUPPORTED_EXTENSION,
        Server13::certificate(), |e| {
            e.edit(CERTIFICATE, |b| *b = certificate(&PKI.enemy.certificate, &[0, 5, 0, 0])).shake();
        };
    certificate_cut_off: "8446 §4.4.2", "certificate list shorter than it says", DECODE_ERROR,
        Server13::certificate(), |e| { e.edit(CERTIFICATE, |b| { b.pop(); }).shake(); };
    verify_missing: "8446 §4.4.3", "no CertificateVerify", UNEXPECTED_MESSAGE,
        Server13::certificate(), |e| { e.skip(CERTIFICATE_VERIFY).shake(); };
    verify_twice: "8446 §4", "CertificateVerify twice", UNEXPECTED_MESSAGE,
        Server13::certificate(), |e| { e.twice(CERTIFICATE_VERIFY).shake(); };
    verify_of_another_transcript: "8446 §4.4.3", "signature over another transcript", DECRYPT_ERROR,
        Server13::certificate(), |e| {
            let signature = vec16(&PKI.enemy.sign(&signed("server", &[7; 32])));
            e.edit(CERTIFICATE_VERIFY, move |b| *b = [&[4, 3][..], &signature].concat()).shake();
        };
    verify_of_a_client: "8446 §4.4.3", "signature in the words of a client", DECRYPT_ERROR,
        Server13::certificate(), |e| {
            for kind in [SERVER_HELLO, ENCRYPTED_EXTENSIONS, CERTIFICATE] {
                e.step(kind);
            }
            let signature = vec16(&PKI.enemy.sign(&signed("client", &e.schedule.hash())));
            e.plan = vec![CERTIFICATE_VERIFY];
            e.edit(CERTIFICATE_VERIFY, move |b| *b = [&[4, 3][..], &signature].concat()).shake();
        };
    verify_by_another: "8446 §4.4.3", "signature by another key than the certificate's", DECRYPT_ERROR,
        Server13::certificate(), |e| {
            e.proof = &PKI.stranger;
            e.edit(CERTIFICATE, |b| *b = certificate(&PKI.enemy.certificate, &[])).shake();
        };
    verify_by_a_scheme_not_offered: "8446 §4.4.3", "scheme that was not offered: SHA-1", ILLEGAL_PARAMETER,
        Server13::certificate(), |e| { e.edit(CERTIFICATE_VERIFY, |b| b[0] = 2).shake(); };
    verify_by_a_scheme_of_rsa: "8446 §4.4.3", "scheme of RSA with a key of ECDSA", ILLEGAL_PARAMETER,
        Server13::certificate(), |e| {
            e.edit(CERTIFICATE_VERIFY, |b| b[..2].copy_from_slice(&[8, 4])).shake();
        };
    verify_cut_off: "8446 §4.4.3", "CertificateVerify cut off", DECODE_ERROR,
        Server13::certificate(), |e| { e.edit(CERTIFICATE_VERIFY, |b| b.truncate(20)).shake(); };
    finished_missing: "8446 §4.4.4", "no Finished", Stuck,
        Server13::psk(), |e| { e.skip(FINISHED).shake(); };
    finished_early: "8446 §4", "Finished before EncryptedExtensions", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| { e.swap(FINISHED, ENCRYPTED_EXTENSIONS).shake(); };
    finished_wrong: "8446 §4.4.4", "Finished with a bit changed", DECRYPT_ERROR,
        Server13::psk(), |e| { e.edit(FINISHED, |b| b[0] ^= 1).shake(); };
    finished_short: "8446 §4.4.4", "Finished of 31 bytes", DECRYPT_ERROR,
        Server13::psk(), |e| { e.edit(FINISHED, |b| b.truncate(31)).shake(); };
    finished_in_the_clear: "9147 §4", "Finished in epoch 0", Ignored,
        Server13::psk(), |e| { greet(e); let m = wire::message(FINISHED, e.next, &[0; 32]); e.clear(HANDSHAKE, &m); };
    finished_and_more: "8446 §5.1", "a message behind Finished in one record", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| {
            let body = before_finished(e);
            let both = [wire::message(FINISHED, e.next, &body), wire::message(KEY_UPDATE, e.next + 1, &[0])].concat();
            e.send(2, HANDSHAKE, &both);
        };
    finished_twice: "8446 §4", "a second Finished", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| { e.fly(); e.say(2, FINISHED, &[0; 32]); };
    finished_repeated: "9147 §5.8", "Finished once more, with its number", Ignored,
        Server13::psk(), |e| {
            e.fly();
            let m = wire::message(FINISHED, e.next - 1, &[0; 32]);
            e.send(2, HANDSHAKE, &m);
        };
    key_update_before_finished: "8446 §4.6.3", "KeyUpdate before Finished", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| { e.before(FINISHED, KEY_UPDATE).shake(); };
    ticket_before_finished: "8446 §4.6.1", "NewSessionTicket before Finished", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| { e.before(FINISHED, NEW_SESSION_TICKET).shake(); };
    message_of_clients: "8446 §4", "ClientHello by a server", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| { greet(e); e.send(2, HANDSHAKE, &wire::message(CLIENT_HELLO, 1, &[0])); };
    message_unknown: "8446 §4", "a message of type 99", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| { e.before(FINISHED, 99).shake(); };
    message_skipped: "9147 §5.2", "a gap in `message_seq`", Stuck,
        Server13::psk(), |e| { greet(e); e.next += 1; e.shake(); };
    message_and_garbage: "8446 §6.2", "three bytes behind a message", DECODE_ERROR,
        Server13::psk(), |e| {
            greet(e);
            let payload = [wire::message(ENCRYPTED_EXTENSIONS, e.next, &[0, 0]), vec![1, 2, 3]].concat();
            e.send(2, HANDSHAKE, &payload);
        };
    message_too_long: "9147 §5.5", "a fragment of a message of 16 MiB", Ignored,
        Server13::psk(), |e| {
            greet(e);
            // Of a message behind the awaited one.
            e.send(2, HANDSHAKE, &wire::fragment(FINISHED, e.next + 1, 0xff_ffff, 0, &[0; 32]));
        };
    fragments_differ: "9147 §5.5", "fragments that overlap and differ", DECRYPT_ERROR,
        Server13::psk(), |e| {
            let body = before_finished(e);
            e.send(2, HANDSHAKE, &wire::fragment(FINISHED, e.next, 32, 0, &body[..20]));
            e.send(2, HANDSHAKE, &wire::fragment(FINISHED, e.next, 32, 16, &[7; 16]));
        };
    data_under_keys_of_handshake: "9147 §6.1", "data in epoch 2", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| send(e, DATA, b"data");
    data_before_acknowledgement: "9147 §5.8", "data before our Finished is acknowledged", Ignored,
        Server13::psk(), |e| { e.fly(); e.send(3, DATA, b"early"); assert_eq!(e.guest.said, []); };
    handshake_without_content: "8446 §5.4", "a handshake record that holds nothing", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| send(e, HANDSHAKE, &[]);
    alert_without_content: "8446 §5.4", "an alert record that holds nothing", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| send(e, ALERT, &[]);
    alert_short: "8446 §6.2", "an alert of one byte", DECODE_ERROR,
        Server13::psk(), |e| send(e, ALERT, &[2]);
    inner_of_zeros: "8446 §5.4", "a record that holds zeros and no type", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| { greet(e); e.send_inner(2, &[0; 20]); };
    inner_type_unknown: "8446 §5", "a record of an unknown type inside", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| send(e, 99, b"data");
    change_cipher_under_keys: "8446 §5", "ChangeCipherSpec in epoch 2", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| send(e, CHANGE_CIPHER_SPEC, &[1]);
    change_cipher_in_the_clear: "9147 §5", "ChangeCipherSpec in the clear", Ignored,
        Server13::psk(), |e| { greet(e); e.clear(CHANGE_CIPHER_SPEC, &[1]); };
    alert_in_the_clear: "9147 §4.5.2", "a fatal alert in the clear behind ServerHello", Ignored,
        Server13::psk(), |e| { greet(e); e.clear(ALERT, &[2, 40]); };
    alert_fatal: "8446 §6.2", "a fatal alert", Over,
        Server13::psk(), |e| send(e, ALERT, &[2, 40]);
    ack_of_nothing: "9147 §7", "an acknowledgement of records that were never sent", Ignored,
        Server13::psk(), |e| { e.fly(); e.send(3, ACK, &ack(&[(2, 4711), (9, 9)])); };
    ack_malformed: "9147 §7", "an acknowledgement cut off", DECODE_ERROR,
        Server13::psk(), |e| { e.fly(); e.send(3, ACK, &[0, 16, 1]); };
    ack_in_the_clear: "9147 §7", "an acknowledgement in the clear", Ignored,
        Server13::psk(), |e| { greet(e); e.clear(ACK, &ack(&[(0, 0)])); };
    record_of_another_key: "9147 §4.5.2", "a record of epoch 2 under another key", Ignored,
        Server13::psk(), |e| { greet(e); e.raw(&[&[0b0010_1110, 0, 0, 0, 40][..], &[7; 40]].concat()); };
    identifier_unknown: "9147 §9", "EncryptedExtensions with another identifier than ours", Ignored,
        Server13::identified(), |e| {
            greet(e);
            e.cid[7] ^= 1;
            let message = wire::message(ENCRYPTED_EXTENSIONS, e.next, &[0, 0, 0]);
            e.send(2, HANDSHAKE, &message);
            e.cid[7] ^= 1;
        };
    identifier_not_agreed_on: "9147 §9", "the same with an identifier where there is none", Ignored,
        Server13::psk(), |e| {
            greet(e);
            e.cid = vec![7; 8];
            let message = wire::message(ENCRYPTED_EXTENSIONS, e.next, &[0, 0, 0]);
            e.send(2, HANDSHAKE, &message);
            e.cid.clear();
        };
}
