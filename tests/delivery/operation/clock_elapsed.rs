//! A clock that is set while clients are connected or away: keep alive and the expiry of sessions are elapsed time, by
//! the monotonic clock.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V5, packet};
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;

use super::clock::{Board, stop, wait};
use super::store::stop as ended;

pub(super) const KEEP_ALIVE: Case =
    Case { name: "a clock that is set by a day: keep alive is neither shorter nor longer", run: keep_alive };
pub(super) const SESSIONS: Case =
    Case { name: "a clock that is set by a day: sessions end neither earlier nor later", run: sessions };

const AHEAD: &str = "+86400";
const BACK: &str = "-86400";
/// Keep Alive of the client that falls silent, in seconds; a server waits one and a half times as long (MQTT 5
/// §3.1.2.10).
const SILENT_S: u8 = 2;

/// Sets the clock, and waits until the gateway has seen that.
fn set(board: &Board, gateway: &Gateway, clock: &str) -> Result<()> {
    gateway.forget_log()?;
    board.set(clock)?;
    wait("the clock in the log", || Ok(gateway.log().contains("the clock was set")))
}

/// Connects with this Keep Alive.
fn kept_alive(gateway: &Gateway, client: &str, seconds: u8) -> Result<Connection> {
    let mut body = mqtt::string(b"MQTT");
    body.extend([V5, 2, 0, seconds, 0]);
    body.extend(mqtt::string(client.as_bytes()));
    let mut connection = Connection::over(tcp::connect(gateway.address("mqtt")?)?, V5);
    connection.stream.write_all(&packet(0x10, &body))?;
    ensure!(connection.read()?.0 == 0x20, "no CONNACK");
    Ok(connection)
}

fn keep_alive() -> Result<String> {
    let board = Board::new()?;
    let gateway = board.start("+0")?;
    let mut lively = kept_alive(&gateway, "lively", 60)?;
    let mut silences = Vec::new();
    for clock in [AHEAD, BACK, "+0"] {
        let mut silent = kept_alive(&gateway, "silent", SILENT_S)?;
        let began = Instant::now();
        board.set(clock)?;
        // DISCONNECT with Keep Alive timeout, and the end.
        let (first, body) = silent.read().with_context(|| format!("the silent client at {clock}"))?;
        ensure!((first, body.first()) == (0xe0, Some(&0x8d)), "{first:#x} {body:?} at {clock}");
        let silence = began.elapsed();
        let due = Duration::from_secs(u64::from(SILENT_S));
        ensure!(silence >= due && silence < 5 * due, "cut after {silence:?} at {clock}");
        silences.push(silence.as_millis());
        drop(silent);
        // Longer than the gateway takes to see the clock.
        lively.stream.write_all(&[0xc0, 0])?;
        let (first, _) = lively.read().with_context(|| format!("the lively client at {clock}"))?;
        ensure!(first == 0xd0, "{first:#x} instead of PINGRESP at {clock}");
    }
    drop(lively);
    stop(gateway)?;
    Ok(format!("cut after {silences:?} ms"))
}

fn sessions() -> Result<String> {
    const SHORT_S: u32 = 3;
    let board = Board::new()?;
    let gateway = board.start("+0")?;
    let address = gateway.address("mqtt")?;
    let leave = |client: &str, seconds: u32| -> Result<()> {
        let (mut connection, _) = Connection::resume(address, client, seconds, true)?;
        connection.subscribe(1, &["a"], 1)?;
        connection.stream.write_all(&[0xe0, 0])?;
        Ok(())
    };
    let is_there = |client: &str| Connection::resume(address, client, 3_600, false).map(|(_, present)| present);
    leave("long", 3_600)?;
    set(&board, &gateway, AHEAD)?;
    std::thread::sleep(Duration::from_millis(2_500));
    ensure!(is_there("long")?, "a session with an hour to live ended when the clock was set ahead");
    leave("short", SHORT_S)?;
    set(&board, &gateway, BACK)?;
    std::thread::sleep(Duration::from_secs(2 * u64::from(SHORT_S)));
    ensure!(!is_there("short")?, "a session with {SHORT_S} s to live is there after {} s", 2 * SHORT_S);
    // The end that the store has is that of the clock as it is now.
    leave("kept", 3_600)?;
    for client in ["long", "short"] {
        Connection::resume(address, client, 0, true)?;
    }
    set(&board, &gateway, "+0")?;
    std::thread::sleep(Duration::from_millis(2_500));
    ended(gateway)?;
    let gateway = board.start("+0")?;
    let (_, present) = Connection::resume(gateway.address("mqtt")?, "kept", 0, false)?;
    ensure!(present, "a session with an hour to live ended at a restart after the clock was set");
    stop(gateway)?;
    Ok(String::new())
}
