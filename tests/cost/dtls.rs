//! C3 and C4: CoAP over DTLS 1.2 with a pre-shared key, by OpenSSL.

use anyhow::{Context, Result, ensure};
use fogmux_tests::{
    coap::{CON, GET, PUT, dotted, endpoint, exchange, request},
    dtls::{self, Session},
};

use crate::meter::{IDENTITY, KEY, Meter};

const CLIENTS: u16 = 16;
const WARM: u16 = 3;
const ROUNDS: u16 = 100;
const HANDSHAKES: u16 = 200;
const PAYLOAD: [u8; 64] = [b'x'; 64];

pub(crate) fn get(meter: &mut Meter) -> Result<u32> {
    let plain = endpoint(meter.gateway.address("coap")?)?;
    let put = request(CON, PUT, 1, b"t", "cost", &[], &PAYLOAD);
    ensure!(dotted(&exchange(&plain, &put, b"t")?) == "2.01");
    let coaps = meter.gateway.address("coaps")?;
    let context = dtls::psk(IDENTITY, KEY)?;
    let mut clients = (0..CLIENTS).map(|_| Session::open(&context, endpoint(coaps)?)).collect::<Result<Vec<_>>>()?;
    for round in 0..WARM + ROUNDS {
        if round == WARM {
            meter.begin()?;
        }
        let request = request(CON, GET, round, &round.to_be_bytes(), "cost", &[], &[]);
        for client in &mut clients {
            let answer = client.exchange(&request)?;
            ensure!(dotted(&answer) == "2.05", "{}", dotted(&answer));
        }
    }
    meter.end()?;
    Ok(u32::from(ROUNDS * CLIENTS))
}

pub(crate) fn handshakes(meter: &mut Meter) -> Result<u32> {
    let coaps = meter.gateway.address("coaps")?;
    let context = dtls::psk(IDENTITY, KEY)?;
    let shake = || Session::open(&context, endpoint(coaps)?)?.close().context("close_notify");
    (0..WARM).try_for_each(|_| shake())?;
    meter.begin()?;
    (0..HANDSHAKES).try_for_each(|_| shake())?;
    meter.end()?;
    Ok(u32::from(HANDSHAKES))
}
