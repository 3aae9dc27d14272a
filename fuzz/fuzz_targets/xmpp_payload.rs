//! The forms of a message's bytes inside a pubsub item: whatever the bytes and the type, what is written is one element
//! that a parser accepts, and the same bytes and type come out of it.
#![no_main]

use fogmux_xmpp::{Limits, Payload, Scope, parse, payload};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&first, bytes)) = data.split_first() else { return };
    let own;
    let (content_type, bytes) = match first % 4 {
        0 => (None, bytes),
        1 => (Some(payload::APPLICATION_JSON), bytes),
        2 => (Some(payload::APPLICATION_XML), bytes),
        _ => {
            let at = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(0);
            own = String::from_utf8_lossy(&bytes[..at]).into_owned();
            (Some(own.as_str()), &bytes[at..])
        }
    };
    let mut out =
        b"<message><event xmlns='http://jabber.org/protocol/pubsub#event'><items node='n'><item id='i'>".to_vec();
    payload::write(&mut out, content_type, bytes);
    out.extend_from_slice(b"</item></items></event></message>");
    let limits = Limits { stanza_bytes_max: 8 << 20, ..Limits::default() };
    let message = parse::stanza(&out, &Scope::default(), &limits).expect("what we write is right");
    let item =
        message.elements().next().and_then(|event| event.elements().next()).and_then(|items| items.elements().next());
    let read = Payload::of_item(item.expect("there is an item")).expect("and a payload").expect("one");
    // XML without a namespace has to say so where it stands inside others.
    let undeclared = b" xmlns=''";
    let said = read.bytes.windows(undeclared.len()).position(|window| window == undeclared);
    let without = said.map(|at| [&read.bytes[..at], &read.bytes[at + undeclared.len()..]].concat());
    assert!(*read.bytes == *bytes || (first % 4 == 2 && without.as_deref() == Some(bytes)), "{read:?}");
    // A type that XML cannot say is left out.
    let sayable = content_type.filter(|kind| kind.chars().all(|c| c >= ' ' && c != '\u{fffe}' && c != '\u{ffff}'));
    if sayable == content_type {
        assert_eq!(read.content_type, content_type);
    }
});
