//! DISCONNECT of a length that no client needs, unread at a takeover: its reason code counts.

use std::io::Write;

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{V5, connect, packet, string, varint};
use fogmux_tests::tcp;

use super::super::client::{Client, Login};
use super::super::wire::Transport;

/// DISCONNECT with this reason code and about so many bytes of user properties (§3.14.2.2.4).
fn disconnect(reason: u8, bytes: usize) -> Vec<u8> {
    let property = [vec![0x26], string(b"n"), string(&[b'v'; 90])].concat();
    let properties = property.repeat(bytes.div_ceil(property.len()));
    packet(0xe0, &[vec![reason], varint(properties.len()), properties].concat())
}

/// Ends by DISCONNECT in the moment of a takeover, with all lengths around those that are read whole.
pub(super) fn whole() -> Result<String> {
    const BYTES: [usize; 7] = [1, 3_900, 4_096, 4_200, 17_000, 66_000, 500_000];
    let mut gateway = Gateway::start(&[])?;
    let mut watcher = Client::open(&gateway, "watcher", Transport::Tcp)?;
    watcher.subscribe(&["wills/#"], 0)?;
    let login = Login { version: V5, will: Some("wills/device"), ..Login::new("device", Transport::Tcp) };
    for (reason, bytes) in BYTES.into_iter().flat_map(|bytes| [(0, bytes), (4, bytes)]) {
        let mut device = Client::login(&gateway, &login)?;
        let mut next = tcp::connect(gateway.address("mqtt")?)?;
        device.send(&disconnect(reason, bytes))?;
        next.write_all(&connect(V5, "device"))?;
        // The new connection's own end has no will.
        next.write_all(&[0xe0, 0])?;
        tcp::read_end(&mut next, tcp::PATIENCE)?;
        drop(device);
        let mut end = Client::open(&gateway, "end", Transport::Tcp)?;
        end.publish_all([("wills/end", b"".as_slice())], 1, false, 1)?;
        let first = watcher.message_or("a will or the end")?.topic;
        let expected = if reason == 0 { "wills/end" } else { "wills/device" };
        ensure!(first == expected, "reason {reason}, {bytes} bytes of properties: {first}");
        if reason != 0 {
            watcher.message_or("the end")?;
        }
    }
    drop(watcher);
    gateway.settle()?;
    Ok(format!("{BYTES:?} bytes"))
}
