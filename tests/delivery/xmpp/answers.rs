//! Requests whose answers are thousands of times as large: answered in turn, one output at a time.

use anyhow::{Context, Result, ensure};
use fogmux_tests::xmpp::Via;

use super::Setup;

const REQUESTS: usize = 300;
const ITEM_BYTES: usize = 256 << 10;
/// A tenth of all answers.
const MORE_BYTES: u64 = 8_000_000;

/// Every request of one read is answered, in order, and the gateway holds few of the answers at a time.
pub(super) fn pipelined() -> Result<String> {
    let mut setup = Setup::start(&[])?;
    setup.retain([("large".to_owned(), vec![b'x'; ITEM_BYTES].as_slice())].into_iter())?;
    let mut session = setup.session(Via::DirectTls)?;
    // The first shows what one answer takes.
    session.entity("get", "<items node='large'/>")?;
    let idle = setup.gateway.peak_resident_bytes()?;
    let requests: String = (0..REQUESTS)
        .map(|number| {
            format!(
                "<iq type='get' id='r{number}' to='pubsub.localhost'>\
                 <pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='large'/></pubsub></iq>"
            )
        })
        .collect();
    session.send(&requests)?;
    for number in 0..REQUESTS {
        let answer = session.until("</iq>").with_context(|| format!("answer {number}"))?;
        ensure!(answer.contains(&format!("id='r{number}'")), "not the answer to {number}: {:.200}", answer);
        ensure!(answer.len() > ITEM_BYTES, "answer {number} has {} bytes", answer.len());
    }
    // A request behind them is answered, too, though no more input arrives.
    session.entity("get", "<items node='large'/>")?;
    let peak = setup.gateway.peak_resident_bytes()?;
    ensure!(peak <= idle + MORE_BYTES, "it grew from {} to {} MB", idle / 1_000_000, peak / 1_000_000);
    drop(session);
    setup.gateway.settle()?;
    Ok(format!("{} kB more for {REQUESTS} answers of {ITEM_BYTES} bytes", peak.saturating_sub(idle) / 1000))
}
