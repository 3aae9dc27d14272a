//! ServerHello and HelloRetryRequest of DTLS 1.3.

use fogmux_dtls::Suite;

use crate::{
    case::{
        Back::{Accepted, Over},
        DECODE_ERROR, ILLEGAL_PARAMETER, MISSING_EXTENSION, PROTOCOL_VERSION, UNEXPECTED_MESSAGE,
        UNSUPPORTED_EXTENSION, cases,
    },
    peer::{
        server_13::Server13,
        wire::{
            ALERT, Extensions as _, V10, V12, ext,
            kind::{ENCRYPTED_EXTENSIONS, HELLO_VERIFY_REQUEST, SERVER_HELLO},
            vec8, vec16,
        },
    },
};

/// A share of X25519.
fn share(point: &[u8]) -> Vec<u8> {
    [&[0, 29][..], &vec16(point)].concat()
}

cases! {
    version_of_dtls_1_0: "8446 §4.1.3", "`legacy_version` of DTLS 1.0", ILLEGAL_PARAMETER,
        Server13::psk(), |e| { e.hello.version = V10; e.shake(); };
    versions_missing: "8446 §4.2.1", "no `supported_versions`, to a client of 1.3 only", PROTOCOL_VERSION,
        Server13::psk(), |e| { e.hello.without(ext::VERSIONS); e.shake(); };
    versions_of_1_2: "8446 §4.2.1", "`supported_versions` with DTLS 1.2", ILLEGAL_PARAMETER,
        Server13::both(), |e| { e.hello.put(ext::VERSIONS, &V12.to_be_bytes()); e.shake(); };
    versions_of_4_bytes: "8446 §4.2.1", "`supported_versions` with two versions", DECODE_ERROR,
        Server13::psk(), |e| { e.hello.put(ext::VERSIONS, &[0xfe, 0xfc, 0xfe, 0xfd]); e.shake(); };
    versions_not_asked_for: "8446 §4.2.1", "`supported_versions`, to a client of 1.2 only", UNSUPPORTED_EXTENSION,
        Server13::older(), |e| {
            e.hello.suite = Suite::PskAes128Gcm.number();
            e.hello.without(ext::KEY_SHARE);
            e.hello.without(ext::PRE_SHARED_KEY);
            e.shake();
        };
    session_id_echoed: "9147 §5.3", "a session identifier", ILLEGAL_PARAMETER,
        Server13::psk(), |e| { e.hello.session = vec![1; 4]; e.shake(); };
    suite_not_offered: "8446 §4.1.3", "a suite that was not offered", ILLEGAL_PARAMETER,
        Server13::psk(), |e| { e.hello.suite = 0x1304; e.shake(); };
    suite_of_1_2: "8446 §4.1.3", "a suite of DTLS 1.2 in version 1.3", ILLEGAL_PARAMETER,
        Server13::both(), |e| { e.hello.suite = Suite::PskAes128Gcm.number(); e.shake(); };
    compression: "8446 §4.1.3", "DEFLATE", ILLEGAL_PARAMETER,
        Server13::psk(), |e| { e.hello.compression = 1; e.shake(); };
    cut_off: "8446 §4.1.3", "ServerHello that ends before its compression", DECODE_ERROR,
        Server13::psk(), |e| { e.edit(SERVER_HELLO, |b| b.truncate(37)).shake(); };
    extensions_cut_off: "8446 §4.2", "extensions cut off", DECODE_ERROR,
        Server13::psk(), |e| { e.edit(SERVER_HELLO, |b| { b.pop(); }).shake(); };
    extensions_and_a_byte: "8446 §4.2", "a byte behind the extensions", DECODE_ERROR,
        Server13::psk(), |e| { e.edit(SERVER_HELLO, |b| b.push(0)).shake(); };
    extension_twice: "8446 §4.2", "`key_share` twice", ILLEGAL_PARAMETER,
        Server13::psk(), |e| { e.hello.twice(ext::KEY_SHARE); e.shake(); };
    extension_unknown: "8446 §4.2", "an extension that was not asked for", UNSUPPORTED_EXTENSION,
        Server13::psk(), |e| { e.hello.put(ext::UNKNOWN, &[]); e.shake(); };
    extension_of_another_message: "8446 §4.2", "`supported_groups`, which belongs elsewhere", ILLEGAL_PARAMETER,
        Server13::psk(), |e| { e.hello.put(ext::GROUPS, &vec16(&[0, 29])); e.shake(); };
    key_share_missing: "8446 §9.2", "neither `key_share` nor a key", MISSING_EXTENSION,
        Server13::certificate(), |e| { e.hello.without(ext::KEY_SHARE); e.shake(); };
    key_share_not_needed: "8446 §4.2.9", "no `key_share` with a key: `psk_ke` was offered", Accepted,
        Server13::psk(), |e| { e.hello.without(ext::KEY_SHARE); e.shake(); };
    key_share_not_asked_for: "8446 §4.2", "`key_share`, to a client that wants no key exchange", UNSUPPORTED_EXTENSION,
        Server13::psk_only(), |e| { e.hello.put(ext::KEY_SHARE, &share(&[9; 32])); e.shake(); };
    key_share_of_another_group: "8446 §4.2.8", "a share of another group than was offered", ILLEGAL_PARAMETER,
        Server13::psk(), |e| {
            e.hello.put(ext::KEY_SHARE, &[&[0, 23][..], &vec16(&[4; 65])].concat());
            e.shake();
        };
    key_share_of_zeros: "8446 §7.4.2", "X25519 key of zeros", ILLEGAL_PARAMETER,
        Server13::psk(), |e| { e.hello.put(ext::KEY_SHARE, &share(&[0; 32])); e.shake(); };
    key_share_short: "8446 §4.2.8.2", "X25519 key of 31 bytes", ILLEGAL_PARAMETER,
        Server13::psk(), |e| { e.hello.put(ext::KEY_SHARE, &share(&[9; 31])); e.shake(); };
    key_share_cut_off: "8446 §4.2.8", "a share shorter than it says", DECODE_ERROR,
        Server13::psk(), |e| { e.hello.get(ext::KEY_SHARE).pop(); e.shake(); };
    psk_not_offered: "8446 §4.2.11", "`pre_shared_key`, to a client without a key", UNSUPPORTED_EXTENSION,
        Server13::certificate(), |e| { e.hello.put(ext::PRE_SHARED_KEY, &[0, 0]); e.shake(); };
    psk_of_another_index: "8446 §4.2.11", "the second identity of one", ILLEGAL_PARAMETER,
        Server13::psk(), |e| { e.hello.put(ext::PRE_SHARED_KEY, &[0, 1]); e.shake(); };
    psk_of_3_bytes: "8446 §4.2.11", "`pre_shared_key` of 3 bytes", DECODE_ERROR,
        Server13::psk(), |e| { e.hello.put(ext::PRE_SHARED_KEY, &[0, 0, 0]); e.shake(); };
    connection_id_not_asked_for: "9147 §9", "`connection_id` that was not asked for", UNSUPPORTED_EXTENSION,
        Server13::psk(), |e| { e.hello.put(ext::CONNECTION_ID, &vec8(b"cid")); e.shake(); };
    connection_id_cut_off: "9146 §3", "`connection_id` shorter than it says", DECODE_ERROR,
        Server13::identified(), |e| { e.hello.put(ext::CONNECTION_ID, &[5, 1]); e.shake(); };
    connection_id_of_33_bytes: "9147 §9", "`connection_id` of 33 bytes", ILLEGAL_PARAMETER,
        Server13::identified(), |e| { e.hello.put(ext::CONNECTION_ID, &vec8(&[1; 33])); e.shake(); };
    limit_of_another_message: "8449 §4", "`record_size_limit`, which belongs elsewhere", ILLEGAL_PARAMETER,
        Server13::psk(), |e| { e.hello.limit(64); e.shake(); };
    other_message_first: "8446 §4", "EncryptedExtensions in the clear instead of ServerHello", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| e.say_clear(ENCRYPTED_EXTENSIONS, &[0, 0]);
    alert_fatal_in_the_clear: "8446 §6.2", "a fatal alert instead of ServerHello", Over,
        Server13::psk(), |e| e.clear(ALERT, &[2, 40]);
    retry: "8446 §4.1.4", "HelloRetryRequest with a cookie", Accepted,
        Server13::psk(), |e| { e.retry_cookie().shake(); };
    retry_twice: "8446 §4.1.4", "a second HelloRetryRequest", UNEXPECTED_MESSAGE,
        Server13::psk(), |e| { e.retry_cookie().retry_cookie(); };
    retry_for_nothing: "8446 §4.1.4", "HelloRetryRequest that changes nothing", ILLEGAL_PARAMETER,
        Server13::psk(), |e| { e.retry(&[]); };
    retry_for_the_same_group: "8446 §4.2.8", "HelloRetryRequest for the group of the share", ILLEGAL_PARAMETER,
        Server13::psk(), |e| { e.retry(&[(ext::KEY_SHARE, vec![0, 29])]); };
    retry_for_a_group_not_offered: "8446 §4.2.8", "HelloRetryRequest for P-256, which was not offered",
        ILLEGAL_PARAMETER,
        Server13::psk(), |e| { e.retry(&[(ext::KEY_SHARE, vec![0, 23])]); };
    retry_group_of_3_bytes: "8446 §4.2.8", "HelloRetryRequest whose `key_share` has 3 bytes", DECODE_ERROR,
        Server13::psk(), |e| { e.retry(&[(ext::KEY_SHARE, vec![0, 23, 0])]); };
    retry_cookie_empty: "8446 §4.2.2", "HelloRetryRequest with a cookie of zero bytes", DECODE_ERROR,
        Server13::psk(), |e| { e.retry(&[(ext::COOKIE, vec16(b""))]); };
    retry_cookie_cut_off: "8446 §4.2.2", "HelloRetryRequest with a cookie shorter than it says", DECODE_ERROR,
        Server13::psk(), |e| { e.retry(&[(ext::COOKIE, vec![0, 9, 1])]); };
    retry_extension_unknown: "8446 §4.1.4", "HelloRetryRequest with an unknown extension", UNSUPPORTED_EXTENSION,
        Server13::psk(), |e| { e.retry(&[(ext::UNKNOWN, Vec::new()), (ext::COOKIE, vec16(b"cookie"))]); };
    retry_limit: "8449 §4", "HelloRetryRequest with `record_size_limit`", ILLEGAL_PARAMETER,
        Server13::psk(), |e| { e.retry(&[(ext::RECORD_SIZE_LIMIT, vec![0, 64]), (ext::COOKIE, vec16(b"cookie"))]); };
    retry_suite_not_offered: "8446 §4.1.4", "HelloRetryRequest with a suite that was not offered", ILLEGAL_PARAMETER,
        Server13::psk(), |e| { e.hello.suite = 0x1304; e.retry_cookie(); };
    retry_and_1_2: "8446 §4.1.4", "ServerHello of DTLS 1.2 after a HelloRetryRequest", ILLEGAL_PARAMETER,
        Server13::both(), |e| {
            e.retry_cookie();
            e.hello.suite = Suite::PskAes128Gcm.number();
            e.hello.extensions.clear();
            e.shake();
        };
    retry_and_verify: "9147 §5.1", "HelloVerifyRequest after a HelloRetryRequest", UNEXPECTED_MESSAGE,
        Server13::both(), |e| {
            e.retry_cookie();
            e.say_clear(HELLO_VERIFY_REQUEST, &[&V10.to_be_bytes()[..], &vec8(b"cookie")].concat());
        };
}
