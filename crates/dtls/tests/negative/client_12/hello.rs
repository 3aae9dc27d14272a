//! ServerHello and HelloVerifyRequest of DTLS 1.2.

use crate::{
    case::{
        Back::Accepted, DECODE_ERROR, HANDSHAKE_FAILURE, ILLEGAL_PARAMETER, PROTOCOL_VERSION, UNEXPECTED_MESSAGE,
        UNSUPPORTED_EXTENSION, cases,
    },
    peer::{
        server_12::Server12,
        wire::{
            Extensions as _, V10, V13, ext,
            kind::{HELLO_VERIFY_REQUEST, SERVER_HELLO, SERVER_HELLO_DONE},
            vec8, vec16,
        },
    },
};

cases! {
    version_of_dtls_1_0: "5246 §7.4.1.3", "ServerHello of DTLS 1.0", PROTOCOL_VERSION,
        Server12::psk(), |e| { e.hello.version = V10; e.shake(); };
    version_of_dtls_1_3: "9147 §5.4", "ServerHello with 1.3 as its `legacy_version`", PROTOCOL_VERSION,
        Server12::psk(), |e| { e.hello.version = V13; e.shake(); };
    version_not_offered: "8446 §4.2.1", "ServerHello of DTLS 1.2 to a client of 1.3 only", PROTOCOL_VERSION,
        Server12::newer(), |e| { e.skip_greeting().shake(); };
    verify_not_offered: "9147 §5.1", "HelloVerifyRequest to a client of 1.3 only", UNEXPECTED_MESSAGE,
        Server12::newer(), |e| { e.greet(); };
    downgrade_to_1_2: "8446 §4.1.3", "the mark of a server that speaks DTLS 1.3, and 1.2 is chosen", ILLEGAL_PARAMETER,
        Server12::both(), |e| { e.hello.random[24..].copy_from_slice(b"DOWNGRD\x01"); e.shake(); };
    downgrade_to_1_1: "8446 §4.1.3", "the mark of a server that speaks DTLS 1.2, likewise", ILLEGAL_PARAMETER,
        Server12::both(), |e| { e.hello.random[24..].copy_from_slice(b"DOWNGRD\x00"); e.shake(); };
    downgrade_of_an_old_client: "8446 §4.1.3", "the mark, to a client of 1.2 only", Accepted,
        Server12::psk(), |e| { e.hello.random[24..].copy_from_slice(b"DOWNGRD\x01"); e.shake(); };
    session_id_of_32_bytes: "5246 §7.4.1.3", "session identifier of 32 bytes", Accepted,
        Server12::psk(), |e| { e.hello.session = vec![1; 32]; e.shake(); };
    session_id_of_33_bytes: "5246 §7.4.1.3", "session identifier of 33 bytes", DECODE_ERROR,
        Server12::psk(), |e| { e.hello.session = vec![1; 33]; e.shake(); };
    suite_null: "5246 §7.4.1.3", "TLS_NULL_WITH_NULL_NULL", ILLEGAL_PARAMETER,
        Server12::psk(), |e| { e.hello.suite = 0; e.shake(); };
    suite_not_offered: "5246 §7.4.1.3", "a suite that was not offered", ILLEGAL_PARAMETER,
        Server12::psk(), |e| { e.hello.suite = 0xc0a8; e.shake(); };
    suite_of_dtls_1_3: "8446 §4.1.3", "a suite of DTLS 1.3 in version 1.2", ILLEGAL_PARAMETER,
        Server12::both(), |e| { e.hello.suite = 0x1301; e.shake(); };
    compression: "5246 §7.4.1.3", "DEFLATE", ILLEGAL_PARAMETER,
        Server12::psk(), |e| { e.hello.compression = 1; e.shake(); };
    cut_off: "5246 §7.4.1.3", "ServerHello that ends before its compression", DECODE_ERROR,
        Server12::psk(), |e| { e.edit(SERVER_HELLO, |b| b.truncate(37)).shake(); };
    extensions_cut_off: "5246 §7.4.1.4", "extensions cut off", DECODE_ERROR,
        Server12::psk(), |e| { e.edit(SERVER_HELLO, |b| { b.pop(); }).shake(); };
    extensions_and_a_byte: "5246 §7.4.1.4", "a byte behind the extensions", DECODE_ERROR,
        Server12::psk(), |e| { e.edit(SERVER_HELLO, |b| b.push(0)).shake(); };
    extension_twice: "5246 §7.4.1.4", "`extended_master_secret` twice", ILLEGAL_PARAMETER,
        Server12::psk(), |e| { e.hello.twice(ext::EXTENDED_MASTER_SECRET); e.shake(); };
    extension_unknown: "5246 §7.4.1.4", "an unknown extension", UNSUPPORTED_EXTENSION,
        Server12::psk(), |e| { e.hello.put(ext::UNKNOWN, &[]); e.shake(); };
    extension_not_asked_for: "5246 §7.4.1.4", "`connection_id` that was not asked for", UNSUPPORTED_EXTENSION,
        Server12::psk(), |e| { e.hello.put(ext::CONNECTION_ID, &[0]); e.shake(); };
    extension_of_dtls_1_3: "8446 §4.2", "`key_share` in DTLS 1.2", UNSUPPORTED_EXTENSION,
        Server12::both(), |e| { e.hello.put(ext::KEY_SHARE, &[0, 29]); e.shake(); };
    point_formats_not_asked_for: "8422 §5.2", "point formats, though no curve was offered", UNSUPPORTED_EXTENSION,
        Server12::psk(), |e| { e.hello.put(ext::POINT_FORMATS, &vec8(&[0])); e.shake(); };
    point_formats_without_uncompressed: "8422 §5.1.2", "point formats without uncompressed", ILLEGAL_PARAMETER,
        Server12::certificate(), |e| { e.hello.put(ext::POINT_FORMATS, &vec8(&[1])); e.shake(); };
    schemes: "5246 §7.4.1.4.1", "`signature_algorithms`, which servers do not send", UNSUPPORTED_EXTENSION,
        Server12::certificate(), |e| { e.hello.put(ext::SCHEMES, &vec16(&[4, 3])); e.shake(); };
    server_name_filled: "6066 §3", "`server_name` with content", DECODE_ERROR,
        Server12::certificate(), |e| { e.hello.put(ext::SERVER_NAME, &[1]); e.shake(); };
    extended_master_secret_filled: "7627 §5.1", "`extended_master_secret` with content", DECODE_ERROR,
        Server12::psk(), |e| { e.hello.put(ext::EXTENDED_MASTER_SECRET, &[7]); e.shake(); };
    renegotiation_info_filled: "5746 §3.4", "`renegotiation_info` with content", HANDSHAKE_FAILURE,
        Server12::psk(), |e| { e.hello.put(ext::RENEGOTIATION_INFO, &vec8(&[7])); e.shake(); };
    connection_id_cut_off: "9146 §3", "`connection_id` shorter than it says", DECODE_ERROR,
        Server12::identified(), |e| { e.hello.put(ext::CONNECTION_ID, &[5, 1]); e.shake(); };
    connection_id_of_33_bytes: "9146 §3", "`connection_id` of 33 bytes", ILLEGAL_PARAMETER,
        Server12::identified(), |e| { e.hello.put(ext::CONNECTION_ID, &vec8(&[1; 33])); e.shake(); };
    limit_of_63: "8449 §4", "`record_size_limit` of 63", ILLEGAL_PARAMETER,
        Server12::psk(), |e| { e.hello.limit(63); e.shake(); };
    limit_of_one_byte: "8449 §4", "`record_size_limit` of one byte", DECODE_ERROR,
        Server12::psk(), |e| { e.hello.put(ext::RECORD_SIZE_LIMIT, &[64]); e.shake(); };
    limit_of_three_bytes: "8449 §4", "`record_size_limit` of three bytes", DECODE_ERROR,
        Server12::psk(), |e| { e.hello.put(ext::RECORD_SIZE_LIMIT, &[0, 64, 0]); e.shake(); };
    limit_twice: "5246 §7.4.1.4", "`record_size_limit` twice", ILLEGAL_PARAMETER,
        Server12::psk(), |e| { e.hello.limit(64); e.hello.twice(ext::RECORD_SIZE_LIMIT); e.shake(); };
    limit_of_64: "8449 §4", "`record_size_limit` of 64: data of 65 bytes are not sent", Accepted,
        Server12::psk(), |e| { e.hello.limit(64); e.gets_at_most(64); };
    limit_of_64_and_identifier: "8449 §4", "the same with an identifier: 64 bytes are not sent", Accepted,
        Server12::identified(), |e| { e.hello.limit(64); e.gets_at_most(63); };
    limit_of_64_and_certificate: "8449 §4", "the same with certificates: ours comes in pieces", Accepted,
        Server12::certificate(), |e| { e.hello.limit(64); e.gets_at_most(64); };
    limit_of_the_protocol: "8449 §4", "`record_size_limit` of 2^14", Accepted,
        Server12::psk(), |e| { e.hello.limit(1 << 14); e.gets_at_most(1 << 14); };
    limit_above_the_protocol: "8449 §4", "`record_size_limit` of 2^14 + 1, which is as good as 2^14", Accepted,
        Server12::psk(), |e| { e.hello.limit((1 << 14) + 1); e.gets_at_most(1 << 14); };
    limit_for_both_versions: "8449 §4", "`record_size_limit` of 1000, to a client of both versions", Accepted,
        Server12::both(), |e| { e.hello.limit(1000); e.gets_at_most(1000); };
    limit_and_fragment_length: "8449 §5", "`max_fragment_length` beside `record_size_limit`", UNSUPPORTED_EXTENSION,
        Server12::psk(), |e| { e.hello.limit(64); e.hello.put(ext::MAX_FRAGMENT_LENGTH, &[1]); e.shake(); };
    verify_twice: "6347 §4.2.1", "two HelloVerifyRequests: the second cookie counts", Accepted,
        Server12::psk(), |e| { e.greet(); e.verify(); e.shake(); };
    verify_late: "6347 §4.2.1", "HelloVerifyRequest behind ServerHello", UNEXPECTED_MESSAGE,
        Server12::psk(), |e| { e.before(SERVER_HELLO_DONE, HELLO_VERIFY_REQUEST).shake(); };
    verify_cut_off: "6347 §4.2.1", "HelloVerifyRequest cut off", DECODE_ERROR,
        Server12::psk(), |e| { e.skip_greeting().step(HELLO_VERIFY_REQUEST); };
    verify_and_a_byte: "6347 §4.2.1", "a byte behind the cookie", DECODE_ERROR,
        Server12::psk(), |e| {
            e.skip_greeting().edit(HELLO_VERIFY_REQUEST, |b| *b = vec![0xfe, 0xff, 1, 7, 0]).step(HELLO_VERIFY_REQUEST);
        };
}
