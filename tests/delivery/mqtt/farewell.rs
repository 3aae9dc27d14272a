//! DISCONNECT that the gateway reads late, because its client's publications make it pause: the will is void
//! ([MQTT-3.14.4-3]).

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, V4};
use fogmux_tests::suite::Case;

use super::client::{Came, Client, Login};
use super::wire::{SMALL_BUFFER, Transport};

mod long;
mod sizes;

pub(crate) const CASES: &[Case] = &[
    Case { name: "a will is void once DISCONNECT was sent, however late it is read", run: void },
    Case { name: "a will is void once DISCONNECT was sent, however much lies before it", run: behind_much },
    Case { name: "a will is void once DISCONNECT was sent, whatever lies before it at a takeover", run: sizes::all },
    Case { name: "a will is void once DISCONNECT was sent, however long that is", run: long::whole },
];

/// Has devices publish to the topic `t` beside a subscriber that is far behind. They are given a watcher of their
/// wills.
fn beside_a_slow_subscriber(devices: impl FnOnce(&Gateway, &mut Client) -> Result<()>) -> Result<()> {
    let settings = ["mqtt.queue_bytes_max=256KiB", "mqtt.out_bytes_max=16KiB", "mqtt.inflight_bytes_max=16KiB"];
    let mut gateway = Gateway::start(&settings)?;
    let mut watcher = Client::open(&gateway, "watcher", Transport::Tcp)?;
    watcher.subscribe(&["wills/#"], 1)?;
    let login = Login { buffer: Some(SMALL_BUFFER), ..Login::new("slow", Transport::Tcp) };
    let mut slow = Client::login(&gateway, &login)?;
    slow.subscribe(&["t"], 1)?;
    slow.pace = Some((Duration::from_millis(20), 1 << 10));
    let done = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let reader = scope.spawn(|| {
            while !done.load(Relaxed) {
                let Ok(Came::Message(_)) = slow.next() else { break };
            }
        });
        let ended = devices(&gateway, &mut watcher);
        done.store(true, Relaxed);
        reader.join().map_err(|_| anyhow!("panic"))?;
        ended
    })?;
    drop((watcher, slow));
    gateway.settle()
}

/// Fills the queue of the slow subscriber.
fn fill(gateway: &Gateway, payload: &[u8], count: usize) -> Result<()> {
    let mut filler = Client::open(gateway, "filler", Transport::Tcp)?;
    filler.publish_all((0..count).map(|_| ("t", payload)), 1, false, 100)?;
    Ok(())
}

/// A device with a will.
fn device(gateway: &Gateway) -> Result<Client> {
    Client::login(gateway, &Login { will: Some("wills/device"), ..Login::new("device", Transport::Tcp) })
}

/// The device's next connection, which publishes the end.
fn end(gateway: &Gateway) -> Result<()> {
    let mut last = Client::open(gateway, "device", Transport::Tcp)?;
    last.publish_all([("wills/end", b"".as_slice())], 1, false, 1)?;
    Ok(())
}

/// Devices with one client identifier publish, end their connection and come again.
fn void() -> Result<String> {
    const TIMES: usize = 30;
    let payload = vec![b'x'; 1000];
    beside_a_slow_subscriber(|gateway, watcher| {
        fill(gateway, &payload, 400)?;
        for time in 0..TIMES {
            let mut device = device(gateway)?;
            device.publish_all([("t", payload.as_slice())], 1, false, 1)?;
            device.send(&[0xe0, 0])?;
            drop(device);
            if time % 10 == 9 {
                fill(gateway, &payload, 30)?;
            }
        }
        end(gateway)?;
        let first = watcher.message_or("the end")?;
        ensure!(first.topic == "wills/end", "a will of a client that sent DISCONNECT");
        Ok(())
    })?;
    Ok(format!("{TIMES} times"))
}

/// A device whose publications fill the send queues of both hosts, because it is paused, ends and comes again.
fn behind_much() -> Result<String> {
    const SIZES: [usize; 4] = [100, 300, 600, 1200];
    let payload = vec![b'x'; 1000];
    beside_a_slow_subscriber(|gateway, watcher| {
        fill(gateway, &payload, 400)?;
        for kilobytes in SIZES {
            let mut device = device(gateway)?;
            let message = mqtt::publish(V4, b"t", &payload, 1, false, 1);
            let mut sent = message.repeat(kilobytes);
            sent.extend([0xe0, 0]);
            device.send(&sent)?;
            // The link of the old connection is open still.
            end(gateway)?;
            let first = watcher.message_or("the end")?;
            ensure!(first.topic == "wills/end", "a will behind {kilobytes} kB and DISCONNECT");
        }
        Ok(())
    })?;
    Ok(format!("{SIZES:?} kB"))
}
