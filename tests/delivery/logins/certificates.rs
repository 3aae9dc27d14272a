//! Client certificates at the default listeners, as the README shows them.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;

const RULES: &str = "[[allow]]\nuser = \"dev1\"\nboth = [\"of/dev1/#\"]\n\
                     [[allow]]\nanonymous = true\nboth = [\"open/#\"]\n";

pub(super) fn taken() -> Result<String> {
    let mut gateway = Gateway::start_furnished(&[], &[("acl.toml", RULES)])?;
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    let made = Command::new(binary).args(["pki", "client", "dev1", "--data"]).arg(gateway.data()).output()?;
    ensure!(made.status.success(), "pki client: {}", String::from_utf8_lossy(&made.stderr));
    let file = |name: &str| gateway.data().join("pki/clients").join(name).display().to_string();
    let (cert, key, ca) = (file("dev1.pem"), file("dev1.key"), gateway.ca().display().to_string());
    // HTTPS, with HTTP/1.1 and 2: only dev1 may write there.
    let https = gateway.address("https")?;
    let put = |topic: &str, more: &[&str]| -> Result<String> {
        let url = format!("https://localhost:{}/topics/{topic}", https.port());
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", &ca, "-X", "PUT", "-d", "x"]);
        let output = curl.args(more).arg(url).output()?;
        ensure!(output.status.success(), "curl: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for version in ["--http1.1", "--http2"] {
        let shown = put("of/dev1/a", &[version, "--cert", &cert, "--key", &key])?;
        ensure!(shown.starts_with('2'), "{version}: {shown} for the owner of a certificate");
        let nobody = put("of/dev1/a", &[version])?;
        ensure!(nobody == "403", "{version}: {nobody} for somebody without one");
        let open = put("open/a", &[version])?;
        ensure!(open.starts_with('2'), "{version}: {open} where anybody may write");
    }
    // MQTT over TLS: mosquitto says by its exit code what became of a QoS 1 publication of version 5.
    let publish = |topic: &str, more: &[&str]| -> Result<bool> {
        let port = gateway.address("mqtts")?.port().to_string();
        let mut client = Command::new("mosquitto_pub");
        client.args(["-V", "5", "-q", "1", "-h", "localhost", "-p", &port, "--cafile", &ca, "-t", topic, "-m", "x"]);
        let output = client.args(more).output()?;
        Ok(output.status.success() && output.stderr.is_empty())
    };
    ensure!(publish("of/dev1/a", &["--cert", &cert, "--key", &key])?, "mqtts: the owner of a certificate was refused");
    ensure!(!publish("of/dev1/a", &[])?, "mqtts: somebody without a certificate was not refused");
    ensure!(publish("open/a", &[])?, "mqtts: refused where anybody may write");
    // Every TLS listener asks, and names the authority, so that browsers ask nobody who has none of its certificates.
    for listener in ["mqtts", "https", "coaps_tcp", "xmpps"] {
        let address = gateway.address(listener)?.to_string();
        let output = Command::new("openssl").args(["s_client", "-connect", &address, "-CAfile", &ca]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(text.contains("Acceptable client certificate CA names"), "{listener} does not name the authority");
    }
    gateway.settle()?;
    Ok(String::new())
}

/// Profiles that OpenSSL serves name the authority as those of rustls do.
pub(super) fn named() -> Result<String> {
    for profile in ["pki", "low"] {
        let listeners = ["mqtts", "https", "coaps_tcp", "xmpps"];
        let settings: Vec<String> = listeners
            .iter()
            .flat_map(|name| {
                ["profile", "allow_weak", "client_certificates"].map(|key| format!("listeners.{name}.{key}"))
            })
            .zip([format!("\"{profile}\""), "true".into(), "\"optional\"".into()].iter().cycle())
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let mut gateway = Gateway::start(&settings.iter().map(String::as_str).collect::<Vec<_>>())?;
        let ca = gateway.ca().display().to_string();
        let subject = Command::new("openssl").args(["x509", "-noout", "-subject", "-in", &ca]).output()?;
        let subject = String::from_utf8_lossy(&subject.stdout).trim().trim_start_matches("subject=").trim().to_owned();
        ensure!(!subject.is_empty(), "the authority has no name");
        for listener in listeners {
            let address = gateway.address(listener)?.to_string();
            let client = ["s_client", "-tls1_2", "-cipher", "ALL:@SECLEVEL=0", "-connect", &address, "-CAfile", &ca];
            let output = Command::new("openssl").args(client).output()?;
            let text = String::from_utf8_lossy(&output.stdout);
            let named = text.split_once("Acceptable client certificate CA names").map(|(_, rest)| rest);
            ensure!(
                named.is_some_and(|rest| rest.contains(&subject)),
                "{profile} at {listener} does not name {subject}"
            );
        }
        gateway.settle()?;
    }
    Ok(String::new())
}
