//! Keep alive of a subscriber that takes nothing ([MQTT-3.1.2-22]): one that is dead is found in time, though it is not
//! read for its unread output. The case of one that pings is in `ends.rs`.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;

use super::client::{Client, Login};
use super::wire::{SMALL_BUFFER, Transport};

pub(crate) const CASES: &[Case] =
    &[Case { name: "keep alive: a dead subscriber of a busy topic is found in time", run: dead }];

fn dead() -> Result<String> {
    let mut gateway = Gateway::start(&["mqtt.stall_max=\"10m\""])?;
    let mut watcher = Client::open(&gateway, "watcher", Transport::Tcp)?;
    watcher.subscribe(&["wills/#"], 1)?;
    let (will, buffer) = (Some("wills/device"), Some(SMALL_BUFFER));
    let login = Login { buffer, keep_alive: 2, will, ..Login::new("device", Transport::Tcp) };
    let mut device = Client::login(&gateway, &login)?;
    device.subscribe(&["t"], 0)?;
    let mut publisher = Client::open(&gateway, "publisher", Transport::Tcp)?;
    // More than the output of a connection that is read.
    let payload = vec![b'x'; 200_000];
    let (done, began) = (AtomicBool::new(false), Instant::now());
    let will = thread::scope(|scope| -> Result<_> {
        let flood = scope.spawn(|| -> Result<()> {
            while !done.load(Relaxed) {
                publisher.publish_all((0..5).map(|_| ("t", payload.as_slice())), 1, false, 5)?;
                thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        });
        // Long before its output would be too old.
        let will = watcher.message_or("the will of a client that is silent");
        done.store(true, Relaxed);
        flood.join().map_err(|_| anyhow!("panic"))??;
        will
    })?;
    ensure!(will.topic == "wills/device", "{will:?}");
    let waited = began.elapsed();
    drop((device, watcher, publisher));
    gateway.settle()?;
    Ok(format!("the will after {waited:?}"))
}
