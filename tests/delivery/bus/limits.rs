//! The limit on all subscriptions together.

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{Connection, V4};

/// At the limit a client may change the subscriptions that it has, and gets no new one.
pub(super) fn replaced() -> Result<String> {
    let mut gateway = Gateway::start(&["bus.subscriptions_max=3"])?;
    let mut client = Connection::open(gateway.address("mqtt")?, V4, "limited")?;
    let filters = ["a/+", "b/#", "$share/g/c"];
    ensure!(client.subscribe(1, &filters, 1)? == [1, 1, 1]);
    for (id, filter) in (2..).zip(filters) {
        let granted = client.subscribe(id, &[filter], 0)?;
        ensure!(granted == [0], "{filter} again: {granted:02x?}");
    }
    let refused = client.subscribe(9, &["d", "a/+", "b/+"], 1)?;
    ensure!(refused == [0x80, 1, 0x80], "new ones are refused, others not: {refused:02x?}");
    client.publish("a/1", b"still")?;
    let (first, topic, _) = super::next_publish(&mut client)?;
    ensure!(first == 0x30 && topic == "a/1", "{first:#x} {topic}");
    drop(client);
    gateway.settle()?;
    gateway.check_conservation()?;
    Ok(String::new())
}
