//! CoAPS: what one client can do to the sessions of another, and to what is agreed with it.

use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::coap::{self, CON, PUT};
use fogmux_tests::dtls::{self, Session};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use rustix::process::Signal;

pub(crate) const CASES: &[Case] = &[
    Case { name: "dtls sessions: strangers evict no session that has a key", run: strangers },
    Case { name: "dtls sessions: a key that opens many takes its own places", run: heavy },
    Case { name: "dtls sessions: where nobody is anonymous a handshake needs a credential", run: named },
    Case { name: "dtls sessions: forged records end no handshake and count against nobody", run: forged },
    Case { name: "dtls sessions: a wrong key is told within seconds", run: wrong },
    Case { name: "dtls sessions: a key that is removed or replaced ends its session with an alert", run: removed },
    Case { name: "dtls sessions: a certificate that is revoked ends its session with an alert", run: revoked },
    Case { name: "dtls sessions: a key is used with a key exchange where the client can", run: exchanged },
];

const IDENTITY: &str = "device";
const KEY: &[u8] = b"0123456789abcdef";
const PSK: &str = "[[psk]]\nidentity = \"device\"\nkey = \"30313233343536373839616263646566\"\n";
const KEYS: [(&str, &str); 1] = [("psk.toml", PSK)];
/// How long an alert may take: files and rules are looked at every few seconds.
const SOON: Duration = Duration::from_secs(10);
/// After this long nothing of a handshake is due any more: the session rests.
const AT_REST: Duration = Duration::from_secs(3);
const SESSIONS_MAX: u32 = 8;

fn session(gateway: &Gateway, number: u32) -> Result<Session> {
    Session::open(&dtls::psk(IDENTITY, KEY)?, dtls::endpoint(gateway.address("coaps")?, number)?)
}

fn works(session: &mut Session, id: u16) -> Result<()> {
    let request = coap::request(CON, PUT, id, b"dt", "dtls/value", &[], b"under keys");
    let code = coap::dotted(&session.exchange(&request)?);
    ensure!(code.starts_with("2."), "PUT under DTLS: {code}");
    Ok(())
}

fn strangers() -> Result<String> {
    let settings = [format!("coap.dtls.sessions_max={SESSIONS_MAX}"), "workers.count=1".to_owned()];
    let mut gateway = Gateway::start_furnished(&settings.each_ref().map(String::as_str), &KEYS)?;
    let mut device = session(&gateway, 0)?;
    works(&mut device, 1)?;
    let stranger = dtls::certificates(None)?;
    for number in 1..=4 * SESSIONS_MAX {
        let socket = dtls::endpoint(gateway.address("coaps")?, number * 200)?;
        let mut session = Session::open(&stranger, socket)?;
        works(&mut session, 1)?;
    }
    works(&mut device, 2).context("its session was evicted")?;
    // Until the table is full of sessions with keys: then there is no room for strangers.
    let mut devices = (1..SESSIONS_MAX).map(|number| session(&gateway, number)).collect::<Result<Vec<_>>>()?;
    let socket = dtls::endpoint(gateway.address("coaps")?, 99 * 200)?;
    ensure!(Session::open(&stranger, socket).is_err(), "a stranger found room in a table full of keys");
    works(&mut device, 3).context("its session was evicted")?;
    devices.iter_mut().try_for_each(|device| works(device, 4))?;
    let turned_away = gateway.sum(&["fogmux_door_rejected_total{door=\"coap\"}"])?;
    ensure!(turned_away > 0, "nobody counted those that were turned away");
    gateway.check_alive()?;
    Ok(format!("{turned_away} turned away"))
}

fn heavy() -> Result<String> {
    let keys = format!("{PSK}\n[[psk]]\nidentity = \"dev1\"\nkey = \"61616161616161616161616161616161\"\n");
    let settings = [format!("coap.dtls.sessions_max={SESSIONS_MAX}"), "workers.count=1".to_owned()];
    let files = [("psk.toml", keys.as_str())];
    let mut gateway = Gateway::start_furnished(&settings.each_ref().map(String::as_str), &files)?;
    let mut device = session(&gateway, 0)?;
    works(&mut device, 1)?;
    // From one address, then from many.
    let dev1 = dtls::psk("dev1", b"aaaaaaaaaaaaaaaa")?;
    let mut opened = Vec::new();
    for number in 0..3 * SESSIONS_MAX {
        let place = if number < SESSIONS_MAX { 1 } else { number * 200 };
        let mut session = Session::open(&dev1, dtls::endpoint(gateway.address("coaps")?, place)?)?;
        works(&mut session, 1)?;
        opened.push(session);
    }
    works(&mut device, 2).context("its session was evicted by another key's")?;
    works(opened.last_mut().context("none")?, 2).context("the newest of the key that has most")?;
    let evicted = gateway.sum(&["fogmux_dtls_evicted_total{reason=\"principal\"}"])?;
    ensure!(evicted == u64::from(2 * SESSIONS_MAX + 1), "{evicted} counted");
    // The device comes back from elsewhere, and another session of its own is no stranger's either.
    works(&mut session(&gateway, 7)?, 1)?;
    works(&mut device, 3)?;
    gateway.check_alive()?;
    Ok(format!("{evicted} evicted"))
}

fn named() -> Result<String> {
    let settings = ["listeners.coaps.anonymous=false"];
    let mut gateway = Gateway::start_furnished(&settings, &KEYS)?;
    works(&mut session(&gateway, 0)?, 1)?;
    let socket = dtls::endpoint(gateway.address("coaps")?, 1)?;
    let refused = Session::open(&dtls::certificates(None)?, socket).err().context("a stranger has a session")?;
    let refused = format!("{refused:#}");
    ensure!(refused.contains("handshake failure"), "{refused}");
    works(&mut session(&gateway, 2)?, 1)?;
    gateway.check_alive()?;
    Ok(String::new())
}

fn forged() -> Result<String> {
    let mut gateway = Gateway::start_furnished(&["auth.backoff.free_failures=0"], &KEYS)?;
    let context = dtls::psk(IDENTITY, KEY)?;
    let mut count = 0;
    for forged in [1, 2, 5, 1, 1] {
        let socket = dtls::endpoint(gateway.address("coaps")?, 0)?;
        let mut session = Session::open_among(&context, socket, forged)
            .with_context(|| format!("with {forged} forged records, after {count} handshakes"))?;
        works(&mut session, 1)?;
        count += 1;
    }
    gateway.check_alive()?;
    Ok(format!("{count} handshakes"))
}

fn wrong() -> Result<String> {
    let mut gateway = Gateway::start_furnished(&[], &KEYS)?;
    let address = gateway.address("coaps")?.to_string();
    let began = Instant::now();
    let key = "66".repeat(16);
    let client = ["s_client", "-dtls1_2", "-connect", &address, "-psk_identity", IDENTITY, "-psk", &key];
    let mut command = Command::new("timeout");
    command.args(["15", "openssl"]).args(client).args(["-cipher", "PSK-AES128-CCM8:@SECLEVEL=0"]);
    let output = command.output()?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(told.contains("decrypt error"), "after {:.1?}: {told}", began.elapsed());
    ensure!(began.elapsed() < Duration::from_secs(10), "only after {:.1?}", began.elapsed());
    gateway.check_alive()?;
    Ok(format!("after {:.1?}", began.elapsed()))
}

/// Waits for a protected alert.
fn alert(socket: &UdpSocket) -> Result<Duration> {
    let began = Instant::now();
    while began.elapsed() < SOON {
        if let Some(datagram) = coap::receive(socket, SOON.saturating_sub(began.elapsed()))?
            && datagram.starts_with(&[21, 0xfe, 0xfd, 0, 1])
        {
            return Ok(began.elapsed());
        }
    }
    anyhow::bail!("no alert in {SOON:?}")
}

fn removed() -> Result<String> {
    let mut gateway = Gateway::start_furnished(&[], &KEYS)?;
    let file = gateway.data().join("psk.toml");
    let mut told = Vec::new();
    let other = "[[psk]]\nidentity = \"other\"\nkey = \"61616161616161616161616161616161\"\n";
    for fresh in [PSK.replace("3031", "3939") + other, other.to_owned()] {
        fs::write(&file, PSK.to_owned() + other)?;
        gateway.signal(Signal::HUP)?;
        // The key may not be back yet.
        let began = Instant::now();
        let (mut device, mut stays) = loop {
            let stays =
                Session::open(&dtls::psk("other", b"aaaaaaaaaaaaaaaa")?, dtls::endpoint(gateway.address("coaps")?, 1)?);
            match (session(&gateway, 0), stays) {
                (Ok(device), Ok(stays)) => break (device, stays),
                (Err(error), _) | (_, Err(error)) => ensure!(began.elapsed() < SOON, "{error:#}"),
            }
        };
        works(&mut device, 1)?;
        works(&mut stays, 1)?;
        fs::write(&file, fresh)?;
        gateway.signal(Signal::HUP)?;
        told.push(alert(device.socket())?);
        works(&mut stays, 2).context("whose key is still there")?;
    }
    gateway.check_alive()?;
    Ok(format!("after {told:.1?}"))
}

fn revoked() -> Result<String> {
    let settings = ["tls.cut_revoked=true", "listeners.coaps.client_certificates=\"optional\""];
    let mut gateway = Gateway::start(&settings)?;
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    let pki = |what: &str, name: &str| -> Result<()> {
        let output = Command::new(&binary).args(["pki", what, name, "--data"]).arg(gateway.data()).output()?;
        ensure!(output.status.success(), "pki {what}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    let open = |name: &str, number: u32| -> Result<Session> {
        pki("client", name)?;
        let file = |kind: &str| gateway.data().join("pki/clients").join(format!("{name}.{kind}"));
        let context = dtls::certificates(Some((&file("pem"), &file("key"))))?;
        Session::open(&context, dtls::endpoint(gateway.address("coaps")?, number)?)
    };
    let (mut dev1, mut dev2) = (open("dev1", 0)?, open("dev2", 1)?);
    works(&mut dev2, 1)?;
    works(&mut dev1, 1)?;
    std::thread::sleep(AT_REST);
    pki("revoke", "dev1")?;
    let told = alert(dev1.socket())?;
    works(&mut dev2, 2).context("whose certificate still holds")?;
    gateway.check_alive()?;
    Ok(format!("after {told:.1?}"))
}

/// The suite that the gateway chooses, and whether a ServerKeyExchange follows.
fn chosen(gateway: &Gateway, number: u32, suites: &[u8]) -> Result<(Vec<u8>, bool)> {
    let socket = dtls::endpoint(gateway.address("coaps")?, number)?;
    dtls::half_open_with(&socket, suites)?;
    let flight = coap::receive(&socket, Duration::from_secs(5))?.context("no ServerHello")?;
    // Headers of record and message, version, random; the session's name is empty.
    let suite = flight.get(13 + 12 + 2 + 32 + 1..).and_then(|rest| rest.get(..2)).context("no suite")?;
    // `server_key_exchange` with a message number of 2, behind its type the length.
    let exchange = flight.windows(6).any(|part| part.first() == Some(&12) && part.get(4..6) == Some(&[0, 2]));
    Ok((suite.to_vec(), exchange))
}

fn exchanged() -> Result<String> {
    let mut gateway = Gateway::start_furnished(&[], &KEYS)?;
    // TLS_PSK_WITH_AES_128_CCM_8, _GCM_SHA256, and their sisters of RFC 8442.
    let (ccm_8, gcm) = ([0xc0, 0xa8], [0x00, 0xa8]);
    let (ecdhe_ccm_8, ecdhe_ccm, ecdhe_gcm) = ([0xd0, 0x03], [0xd0, 0x05], [0xd0, 0x01]);
    for (offered, suite, exchange) in [
        (vec![ccm_8, ecdhe_ccm_8], ecdhe_ccm_8, true),
        (vec![ccm_8, gcm, ecdhe_ccm], ecdhe_ccm, true),
        (vec![ccm_8, gcm, ecdhe_ccm_8, ecdhe_ccm, ecdhe_gcm], ecdhe_gcm, true),
        (vec![ccm_8], ccm_8, false),
        (vec![ccm_8, gcm], gcm, false),
    ] {
        let found = chosen(&gateway, 0, &offered.concat())?;
        ensure!(found == (suite.to_vec(), exchange), "{found:02x?} for {offered:02x?}");
    }
    gateway.check_alive()?;
    Ok(String::new())
}
