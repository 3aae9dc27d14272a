//! The XMPP server machine with a client that says anything: cut anywhere it is the same stream, and what comes out of
//! it is read as far as the pubsub service reads it. Everybody is believed, so that the fuzzer gets past the login.
#![no_main]

use std::{sync::Arc, time::Duration};

use fogmux_xmpp::{
    IqHead, Jid, Limits, Query, ServerConfig, ServerEvent, ServerStream,
    stream::{Offer, StartTls},
};
use libfuzzer_sys::fuzz_target;

fn serve(data: &[u8], piece: usize) -> (Vec<String>, Vec<u8>) {
    let config = ServerConfig {
        domain: Jid::parse("d").expect("valid"),
        limits: Limits { stanza_bytes_max: 4096, ..Limits::default() },
        login_timeout: Duration::from_secs(1),
    };
    let mechanisms = vec!["PLAIN", "SCRAM-SHA-256"];
    let offer = Offer { starttls: StartTls::Unavailable, mechanisms, channel_bindings: vec!["tls-exporter"] };
    let mut server = ServerStream::new(Arc::new(config), offer, 1, Duration::ZERO);
    let (mut events, mut out, mut buffer) = (Vec::new(), Vec::new(), Vec::new());
    for piece in data.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            let (used, event) = server.handle(&buffer, &mut out);
            let described = event.as_ref().map(|event| format!("{event:?}"));
            let mut bind = None;
            let mut login = false;
            match event {
                Some(ServerEvent::Authenticate { .. } | ServerEvent::Response(_)) => login = true,
                Some(ServerEvent::Bind(request)) => bind = Some(request),
                Some(ServerEvent::Stanza(stanza)) => {
                    if let Ok(head) = IqHead::of(&stanza) {
                        let _ = Query::of(&stanza, head.kind);
                    }
                }
                _ => {}
            }
            buffer.drain(..used);
            let Some(described) = described else { break };
            events.push(described);
            if login {
                server.succeed(Jid::parse("a@d").expect("valid"), None, &mut out);
            }
            if let Some(bind) = bind {
                server.bound(&bind, Jid::parse("a@d/r").expect("valid"), &mut out);
            }
        }
        assert!(buffer.len() <= 8192, "{} bytes are kept", buffer.len());
    }
    (events, out)
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else { return };
    let whole = serve(rest, rest.len().max(1));
    assert_eq!(serve(rest, usize::from(first).max(1)), whole);
});
