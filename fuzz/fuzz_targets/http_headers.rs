//! HTTP field values: one a line, each given to every reader of values.
#![no_main]

use fogmux_http::{
    accept, authorization,
    condition::{Access, Conditions, Validators, format_etag},
    idempotency,
    sse::EventId,
};
use http::{HeaderMap, HeaderValue, header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut headers = HeaderMap::new();
    for line in data.split(|&byte| byte == b'\n').take(16) {
        let _ = (authorization::parse(line), idempotency::key(line));
        if let Ok(text) = std::str::from_utf8(line) {
            let _ = accept::quality(std::iter::once(text), "application/json");
            let _ = accept::choose(&[text], &["text/event-stream", "application/x-ndjson"]);
            if let Ok(id) = text.parse::<EventId>() {
                assert_eq!(id.to_string().parse(), Ok(id));
            }
        }
        let Ok(value) = HeaderValue::from_bytes(line) else { continue };
        for name in [header::IF_MATCH, header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE] {
            headers.append(name, value.clone());
        }
        for name in [header::CONNECTION, header::UPGRADE, header::SEC_WEBSOCKET_KEY, header::SEC_WEBSOCKET_VERSION] {
            headers.insert(name, value.clone());
        }
        let _ = fogmux_http::websocket::handshake::accept(&headers);
    }
    let _ = format_etag(7);
    let conditions = Conditions::of(&headers);
    for current in [None, Some(Validators { etag: 7, modified_unix_ms: 1_790_000_000_000 })] {
        for access in [Access::Read, Access::Write] {
            let _ = conditions.evaluate(access, current);
        }
    }
});
