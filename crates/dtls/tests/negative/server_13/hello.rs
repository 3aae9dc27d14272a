//! The two ClientHellos of DTLS 1.3.

use crate::{
    case::{
        Back::{Accepted, Ignored},
        DECODE_ERROR, DECRYPT_ERROR, HANDSHAKE_FAILURE, ILLEGAL_PARAMETER, MISSING_EXTENSION, PROTOCOL_VERSION, cases,
    },
    peer::{
        client_13::{Client13, psks},
        wire::{self, ACK, Extensions as _, HANDSHAKE, V10, ext, kind, vec8, vec16},
    },
};

/// A share of X25519.
fn share(point: &[u8]) -> Vec<u8> {
    vec16(&[&[0, 29][..], &vec16(point)].concat())
}

cases! {
    version_of_tls: "9147 §5.3", "ClientHello of TLS 1.2", PROTOCOL_VERSION,
        Client13::psk(), |e| { e.hello.version = 0x0303; e.greet(); };
    versions_without_ours: "8446 §4.2.1", "`supported_versions` with DTLS 1.0 only", PROTOCOL_VERSION,
        Client13::psk(), |e| { e.hello.put(ext::VERSIONS, &vec8(&V10.to_be_bytes())); e.greet(); };
    versions_of_odd_length: "8446 §4.2.1", "`supported_versions` of 3 bytes", DECODE_ERROR,
        Client13::psk(), |e| { e.hello.put(ext::VERSIONS, &vec8(&[0xfe, 0xfc, 0xfe])); e.greet(); };
    legacy_cookie_at_first: "9147 §5.3", "`legacy_cookie` filled in the first ClientHello", ILLEGAL_PARAMETER,
        Client13::psk(), |e| { e.hello.cookie = vec![1]; e.greet(); };
    legacy_cookie_then: "9147 §5.3", "`legacy_cookie` filled in the second ClientHello", ILLEGAL_PARAMETER,
        Client13::psk(), |e| { e.second(|h| h.cookie = vec![1]).greet(); };
    session_id_of_33_bytes: "8446 §4.1.2", "session identifier of 33 bytes", DECODE_ERROR,
        Client13::psk(), |e| { e.hello.session = vec![1; 33]; e.greet(); };
    session_id_of_32_bytes: "9147 §5.3", "session identifier of 32 bytes: it is not echoed", Accepted,
        Client13::psk(), |e| { e.hello.session = vec![1; 32]; e.greet(); };
    compressions_two: "8446 §4.1.2", "null and DEFLATE as compressions", ILLEGAL_PARAMETER,
        Client13::psk(), |e| { e.hello.compressions = vec![0, 1]; e.greet(); };
    suites_of_nobody: "8446 §4.1.1", "no suite of ours", HANDSHAKE_FAILURE,
        Client13::psk(), |e| { e.hello.suites = vec![0x1303]; e.greet(); };
    suites_change: "8446 §4.1.2", "other suites in the second ClientHello", ILLEGAL_PARAMETER,
        Client13::psk(), |e| { e.second(|h| h.suites = vec![0x1304]).greet(); };
    random_changes: "8446 §4.1.2", "another random number in the second ClientHello", ILLEGAL_PARAMETER,
        Client13::psk(), |e| { e.second(|h| h.random = [7; 32]).greet(); };
    cookie_wrong: "8446 §4.2.2", "a cookie with a bit changed", ILLEGAL_PARAMETER,
        Client13::psk(), |e| { e.second(|h| h.get(ext::COOKIE)[10] ^= 1).greet(); };
    cookie_cut_off: "8446 §4.2.2", "a cookie shorter than it says", DECODE_ERROR,
        Client13::psk(), |e| { e.second(|h| { h.get(ext::COOKIE).pop(); }).greet(); };
    extension_twice: "8446 §4.2", "`supported_groups` twice", ILLEGAL_PARAMETER,
        Client13::psk(), |e| { e.hello.twice(ext::GROUPS); e.greet(); };
    extension_unknown: "8446 §4.1.2", "an unknown extension", Accepted,
        Client13::psk(), |e| { e.hello.put(ext::UNKNOWN, &[1, 2, 3]); e.greet(); };
    extensions_and_a_byte: "8446 §4.1.2", "a byte behind the extensions", DECODE_ERROR,
        Client13::psk(), |e| { e.bytes(|body| body.push(0)).greet(); };
    key_share_missing: "8446 §9.2", "`supported_groups` without `key_share`", MISSING_EXTENSION,
        Client13::psk(), |e| { e.hello.without(ext::KEY_SHARE); e.greet(); };
    key_share_missing_then: "8446 §9.2", "the same in the second ClientHello", MISSING_EXTENSION,
        Client13::psk(), |e| { e.second(|h| h.without(ext::KEY_SHARE)).greet(); };
    groups_missing: "8446 §9.2", "`key_share` without `supported_groups`", MISSING_EXTENSION,
        Client13::psk(), |e| { e.hello.without(ext::GROUPS); e.greet(); };
    schemes_missing: "8446 §9.2", "neither `signature_algorithms` nor a key", MISSING_EXTENSION,
        Client13::certificate(), |e| { e.hello.without(ext::SCHEMES); e.greet(); };
    schemes_unknown: "8446 §4.2.3", "no signature scheme of ours", HANDSHAKE_FAILURE,
        Client13::certificate(), |e| { e.hello.put(ext::SCHEMES, &vec16(&[2, 3])); e.greet(); };
    groups_of_odd_length: "8446 §4.2.7", "`supported_groups` of 3 bytes", DECODE_ERROR,
        Client13::psk(), |e| { e.hello.put(ext::GROUPS, &vec16(&[0, 29, 0])); e.greet(); };
    groups_none: "8446 §4.2.7", "`supported_groups` without a group", DECODE_ERROR,
        Client13::psk(), |e| { e.hello.put(ext::GROUPS, &vec16(&[])); e.greet(); };
    groups_unknown: "8446 §4.1.1", "no group of ours, and a certificate is wanted", HANDSHAKE_FAILURE,
        Client13::certificate(), |e| {
            e.hello.put(ext::GROUPS, &vec16(&[0x47, 0x11]));
            e.hello.put(ext::KEY_SHARE, &vec16(&[]));
            e.second(|h| h.put(ext::KEY_SHARE, &vec16(&[]))).greet();
        };
    key_share_later: "8446 §4.2.8", "an empty list of shares: one is asked for", Accepted,
        Client13::psk(), |e| { e.hello.put(ext::KEY_SHARE, &vec16(&[])); e.greet(); };
    key_share_of_another_group: "8446 §4.2.8", "a share of another group than asked for", ILLEGAL_PARAMETER,
        Client13::psk(), |e| {
            e.hello.put(ext::KEY_SHARE, &vec16(&[]));
            let other = vec16(&[&[0, 23][..], &vec16(&[4; 65])].concat());
            e.second(move |h| h.put(ext::KEY_SHARE, &other)).greet();
        };
    key_share_of_zeros: "8446 §7.4.2", "X25519 key of zeros", ILLEGAL_PARAMETER,
        Client13::psk(), |e| { e.hello.put(ext::KEY_SHARE, &share(&[0; 32])); e.greet(); };
    key_share_short: "8446 §4.2.8.2", "X25519 key of 31 bytes", ILLEGAL_PARAMETER,
        Client13::psk(), |e| { e.hello.put(ext::KEY_SHARE, &share(&[9; 31])); e.greet(); };
    key_share_cut_off: "8446 §4.2.8", "a share shorter than it says", DECODE_ERROR,
        Client13::psk(), |e| { e.hello.put(ext::KEY_SHARE, &vec16(&[0, 29, 0, 32, 1])); e.greet(); };
    psk_modes_missing: "8446 §4.2.9", "`pre_shared_key` without `psk_key_exchange_modes`", MISSING_EXTENSION,
        Client13::psk(), |e| { e.hello.without(ext::PSK_MODES); e.greet(); };
    psk_modes_unknown: "8446 §4.2.9", "an unknown mode only", HANDSHAKE_FAILURE,
        Client13::psk(), |e| { e.hello.put(ext::PSK_MODES, &vec8(&[7])); e.greet(); };
    psk_not_last: "8446 §4.2.11", "`pre_shared_key` before another extension", ILLEGAL_PARAMETER,
        Client13::psk(), |e| { e.hello.extensions.push((ext::UNKNOWN, Vec::new())); e.greet(); };
    psk_identity_empty: "8446 §4.2.11", "an identity of zero bytes", DECODE_ERROR,
        Client13::psk(), |e| { e.hello.put(ext::PRE_SHARED_KEY, &psks(&[b""], 1)); e.greet(); };
    psk_identity_unknown: "8446 §4.2.11", "an unknown identity", DECRYPT_ERROR,
        Client13::psk(), |e| { e.hello.put(ext::PRE_SHARED_KEY, &psks(&[b"nobody"], 1)); e.greet(); };
    binder_wrong: "8446 §4.2.11.2", "a binder with a bit changed", DECRYPT_ERROR,
        Client13::psk(), |e| { e.bytes(|body| *body.last_mut().unwrap() ^= 1).greet(); };
    binder_of_another_hello: "8446 §4.2.11.2", "a ClientHello changed behind its binder", DECRYPT_ERROR,
        Client13::psk(), |e| {
            e.hello.put(ext::UNKNOWN, &[1, 2, 3]);
            // Behind version, random number, two empty vectors, suites, compressions, the length, and its own header.
            e.bytes(|body| body[2 + 32 + 2 + 4 + 2 + 2 + 4] ^= 1).greet();
        };
    binders_more: "8446 §4.2.11", "two binders for one identity", ILLEGAL_PARAMETER,
        Client13::psk(), |e| { e.hello.put(ext::PRE_SHARED_KEY, &psks(&[b"enemy"], 2)); e.greet(); };
    binders_fewer: "8446 §4.2.11", "one binder for two identities", ILLEGAL_PARAMETER,
        Client13::psk(), |e| { e.hello.put(ext::PRE_SHARED_KEY, &psks(&[b"enemy", b"other"], 1)); e.greet(); };
    binder_short: "8446 §4.2.11", "a binder of 31 bytes", DECODE_ERROR,
        Client13::psk(), |e| {
            let names = psks(&[b"enemy"], 0);
            let body = [&names[..names.len() - 2], &vec16(&vec8(&[0; 31]))].concat();
            e.hello.put(ext::PRE_SHARED_KEY, &body);
            e.greet();
        };
    early_data_offered: "8446 §4.2.10", "`early_data`: it is refused by saying nothing of it", Accepted,
        Client13::psk(), |e| {
            e.hello.put(ext::EARLY_DATA, &[]);
            e.second(|h| h.without(ext::EARLY_DATA)).greet();
        };
    early_data_sent: "8446 §4.2.10", "records of epoch 1", Ignored,
        Client13::psk(), |e| e.raw(&[&[0b0010_1101, 0, 0, 0, 40][..], &[7; 40]].concat());
    connection_id_cut_off: "9146 §3", "`connection_id` shorter than it says", DECODE_ERROR,
        Client13::psk(), |e| { e.hello.put(ext::CONNECTION_ID, &[5, 1]); e.greet(); };
    connection_id_of_33_bytes: "9147 §9", "`connection_id` of 33 bytes: none is agreed on", Accepted,
        Client13::psk(), |e| { e.hello.put(ext::CONNECTION_ID, &vec8(&[1; 33])); e.greet(); };
    limit_of_63: "8449 §4", "`record_size_limit` of 63", ILLEGAL_PARAMETER,
        Client13::psk(), |e| { e.hello.limit(63); e.greet(); };
    limit_of_63_then: "8449 §4", "the same in the second ClientHello", ILLEGAL_PARAMETER,
        Client13::psk(), |e| { e.hello.limit(64); e.second(|h| h.limit(63)).greet(); };
    limit_of_one_byte: "8449 §4", "`record_size_limit` of one byte", DECODE_ERROR,
        Client13::psk(), |e| { e.hello.put(ext::RECORD_SIZE_LIMIT, &[64]); e.greet(); };
    limit_of_three_bytes: "8449 §4", "`record_size_limit` of three bytes", DECODE_ERROR,
        Client13::psk(), |e| { e.hello.put(ext::RECORD_SIZE_LIMIT, &[0, 64, 0]); e.greet(); };
    limit_twice: "8446 §4.2", "`record_size_limit` twice", ILLEGAL_PARAMETER,
        Client13::psk(), |e| { e.hello.limit(64); e.hello.twice(ext::RECORD_SIZE_LIMIT); e.greet(); };
    limit_of_64: "8449 §4", "`record_size_limit` of 64: data of 64 bytes and their type are not sent", Accepted,
        Client13::psk(), |e| { e.hello.limit(64); e.gets_at_most(63); };
    limit_of_64_and_identifier: "8449 §4", "the same with an identifier", Accepted,
        Client13::identified(), |e| { e.hello.limit(64); e.gets_at_most(63); };
    limit_of_64_and_certificate: "8449 §4", "`record_size_limit` of 64: our Certificate comes in pieces", Accepted,
        Client13::certificate(), |e| { e.hello.limit(64); e.gets_at_most(63); };
    limit_of_1_2: "8449 §4", "`record_size_limit` of 2^14", Accepted,
        Client13::psk(), |e| { e.hello.limit(1 << 14); e.gets_at_most((1 << 14) - 1); };
    limit_of_the_protocol: "8449 §4", "`record_size_limit` of 2^14 + 1", Accepted,
        Client13::psk(), |e| { e.hello.limit((1 << 14) + 1); e.gets_at_most(1 << 14); };
    limit_above_the_protocol: "8449 §4", "`record_size_limit` of 2^14 + 2, which servers take", Accepted,
        Client13::psk(), |e| { e.hello.limit((1 << 14) + 2); e.gets_at_most(1 << 14); };
    limit_and_fragment_length: "8449 §5", "`max_fragment_length` beside `record_size_limit`: ignored", Accepted,
        Client13::psk(), |e| {
            e.hello.put(ext::MAX_FRAGMENT_LENGTH, &[1]);
            e.hello.limit(1000);
            e.gets_at_most(999);
        };
    hello_in_two_fragments: "9147 §5.1", "ClientHello in two fragments", Ignored,
        Client13::psk(), |e| {
            let body = e.hello.encode();
            for (at, part) in [(0, &body[..20]), (20, &body[20..])] {
                e.clear(HANDSHAKE, &wire::fragment(kind::CLIENT_HELLO, 0, body.len(), at, part));
            }
        };
    ack_in_the_clear: "9147 §7", "an acknowledgement in the clear", Ignored,
        Client13::psk(), |e| e.clear(ACK, &vec16(&[0; 16]));
}
