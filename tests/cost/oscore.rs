//! C6: GET by 64 endpoints that share one OSCORE context (RFC 8613), one request each under way.

use std::net::UdpSocket;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use fogmux_coap::{Message, OptionNumber};
use fogmux_oscore::file::toml;
use fogmux_oscore::{Context, Pending, Requests, Reservation, SequenceStore, Start};
use fogmux_tests::coap::{CON, GET, PUT, dotted, endpoint, exchange, receive, request};
use fogmux_tests::tcp;

use crate::meter::Meter;

const CLIENTS: usize = 64;
const WARM: u16 = 3;
const ROUNDS: u16 = 60;

/// Sequence numbers that the device may use: more than the trace needs.
const NUMBERS: u64 = 1 << 20;
/// Echo (RFC 9175 §2.2.1).
const ECHO: u16 = 252;

/// The gateway's end of the context.
pub(crate) const CONTEXT: &str = r#"
user = "dev1"
algorithm = "AES-CCM-16-64-128"
sender_id = "00"
recipient_id = "01"
master_salt = "8297f7ed46d4274a"
master_secret = "b26202905d95a477adabc9f09c67cdbb"
"#;

/// The device has all its numbers from the start.
struct Enough;

impl SequenceStore for Enough {
    fn reserve(&self, reservation: Reservation) {
        reservation.is_durable();
    }
}

/// An endpoint, and the request that it awaits the answer to.
struct Client {
    socket: UdpSocket,
    pending: Option<Pending>,
}

impl Client {
    fn send(&mut self, device: &Arc<Context>, plain: &[u8]) -> Result<()> {
        let mut sealed = Vec::new();
        let plain = Message::decode(plain).ok().context("a request that cannot be decoded")?;
        self.pending = Some(device.seal_request(&plain, &mut sealed)?);
        self.socket.send(&sealed)?;
        Ok(())
    }

    fn answer(&mut self) -> Result<Vec<u8>> {
        let answer = receive(&self.socket, tcp::PATIENCE)?.context("no response")?;
        let outer = Message::decode(&answer).ok().context("a response that cannot be decoded")?;
        let mut inner = Vec::new();
        self.pending.take().context("nothing was asked")?.open(&outer, &mut inner)?;
        Ok(inner)
    }
}

pub(crate) fn get(meter: &mut Meter) -> Result<u32> {
    let address = meter.gateway.address("coap")?;
    let put = request(CON, PUT, 1, b"t", "cost", &[], &[b'x'; 64]);
    ensure!(dotted(&exchange(&endpoint(address)?, &put, b"t")?) == "2.01");
    let parameters = toml::read(CONTEXT)?.parameters.mirrored();
    let start = Start { next: 0, durable: NUMBERS, requests: Requests::SeenBelow(0) };
    let device = Context::new("dev1".into(), &parameters, start, Arc::new(Enough))?;
    let fresh = || Ok(Client { socket: endpoint(address)?, pending: None });
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| fresh()).collect::<Result<_>>()?;
    prove(&mut fresh()?, &device)?;
    for round in 0..WARM + ROUNDS {
        if round == WARM {
            meter.begin()?;
        }
        let plain = request(CON, GET, round, &round.to_be_bytes(), "cost", &[], &[]);
        meter.at_once(|| clients.iter_mut().try_for_each(|client| client.send(&device, &plain)))?;
        for client in &mut clients {
            let answer = client.answer()?;
            ensure!(dotted(&answer) == "2.05", "{}", dotted(&answer));
        }
    }
    meter.end()?;
    Ok(u32::from(ROUNDS) * u32::try_from(CLIENTS)?)
}

/// Repeats the first request with the Echo that the gateway requires of a context that it does not know the numbers of
/// (RFC 8613 appendix B.1.2).
fn prove(client: &mut Client, device: &Arc<Context>) -> Result<()> {
    client.send(device, &request(CON, GET, 1, b"a", "cost", &[], &[]))?;
    let answer = client.answer()?;
    ensure!(dotted(&answer) == "4.01", "{}", dotted(&answer));
    let decoded = Message::decode(&answer).ok().context("a response")?;
    let echo = decoded.option(OptionNumber::ECHO).context("no Echo")?;
    client.send(device, &request(CON, GET, 2, b"b", "cost", &[(ECHO, echo.value)], &[]))?;
    let answer = client.answer()?;
    ensure!(dotted(&answer) == "2.05", "{} with Echo", dotted(&answer));
    Ok(())
}
