//! X1: pubsub items (XEP-0060 §7.1) of one publisher to one subscriber, without TLS.

use std::fmt::Write as _;

use anyhow::Result;
use fogmux_tests::tcp;
use fogmux_tests::tls;
use fogmux_tests::xmpp::{Session, Via};

use crate::meter::Meter;

const WARM: u32 = 3;
const ROUNDS: u32 = 50;
const BATCH: u32 = 20;

pub(crate) fn x1(meter: &mut Meter) -> Result<u32> {
    let address = meter.gateway.address("xmpp")?;
    let config = tls::config(meter.gateway.ca())?;
    let open = || Session::over(tcp::connect(address)?, &config, Via::Plain);
    let (mut publisher, mut subscriber) = (open()?, open()?);
    publisher.entity("set", "<create node='cost'/>")?;
    subscriber.entity("set", &format!("<subscribe node='cost' jid='{}'/>", subscriber.jid))?;
    for round in 0..WARM + ROUNDS {
        if round == WARM {
            meter.begin()?;
        }
        let mut stanzas = String::new();
        for _ in 0..BATCH {
            write!(
                stanzas,
                "<iq type='set' id='p' to='pubsub.localhost'><pubsub xmlns='http://jabber.org/protocol/pubsub'><publish \
                 node='cost'><item><value xmlns='urn:example:cost'>21.5</value></item></publish></pubsub></iq>"
            )?;
        }
        meter.at_once(|| publisher.send(&stanzas))?;
        publisher.until_count("</iq>", usize::try_from(BATCH)?)?;
        subscriber.until_count("</message>", usize::try_from(BATCH)?)?;
    }
    meter.end()?;
    Ok(ROUNDS * BATCH)
}
