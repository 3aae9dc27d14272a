//! WebSocket frames by hand (RFC 6455 §5.2), as a client sends and receives them.

/// A message of text.
pub const TEXT: u8 = 1;
/// A message of bytes.
pub const BINARY: u8 = 2;
/// Are you there?
pub const PING: u8 = 9;
/// I am.
pub const PONG: u8 = 10;

/// A whole message in one frame, masked with zeros.
#[must_use]
pub fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x80 | opcode];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ 0..=125), _) => out.push(0x80 | length),
        (_, Ok(length)) => {
            out.push(0x80 | 126);
            out.extend(length.to_be_bytes());
        }
        _ => {
            out.push(0x80 | 127);
            out.extend((payload.len() as u64).to_be_bytes());
        }
    }
    out.extend([0; 4]);
    out.extend_from_slice(payload);
    out
}

/// Takes the first whole frame of a server off `bytes`: opcode and payload.
#[must_use]
pub fn take_frame(bytes: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let (&[first, second], rest) = bytes.split_first_chunk::<2>()?;
    let (length, header) = match second {
        126 => {
            let (length, _) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*length)), 4)
        }
        127 => {
            let (length, _) = rest.split_first_chunk::<8>()?;
            (usize::try_from(u64::from_be_bytes(*length)).ok()?, 10)
        }
        length => (usize::from(length), 2),
    };
    let payload = bytes.get(header..header + length)?.to_vec();
    bytes.drain(..header + length);
    Some((first & 0x0f, payload))
}
