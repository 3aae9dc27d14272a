//! JSON messages: each line of a batch; one that is read is written as an event and read again to the same message.
#![no_main]

use fogmux_http::{Event, publish};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for (number, line) in publish::lines(data) {
        let decoded = match publish::parse_line(line) {
            Ok(decoded) => decoded,
            Err(problem) => {
                publish::push_refused(number, &problem, &mut Vec::new());
                continue;
            }
        };
        let event = Event {
            id: decoded.id.as_deref().unwrap_or_default(),
            topic: &decoded.topic,
            payload: &decoded.payload,
            content_type: decoded.content_type.as_deref(),
            qos: decoded.qos.unwrap_or_default(),
            retain: decoded.retain,
            time_unix_ms: u64::from(number),
            properties: &decoded.properties,
            reply_to: decoded.reply_to.as_deref(),
            correlation: decoded.correlation.as_deref(),
        };
        let mut again = Vec::new();
        event.encode(&mut again);
        assert!(!again.contains(&b'\n'), "an event is one line");
        let same = publish::parse_line(&again).expect("what we write is right");
        assert_eq!(
            (&same.topic, &same.payload, &same.content_type),
            (&decoded.topic, &decoded.payload, &decoded.content_type)
        );
        assert_eq!((same.retain, &same.properties), (decoded.retain, &decoded.properties));
        assert_eq!((&same.reply_to, &same.correlation), (&decoded.reply_to, &decoded.correlation));
    }
});
