//! Unfinished packets that nothing is added to give way before others of their owner, whatever else their connections
//! are busy with (ADR 0036).

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, V4};
use fogmux_tests::suite::Case;

use super::client::{Came, Client};
use super::wire::Transport;

pub(crate) const CASES: &[Case] =
    &[Case { name: "unfinished packets of connections that receive messages rest as well", run: rest }];

const PATIENCE: Duration = Duration::from_secs(30);

fn rest() -> Result<String> {
    let mut gateway = Gateway::start(&["mqtt.unfinished_bytes_max=2MiB"])?;
    let packet = mqtt::publish(V4, b"upload", &vec![b'z'; 1_000_000], 1, false, 1);
    let (begin, _) = packet.split_at(500_000);
    // Each has a buffer of half a megabyte at least.
    let mut held = Vec::new();
    for number in 0..3 {
        let mut client = Client::open(&gateway, &format!("held-{number}"), Transport::Tcp)?;
        client.subscribe(&["tick"], 0)?;
        client.send(begin)?;
        held.push(client);
    }
    let mut ticker = Client::open(&gateway, "ticker", Transport::Tcp)?;
    let done = AtomicBool::new(false);
    let attempts = thread::scope(|scope| -> Result<u32> {
        let ticks = scope.spawn(|| -> Result<()> {
            while !done.load(Relaxed) {
                ticker.publish_all([("tick", b"1".as_slice())], 1, false, 1)?;
                thread::sleep(Duration::from_millis(50));
            }
            Ok(())
        });
        let attempts = upload(&gateway, &packet);
        done.store(true, Relaxed);
        ticks.join().map_err(|_| anyhow!("panic"))??;
        attempts
    })?;
    drop((held, ticker));
    gateway.settle()?;
    Ok(format!("attempt {attempts}"))
}

/// Uploads slowly, again and again, until one comes through: nothing rests in the first seconds.
fn upload(gateway: &Gateway, packet: &[u8]) -> Result<u32> {
    let began = Instant::now();
    let mut attempt = 0;
    loop {
        attempt += 1;
        let mut client = Client::open(gateway, "upload", Transport::Tcp)?;
        let sent = packet.chunks(packet.len() / 20).try_for_each(|part| {
            thread::sleep(Duration::from_millis(20));
            client.send(part)
        });
        if let Ok(Came::Acknowledged(..)) = sent.and_then(|()| client.next()) {
            return Ok(attempt);
        }
        ensure!(began.elapsed() < PATIENCE, "all of {attempt} uploads gave way to packets that rest");
        thread::sleep(Duration::from_millis(200));
    }
}
