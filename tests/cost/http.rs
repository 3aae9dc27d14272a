//! HTTP/1.1: GET of a retained message of 64 bytes by 16 clients on connections that stay.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Result, ensure};
use fogmux_tests::tcp;

use crate::meter::Meter;

const CLIENTS: usize = 16;
const WARM: u32 = 3;
const ROUNDS: u32 = 150;
const GET: &[u8] = b"GET /topics/cost HTTP/1.1\r\nHost: localhost\r\n\r\n";

pub(crate) fn get(meter: &mut Meter) -> Result<u32> {
    let address = meter.gateway.address("http")?;
    let put = format!("PUT /topics/cost HTTP/1.1\r\nHost: localhost\r\nContent-Length: 64\r\n\r\n{}", "x".repeat(64));
    let answer = first_answer(&mut tcp::connect(address)?, put.as_bytes())?;
    ensure!(answer.starts_with(b"HTTP/1.1 201"), "{}", String::from_utf8_lossy(&answer));
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| tcp::connect(address)).collect::<Result<_>>()?;
    let mut length = 0;
    for client in &mut clients {
        let answer = first_answer(client, GET)?;
        ensure!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        length = answer.len();
    }
    let mut answer = vec![0; length];
    for round in 0..WARM + ROUNDS {
        if round == WARM {
            meter.begin()?;
        }
        meter.at_once(|| clients.iter_mut().try_for_each(|client| Ok(client.write_all(GET)?)))?;
        for client in &mut clients {
            client.read_exact(&mut answer)?;
            ensure!(answer.starts_with(b"HTTP/1.1 200") && answer.ends_with(b"xxxx"));
        }
    }
    meter.end()?;
    Ok(ROUNDS * u32::try_from(CLIENTS)?)
}

/// A whole answer that fits a segment.
fn first_answer(stream: &mut TcpStream, request: &[u8]) -> Result<Vec<u8>> {
    stream.write_all(request)?;
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer)?;
    answer.truncate(length);
    Ok(answer)
}
