//! CoAP messages: whatever decodes is encoded and decoded again to the same message; as a request it is read with all
//! its options, blocks and queries, and the queries filter links.
#![no_main]

use fogmux_coap::{Block, Encoder, Message, OptionNumber, Request, link_format::Link};
use libfuzzer_sys::fuzz_target;

const LINK: Link<'_> = Link {
    href: "/ps/a",
    resource_types: "core.ps.data temperature-c",
    interfaces: "sensor",
    content_format: Some(50),
    size: Some(7),
    observable: true,
};

fuzz_target!(|data: &[u8]| {
    let Ok(message) = Message::decode(data) else { return };
    let mut again = Vec::new();
    let mut encoder = Encoder::new(&mut again, message.kind, message.code, message.message_id, &message.token);
    for option in message.options() {
        encoder.push(option.number, option.value);
        if option.number == OptionNumber::BLOCK1 || option.number == OptionNumber::BLOCK2 {
            if let Some(block) = option.uint().and_then(Block::decode) {
                assert_eq!(Block::decode(block.encode()), Some(block));
                let _ = block.slice(data);
            }
        }
    }
    encoder.payload(message.payload());
    let same = Message::decode(&again).expect("what we write is right");
    assert_eq!(
        (same.kind, same.code, same.message_id, same.token),
        (message.kind, message.code, message.message_id, message.token)
    );
    assert!(same.options().eq(message.options()) && same.payload() == message.payload());
    if let Ok(request) = Request::parse(message) {
        let _ = request.path().count();
        for query in request.queries() {
            let _ = LINK.matches(&query);
        }
        let _ = request.precondition_holds(None);
    }
});
