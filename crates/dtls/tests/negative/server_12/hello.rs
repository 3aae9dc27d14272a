//! The ClientHello of DTLS 1.2, and records before it.

use crate::{
    case::{
        Back::{Accepted, Ignored},
        DECODE_ERROR, HANDSHAKE_FAILURE, ILLEGAL_PARAMETER, PROTOCOL_VERSION, cases,
    },
    peer::{
        client_12::Client12,
        wire::{
            self, ALERT, CHANGE_CIPHER_SPEC, DATA, Extensions as _, HANDSHAKE, V10, ext, kind, number, vec8, vec16,
        },
    },
};

/// A ClientHello with a change of its bytes.
fn bent(enemy: &mut Client12, bend: fn(&mut Vec<u8>)) {
    let mut body = enemy.hello.encode();
    bend(&mut body);
    enemy.say(kind::CLIENT_HELLO, &body);
}

/// A record in the clear with a whole ClientHello, of this number.
fn numbered(enemy: &mut Client12, record: u64, message: u16) {
    let message = wire::message(kind::CLIENT_HELLO, message, &enemy.hello.encode());
    enemy.raw(&wire::record(HANDSHAKE, record, &message));
}

cases! {
    version_of_dtls_1_0: "5246 §E.1", "ClientHello of DTLS 1.0", PROTOCOL_VERSION,
        Client12::psk(), |e| { e.hello.version = V10; e.greet(); };
    version_of_tls: "6347 §4.2.1", "ClientHello of TLS 1.2", PROTOCOL_VERSION,
        Client12::psk(), |e| { e.hello.version = 0x0303; e.greet(); };
    versions_without_ours: "8446 §4.2.1", "`supported_versions` with DTLS 1.0 only", PROTOCOL_VERSION,
        Client12::psk(), |e| { e.hello.put(ext::VERSIONS, &vec8(&V10.to_be_bytes())); e.greet(); };
    session_id_of_33_bytes: "5246 §7.4.1.2", "session identifier of 33 bytes", DECODE_ERROR,
        Client12::psk(), |e| { e.hello.session = vec![1; 33]; e.greet(); };
    suites_of_odd_length: "5246 §7.4.1.2", "cipher suites of 3 bytes", DECODE_ERROR,
        Client12::psk(), |e| bent(e, |body| { body[37] = 3; body.remove(41); });
    suites_of_nobody: "5246 §7.4.1.3", "TLS_NULL_WITH_NULL_NULL as the only suite", HANDSHAKE_FAILURE,
        Client12::psk(), |e| { e.hello.suites = vec![0]; e.greet(); };
    suites_none: "5246 §7.4.1.3", "no cipher suite", HANDSHAKE_FAILURE,
        Client12::psk(), |e| { e.hello.suites = Vec::new(); e.greet(); };
    compression_without_null: "5246 §7.4.1.2", "DEFLATE as the only compression", ILLEGAL_PARAMETER,
        Client12::psk(), |e| { e.hello.compressions = vec![1]; e.greet(); };
    extension_twice: "5246 §7.4.1.4", "`supported_groups` twice", ILLEGAL_PARAMETER,
        Client12::psk(), |e| { e.hello.twice(ext::GROUPS); e.greet(); };
    extension_unknown: "5246 §7.4.1.4", "an unknown extension", Accepted,
        Client12::psk(), |e| { e.hello.put(ext::UNKNOWN, &[1, 2, 3]); e.greet(); };
    extensions_cut_off: "5246 §7.4.1.2", "extensions cut off", DECODE_ERROR,
        Client12::psk(), |e| bent(e, |body| { body.pop(); });
    extensions_and_a_byte: "5246 §7.4.1.2", "a byte behind the extensions", DECODE_ERROR,
        Client12::psk(), |e| bent(e, |body| body.push(0));
    groups_of_odd_length: "8422 §5.1.1", "`supported_groups` of 3 bytes", DECODE_ERROR,
        Client12::psk(), |e| { e.hello.put(ext::GROUPS, &vec16(&[0, 29, 0])); e.greet(); };
    groups_none: "8422 §5.1.1", "`supported_groups` without a group", DECODE_ERROR,
        Client12::psk(), |e| { e.hello.put(ext::GROUPS, &vec16(&[])); e.greet(); };
    groups_unknown: "8422 §5.1", "no group of ours, for an ECDHE suite", HANDSHAKE_FAILURE,
        Client12::certificate(), |e| { e.hello.put(ext::GROUPS, &vec16(&[0x47, 0x11])); e.greet(); };
    schemes_unknown: "5246 §7.4.1.4.1", "no signature scheme of ours", HANDSHAKE_FAILURE,
        Client12::certificate(), |e| { e.hello.put(ext::SCHEMES, &vec16(&[2, 3])); e.greet(); };
    point_formats_without_uncompressed: "8422 §5.1.2", "point formats without uncompressed", ILLEGAL_PARAMETER,
        Client12::psk(), |e| { e.hello.put(ext::POINT_FORMATS, &vec8(&[1])); e.greet(); };
    renegotiation_info_filled: "5746 §3.6", "`renegotiation_info` with content", HANDSHAKE_FAILURE,
        Client12::psk(), |e| { e.hello.put(ext::RENEGOTIATION_INFO, &vec8(&[7])); e.greet(); };
    extended_master_secret_filled: "7627 §5.1", "`extended_master_secret` with content", DECODE_ERROR,
        Client12::psk(), |e| { e.hello.put(ext::EXTENDED_MASTER_SECRET, &[7]); e.greet(); };
    connection_id_cut_off: "9146 §3", "`connection_id` shorter than it says", DECODE_ERROR,
        Client12::psk(), |e| { e.hello.put(ext::CONNECTION_ID, &[5, 1]); e.greet(); };
    connection_id_of_33_bytes: "9146 §3", "`connection_id` of 33 bytes: none is agreed on", Accepted,
        Client12::psk(), |e| { e.hello.put(ext::CONNECTION_ID, &vec8(&[1; 33])); e.greet(); };
    limit_of_63: "8449 §4", "`record_size_limit` of 63", ILLEGAL_PARAMETER,
        Client12::psk(), |e| { e.hello.limit(63); e.greet(); };
    limit_of_one_byte: "8449 §4", "`record_size_limit` of one byte", DECODE_ERROR,
        Client12::psk(), |e| { e.hello.put(ext::RECORD_SIZE_LIMIT, &[64]); e.greet(); };
    limit_of_three_bytes: "8449 §4", "`record_size_limit` of three bytes", DECODE_ERROR,
        Client12::psk(), |e| { e.hello.put(ext::RECORD_SIZE_LIMIT, &[0, 64, 0]); e.greet(); };
    limit_twice: "5246 §7.4.1.4", "`record_size_limit` twice", ILLEGAL_PARAMETER,
        Client12::psk(), |e| { e.hello.limit(64); e.hello.twice(ext::RECORD_SIZE_LIMIT); e.greet(); };
    limit_of_64: "8449 §4", "`record_size_limit` of 64: data of 65 bytes are not sent", Accepted,
        Client12::psk(), |e| { e.hello.limit(64); e.gets_at_most(64); };
    limit_of_64_and_identifier: "8449 §4", "the same with an identifier: 64 bytes are not sent", Accepted,
        Client12::identified(), |e| {
            e.hello.limit(64);
            e.gets_at_most(63);
        };
    limit_of_64_and_certificate: "8449 §4", "the same with certificates: ours comes in pieces", Accepted,
        Client12::certificate(), |e| { e.hello.limit(64); e.gets_at_most(64); };
    limit_of_the_protocol: "8449 §4", "`record_size_limit` of 2^14", Accepted,
        Client12::psk(), |e| { e.hello.limit(1 << 14); e.gets_at_most(1 << 14); };
    limit_above_the_protocol: "8449 §4", "`record_size_limit` of 2^14 + 1, which servers take", Accepted,
        Client12::psk(), |e| { e.hello.limit((1 << 14) + 1); e.gets_at_most(1 << 14); };
    limit_and_fragment_length: "8449 §5", "`max_fragment_length` beside `record_size_limit`: ignored", Accepted,
        Client12::psk(), |e| {
            e.hello.put(ext::MAX_FRAGMENT_LENGTH, &[1]);
            e.hello.limit(1000);
            e.gets_at_most(1000);
        };
    cookie_of_nobody: "6347 §4.2.1", "a cookie that we have not made: another is sent", Accepted,
        Client12::psk(), |e| { e.hello.cookie = vec![1; 16]; e.greet(); };
    hello_in_two_fragments: "6347 §4.2.1", "ClientHello in two fragments", Ignored,
        Client12::psk(), |e| {
            let body = e.hello.encode();
            for (at, part) in [(0, &body[..20]), (20, &body[20..])] {
                e.send_in(HANDSHAKE, &wire::fragment(kind::CLIENT_HELLO, 0, body.len(), at, part), 0);
            }
        };
    hello_of_another_epoch: "6347 §4.1", "ClientHello in the clear in epoch 1", Ignored,
        Client12::psk(), |e| numbered(e, number(1, 0), 0);
    hello_of_the_last_record: "6347 §4.1", "ClientHello in a record of number 2^48 - 1", Ignored,
        Client12::psk(), |e| numbered(e, (1 << 48) - 1, 0);
    hello_of_the_last_message: "6347 §4.2.2", "ClientHello with `message_seq` 65535", Ignored,
        Client12::psk(), |e| numbered(e, 0, u16::MAX);
    other_message_first: "6347 §4.2.4", "Finished instead of a ClientHello", Ignored,
        Client12::psk(), |e| { let m = wire::message(kind::FINISHED, 0, &[0; 12]); e.send_in(HANDSHAKE, &m, 0); };
    record_without_content: "6347 §4.1.2.7", "a record of zero bytes of each type", Ignored,
        Client12::psk(), |e| for content in 19..28 { e.raw(&wire::record(content, 0, &[])) };
    record_of_another_type: "6347 §4.1.2.7", "data, alert and ChangeCipherSpec before the ClientHello", Ignored,
        Client12::psk(), |e| {
            for (content, payload) in [(DATA, &b"data"[..]), (ALERT, &[2, 40]), (CHANGE_CIPHER_SPEC, &[1])] {
                e.send_in(content, payload, 0);
            }
        };
    record_longer_than_its_datagram: "6347 §4.1.2.7", "a record cut off", Ignored,
        Client12::psk(), |e| {
            let message = wire::message(kind::CLIENT_HELLO, 0, &e.hello.encode());
            let mut datagram = e.clear(HANDSHAKE, &message);
            datagram.pop();
            e.raw(&datagram);
        };
}
