//! `fogmux pub` and `fogmux sub` with a server that is written by hand.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::coap::{self, ACK, BLOCK1, BLOCK2, CON, GET, LOCATION_PATH, Message, NON, OBSERVE, RST, URI_PATH};

use super::PATIENCE;

const CONTENT: u8 = 0x45;
const CONTINUE: u8 = 0x5f;
const SERVICE_UNAVAILABLE: u8 = 0xa3;
const MAX_AGE: u16 = 14;

/// A command that talks to a socket of ours.
struct Guest {
    socket: UdpSocket,
    command: Option<Child>,
}

impl Guest {
    fn start(arguments: &[&str]) -> Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let url = format!("coap://{}/a", socket.local_addr()?);
        let (name, more) = arguments.split_first().context("a command")?;
        let mut command = Command::new(std::env::var("FOGMUX_BIN").context("FOGMUX_BIN names no gateway")?);
        command.args([name, url.as_str()]).args(more).stdin(Stdio::null());
        let command = Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?);
        Ok(Self { socket, command })
    }

    /// The next message, or `None` when the command has ended.
    fn receive(&mut self) -> Result<Option<(Message, SocketAddr)>> {
        let (mut buffer, deadline) = ([0; 2048], Instant::now() + 3 * PATIENCE);
        self.socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        while Instant::now() < deadline {
            if let Ok((length, from)) = self.socket.recv_from(&mut buffer) {
                let datagram = buffer.get(..length).unwrap_or_default();
                return Ok(Some((Message::of_datagram(datagram)?, from)));
            }
            if self.command.as_mut().is_none_or(|command| command.try_wait().is_ok_and(|ended| ended.is_some())) {
                return Ok(None);
            }
        }
        bail!("the command neither says anything nor ends")
    }

    /// Waits for a registration, and grants it. Returns its token and its sender.
    fn register(&mut self) -> Result<(Vec<u8>, SocketAddr)> {
        loop {
            let (message, from) = self.receive()?.context("the command has ended")?;
            if message.uint(OBSERVE) == Some(0) {
                let answer = coap::message(ACK, CONTENT, message.id, &message.token, &[(OBSERVE, &[1])], b"");
                self.socket.send_to(&answer, from)?;
                return Ok((message.token, from));
            }
        }
    }

    fn end(&mut self) -> Result<Output> {
        Ok(self.command.take().context("it has ended before")?.wait_with_output()?)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Some(mut command) = self.command.take() {
            let _ = command.kill();
            let _ = command.wait();
        }
    }
}

pub(super) fn continue_for_ever() -> Result<String> {
    // Blocks of 1024 bytes, each answered with 2.31, the last as well.
    for (bytes, blocks) in [(10, 1), (1024, 1), (1025, 2), (3000, 3)] {
        let mut guest = Guest::start(&["pub", &"x".repeat(bytes)])?;
        let mut requests = 0;
        while let Some((message, from)) = guest.receive()? {
            requests += 1;
            ensure!(requests <= blocks, "{requests} requests for {blocks} blocks");
            let block = message.options.iter().find(|(number, _)| *number == BLOCK1).map(|(_, value)| value.clone());
            let block = block.unwrap_or_else(|| vec![0x0e]);
            let answer = coap::message(ACK, CONTINUE, message.id, &message.token, &[(BLOCK1, &block)], b"");
            guest.socket.send_to(&answer, from)?;
        }
        let output = guest.end()?;
        ensure!(!output.status.success(), "2.31 is taken for success");
        ensure!(requests == blocks, "{requests} requests for {blocks} blocks: {output:?}");
    }
    Ok(String::new())
}

pub(super) fn many_rests() -> Result<String> {
    const TOPICS: u8 = 60;
    let mut guest = Guest::start(&["sub", "--count", "60", "--timeout", "20", "--format", "text"])?;
    let (token, client) = guest.register()?;
    for topic in 0..TOPICS {
        let options: [(u16, &[u8]); 4] =
            [(OBSERVE, &[2]), (LOCATION_PATH, b"ps"), (LOCATION_PATH, &[b'A' + topic]), (BLOCK2, &[8])];
        let id = u16::from(topic) + 1000;
        guest.socket.send_to(&coap::message(NON, CONTENT, id, &token, &options, &[b'x'; 16]), client)?;
    }
    // RFC 7252 §4.3: the answer to a ping comes when all before it was heard.
    guest.socket.send_to(&coap::message(CON, 0, 2000, b"", &[], b""), client)?;
    let (mut asked, mut open) = (BTreeSet::new(), Vec::new());
    loop {
        let (message, _) = guest.receive()?.context("the command has ended")?;
        if message.kind == RST {
            break;
        }
        if message.code == GET && asked.insert(path(&message)) {
            open.push(message);
        }
    }
    ensure!(asked.len() == 16, "{} requests at a time", asked.len());
    // All have their turn.
    loop {
        for message in open.drain(..) {
            let answer = coap::message(ACK, CONTENT, message.id, &message.token, &[], b"whole");
            guest.socket.send_to(&answer, client)?;
        }
        let Some((message, _)) = guest.receive()? else { break };
        if message.code == GET {
            asked.insert(path(&message));
            open.push(message);
        }
    }
    let output = guest.end()?;
    ensure!(output.status.success() && asked.len() == usize::from(TOPICS), "{} topics: {output:?}", asked.len());
    Ok(String::new())
}

fn path(message: &Message) -> Vec<Vec<u8>> {
    message.options.iter().filter(|(number, _)| *number == URI_PATH).map(|(_, level)| level.clone()).collect()
}

pub(super) fn unavailable_for_a_while() -> Result<String> {
    let mut guest = Guest::start(&["sub", "--count", "1", "--timeout", "20", "--format", "text"])?;
    let (token, client) = guest.register()?;
    let end = coap::message(NON, SERVICE_UNAVAILABLE, 1000, &token, &[(MAX_AGE, &[1])], b"");
    guest.socket.send_to(&end, client)?;
    let (token, client) = guest.register()?;
    let options: [(u16, &[u8]); 3] = [(OBSERVE, &[2]), (LOCATION_PATH, b"ps"), (LOCATION_PATH, b"a")];
    guest.socket.send_to(&coap::message(NON, CONTENT, 1001, &token, &options, b"later"), client)?;
    while guest.receive()?.is_some() {}
    let output = guest.end()?;
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success() && text.contains("later"), "{text:?}, {said:?}");
    ensure!(said.contains("messages may be missed"), "{said:?}");
    // Without Max-Age, or where the limit of the command is shorter, that is the end.
    for (options, limit) in [(&[][..], "20"), (&[(MAX_AGE, &[60][..])], "1")] {
        let mut guest = Guest::start(&["sub", "--count", "1", "--timeout", limit])?;
        let (token, client) = guest.register()?;
        guest.socket.send_to(&coap::message(NON, SERVICE_UNAVAILABLE, 1000, &token, options, b""), client)?;
        while guest.receive()?.is_some() {}
        ensure!(!guest.end()?.status.success(), "5.03 is taken for success");
    }
    Ok(String::new())
}
