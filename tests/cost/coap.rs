//! C2: 64 clients with one Confirmable request each under way.

use std::net::UdpSocket;

use anyhow::{Context, Result, ensure};
use fogmux_tests::coap::{CON, GET, PUT, dotted, endpoint, exchange, receive, request};
use fogmux_tests::tcp;

use crate::meter::Meter;

const CLIENTS: usize = 64;
const WARM: u16 = 3;
const ROUNDS: u16 = 60;
const PAYLOAD: [u8; 64] = [b'x'; 64];

pub(crate) fn get(meter: &mut Meter) -> Result<u32> {
    let socket = endpoint(meter.gateway.address("coap")?)?;
    let put = request(CON, PUT, 1, b"t", "cost", &[], &PAYLOAD);
    ensure!(dotted(&exchange(&socket, &put, b"t")?) == "2.01");
    rounds(meter, GET, &[], "2.05")
}

pub(crate) fn put(meter: &mut Meter) -> Result<u32> {
    rounds(meter, PUT, &PAYLOAD, "2.04")
}

fn rounds(meter: &Meter, code: u8, payload: &[u8], expected: &str) -> Result<u32> {
    let address = meter.gateway.address("coap")?;
    let clients: Vec<UdpSocket> = (0..CLIENTS).map(|_| endpoint(address)).collect::<Result<_>>()?;
    for round in 0..WARM + ROUNDS {
        if round == WARM {
            meter.begin()?;
        }
        let request = request(CON, code, round, &round.to_be_bytes(), "cost", &[], payload);
        meter.at_once(|| clients.iter().try_for_each(|client| client.send(&request).map(drop).context("send")))?;
        for client in &clients {
            let answer = receive(client, tcp::PATIENCE)?.context("no response")?;
            // The first request creates the topic.
            ensure!(round == 0 || dotted(&answer) == expected, "{}", dotted(&answer));
        }
    }
    meter.end()?;
    Ok(u32::from(ROUNDS) * u32::try_from(CLIENTS)?)
}
