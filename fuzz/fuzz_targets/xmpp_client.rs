//! The XMPP client machine with a server that says anything.
#![no_main]

use fogmux_xmpp::{
    ClientEvent, ClientStream, Limits,
    stream::{ClientConfig, TlsWish},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else { return };
    let mut out = Vec::new();
    let config = ClientConfig { domain: "d".into(), limits: Limits::default(), resource: None, tls: TlsWish::No };
    let mut client = ClientStream::new(config, &mut out);
    let mut buffer = Vec::new();
    for piece in rest.chunks(usize::from(first).max(1)) {
        buffer.extend_from_slice(piece);
        loop {
            let (used, event) = client.handle(&buffer, &mut out);
            let text = event.as_ref().map(|event| format!("{event:?}"));
            let accept = text.as_ref().is_some_and(|text| text.starts_with("Success"));
            let more = matches!(event, Some(ClientEvent::Stanza(_))) || text.is_some();
            buffer.drain(..used);
            if accept {
                client.accept(&mut out);
            }
            if !more {
                break;
            }
        }
    }
});
