//! WebSocket frames: the first byte chooses role and pieces. However the bytes are cut, the same payload comes out and
//! it ends the same way; what is kept is less than a control frame.
#![no_main]

use bytes::BytesMut;
use fogmux_http::websocket::{Incoming, Receiver, Role};
use libfuzzer_sys::fuzz_target;

// Data joined, controls as they came, and the violation that ended it.
fn receive(role: Role, data: &[u8], piece: usize) -> (Vec<u8>, Vec<String>, Option<String>) {
    let mut receiver = Receiver::new(role, 4096);
    let mut buffer = BytesMut::new();
    let (mut bytes, mut controls) = (Vec::new(), Vec::new());
    for piece in data.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            match receiver.receive(&mut buffer) {
                Ok(Some(Incoming::Text { bytes: part, .. } | Incoming::Binary { bytes: part, .. })) => {
                    bytes.extend_from_slice(&part);
                }
                Ok(Some(control)) => controls.push(format!("{control:?}")),
                Ok(None) => break,
                Err(violation) => return (bytes, controls, Some(format!("{violation:?}"))),
            }
        }
        assert!(buffer.len() <= 140, "{} bytes are kept", buffer.len());
    }
    (bytes, controls, None)
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else { return };
    let role = || if first & 0x80 == 0 { Role::Server } else { Role::Client };
    let (_, controls, violation) = receive(role(), rest, rest.len().max(1));
    let (_, same_controls, same_violation) = receive(role(), rest, usize::from(first & 0x7f).max(1));
    // Text cut inside a character may show its violation before or after other data, never a different one.
    assert_eq!((controls, violation), (same_controls, same_violation));
});
