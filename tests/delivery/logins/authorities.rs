//! Authorities of others for client certificates (`tls.client_ca_file`): one that is taken out is not believed from the
//! next handshake on, and connections that are open stay.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::tcp;

const RULES: &str = "[[allow]]\nuser = \"dev1\"\nboth = [\"#\"]\n[[allow]]\nuser = \"dev2\"\nboth = [\"#\"]\n";
/// Of each kind of stack: rustls, OpenSSL, DTLS.
const LISTENERS: [&str; 4] = ["https", "mqtts", "mqtts_pki", "coaps_pki"];

/// A device with a certificate of an authority of its own.
struct Device {
    certificate: PathBuf,
    key: PathBuf,
    authority: PathBuf,
}

impl Device {
    fn make(place: &Path, name: &str) -> Result<Self> {
        let file = |suffix: &str| place.join(format!("{name}{suffix}"));
        let (authority, secret) = (file("-ca.pem"), file("-ca.key"));
        let openssl = |words: &[&str], files: &[(&str, &Path)]| -> Result<()> {
            let mut openssl = Command::new("openssl");
            openssl.args(words);
            for (flag, file) in files {
                openssl.arg(flag).arg(file);
            }
            let output = openssl.output()?;
            ensure!(output.status.success(), "openssl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
            Ok(())
        };
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        let subject = format!("/CN={name} authority");
        let own = [&["req", "-x509", "-days", "30", "-subj", &subject][..], &curve].concat();
        openssl(&own, &[("-keyout", &secret), ("-out", &authority)])?;
        let (certificate, key, request) = (file(".pem"), file(".key"), file(".csr"));
        let subject = format!("/CN={name}");
        openssl(&[&["req", "-subj", &subject][..], &curve].concat(), &[("-keyout", &key), ("-out", &request)])?;
        // Without extensions it would be a certificate of version 1, which nobody takes (RFC 5280 §4.1.2.1).
        let extensions = file(".ext");
        fs::write(&extensions, "basicConstraints = CA:FALSE\nextendedKeyUsage = clientAuth\n")?;
        let [signer, secret]: [(&str, &Path); 2] = [("-CA", &authority), ("-CAkey", &secret)];
        let signed = [("-in", &*request), signer, secret, ("-out", &certificate), ("-extfile", &extensions)];
        openssl(&["x509", "-req", "-days", "30", "-CAcreateserial"], &signed)?;
        Ok(Self { certificate, key, authority })
    }

    /// A client of mosquitto with the certificate.
    fn mosquitto(&self, program: &str, gateway: &Gateway, listener: &str) -> Result<Command> {
        let mut client = Command::new(program);
        client.args(["-V", "5", "-q", "1", "-h", "localhost", "-t", "t", "-p"]);
        client.arg(gateway.address(listener)?.port().to_string()).arg("--cafile").arg(gateway.ca());
        client.arg("--cert").arg(&self.certificate).arg("--key").arg(&self.key);
        Ok(client)
    }

    /// Whether a listener takes a message from it, or over CoAP gives it the one that HTTPS has taken.
    fn is_admitted(&self, gateway: &Gateway, listener: &str) -> Result<bool> {
        let port = gateway.address(listener)?.port();
        let mut client = match listener {
            "https" => {
                let mut curl = Command::new("curl");
                curl.args(["-sS", "-m", "10", "-f", "-X", "PUT", "-d", "x", "--cacert"]).arg(gateway.ca());
                curl.arg("--cert").arg(&self.certificate).arg("--key").arg(&self.key);
                curl.arg(format!("https://localhost:{port}/topics/t"));
                curl
            }
            "coaps_pki" => {
                let mut coap = Command::new("coap-client-openssl");
                coap.args(["-B", "5", "-m", "get", "-R"]).arg(gateway.ca());
                coap.arg("-c").arg(&self.certificate).arg("-j").arg(&self.key);
                // Its exit code is 0 whatever happens.
                return Ok(coap.arg(format!("coaps://localhost:{port}/ps/t")).output()?.stdout.trim_ascii_end() == b"x");
            }
            _ => {
                let mut client = self.mosquitto("mosquitto_pub", gateway, listener)?;
                client.args(["-m", "x"]);
                client
            }
        };
        let output = client.output()?;
        Ok(output.status.success() && output.stderr.is_empty())
    }
}

/// A client that stays connected; dropped, it is killed.
struct Subscriber(Child);

impl Drop for Subscriber {
    fn drop(&mut self) {
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

pub(super) fn taken_out() -> Result<String> {
    let home = tempfile::tempdir()?;
    let devices = [Device::make(home.path(), "dev1")?, Device::make(home.path(), "dev2")?];
    let trust = home.path().join("trust.pem");
    let believe = |devices: &[&Device]| -> Result<()> {
        let texts: Vec<String> =
            devices.iter().map(|device| fs::read_to_string(&device.authority)).collect::<Result<_, _>>()?;
        // Whole at any moment, as a tool that installs it would put it there.
        let new = trust.with_extension("new");
        fs::write(&new, texts.concat())?;
        Ok(fs::rename(&new, &trust)?)
    };
    let [first, second] = &devices;
    believe(&[first, second])?;
    let pki = |name: &str, kind: &str| {
        format!("[listeners.{name}]\nkind = \"{kind}\"\naddress = \"127.0.0.1:0\"\nprofile = \"pki\"\n")
    };
    let text = format!("[tls]\nclient_ca_file = {trust:?}\n") + &pki("mqtts_pki", "mqtts") + &pki("coaps_pki", "coaps");
    let files = [("acl.toml", RULES)];
    let mut gateway = Gateway::start_as(Plan { configuration: Some(&text), files: &files, ..Plan::default() })?;
    let admitted = |listener: &str| -> Result<[bool; 2]> {
        Ok([first.is_admitted(&gateway, listener)?, second.is_admitted(&gateway, listener)?])
    };
    for listener in LISTENERS {
        let seen = admitted(listener)?;
        ensure!(seen == [true, true], "{listener}, both authorities: {seen:?}");
    }
    let mut reader = first.mosquitto("mosquitto_sub", &gateway, "mqtts")?;
    let mut reader = Subscriber(reader.args(["-t", "open", "-d"]).stdout(Stdio::piped()).spawn()?);
    let mut lines = BufReader::new(reader.0.stdout.take().context("no output")?).lines();
    let mut wait_line = |part: &str| -> Result<()> {
        lines.by_ref().map_while(Result::ok).find(|line| line.contains(part)).map(drop).context(format!("no {part:?}"))
    };
    wait_line("Subscribed")?;
    for (what, believed, expected) in
        [("the first is out", &[second][..], [false, true]), ("the first is back", &[first, second], [true, true])]
    {
        believe(believed)?;
        let began = Instant::now();
        for listener in LISTENERS {
            while admitted(listener)? != expected {
                ensure!(began.elapsed() < tcp::PATIENCE, "{what}: {listener} admits {:?}", admitted(listener)?);
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        let mut publisher = second.mosquitto("mosquitto_pub", &gateway, "mqtts")?;
        let sent = publisher.args(["-t", "open", "-m", what]).output()?;
        ensure!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
        wait_line(what).with_context(|| format!("{what}: the connection that was open is not served"))?;
    }
    drop(reader);
    gateway.settle()?;
    Ok(LISTENERS.join(", "))
}
