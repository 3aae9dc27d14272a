//! A subscriber that its own publishers bring more than the gateway may hold.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;

use super::client::{Client, Login};
use super::wire::{SMALL_BUFFER, Transport};

pub(crate) const CASES: &[Case] =
    &[Case { name: "a subscriber that reads holds its own bound and an eighth of the memory mark at most", run: hog }];

const TOPIC: &str = "hog";

/// Publishers of a topic of its own bring a subscriber more than the memory mark, while it reads.
fn hog() -> Result<String> {
    const PUBLISHERS: usize = 48;
    const MESSAGE: usize = 1 << 20;
    // Queue, an eighth of `bus.memory_high_bytes`, and the last message of each door's turn.
    const HELD_MAX: u64 = (16 + 128 / 8 + 4) << 20;
    // By default not all of the publishers may have an unfinished message at a time; that is tested elsewhere.
    let mut gateway = Gateway::start(&["mqtt.unfinished_bytes_max=64MiB"])?;
    let login = Login { buffer: Some(SMALL_BUFFER), ..Login::new("hog", Transport::Tcp) };
    let mut hog = Client::login(&gateway, &login)?;
    hog.subscribe(&[TOPIC], 1)?;
    let done = AtomicBool::new(false);
    let payload = vec![b'x'; MESSAGE];
    let mut most = 0;
    thread::scope(|scope| -> Result<()> {
        let reader = scope.spawn(|| {
            // Disconnected or not, it has read what came.
            while !done.load(Relaxed) && hog.message_or("a message").is_ok() {
                thread::sleep(Duration::from_millis(300));
            }
        });
        let publish = |number: usize| {
            let (gateway, payload) = (&gateway, &payload);
            move || -> Result<()> {
                let mut client = Client::open(gateway, &format!("publisher-{number}"), Transport::Tcp)?;
                client.publish_all((0..4).map(|_| (TOPIC, payload.as_slice())), 1, false, 1)?;
                Ok(())
            }
        };
        let publishers: Vec<_> = (0..PUBLISHERS).map(|number| scope.spawn(publish(number))).collect();
        while publishers.iter().any(|publisher| !publisher.is_finished()) {
            most = most.max(gateway.sum(&["fogmux_bus_mailbox_bytes"])?);
            thread::sleep(Duration::from_millis(20));
        }
        done.store(true, Relaxed);
        for publisher in publishers {
            publisher.join().map_err(|_| anyhow::anyhow!("panic"))??;
        }
        reader.join().map_err(|_| anyhow::anyhow!("panic"))
    })?;
    ensure!(most <= HELD_MAX, "{most} bytes were held for one subscriber");
    drop(hog);
    gateway.settle()?;
    Ok(format!("{} MB at most", most / 1_000_000))
}
