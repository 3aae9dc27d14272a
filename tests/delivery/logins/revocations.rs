//! Revocation lists that have expired (RFC 5280 §5.1.2.5).

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::tcp;

const RULES: &str = "[[allow]]\nuser = \"dev1\"\nboth = [\"#\"]\n";
/// For `openssl ca`, which wants a database of what it has signed.
const CONFIGURATION: &str = "[ca]\ndefault_ca = own\n[own]\ndatabase = index\ndefault_md = sha256\n\
    crlnumber = number\ncrl_extensions = extensions\n[extensions]\nauthorityKeyIdentifier = keyid\n";

/// Signs an empty list whose time is over since 2020.
fn sign(pki: &Path) -> Result<()> {
    let home = tempfile::tempdir()?;
    fs::write(home.path().join("configuration"), CONFIGURATION)?;
    fs::write(home.path().join("index"), "")?;
    fs::write(home.path().join("number"), "01\n")?;
    let mut openssl = Command::new("openssl");
    openssl.current_dir(&home).args(["ca", "-config", "configuration", "-gencrl", "-out", "crl.pem", "-batch"]);
    openssl.args(["-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", "20200201000000Z"]);
    openssl.arg("-cert").arg(pki.join("ca.pem")).arg("-keyfile").arg(pki.join("ca.key"));
    let output = openssl.output()?;
    ensure!(output.status.success(), "openssl ca: {}", String::from_utf8_lossy(&output.stderr));
    fs::copy(home.path().join("crl.pem"), pki.join("crl.pem"))?;
    Ok(())
}

pub(super) fn expired() -> Result<String> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    for (settings, taken) in [(&[][..], true), (&["tls.crl_expiry=warn"], true), (&["tls.crl_expiry=refuse"], false)] {
        let gateway = Gateway::start_furnished(settings, &[("acl.toml", RULES)])?;
        let pki = gateway.data().join("pki");
        let made = Command::new(&binary).args(["pki", "client", "dev1", "--data"]).arg(gateway.data()).output()?;
        ensure!(made.status.success(), "pki client: {}", String::from_utf8_lossy(&made.stderr));
        let put = || -> Result<bool> {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "-o", "/dev/null", "-f", "-X", "PUT", "-d", "x", "--cacert"]).arg(gateway.ca());
            curl.arg("--cert").arg(pki.join("clients/dev1.pem")).arg("--key").arg(pki.join("clients/dev1.key"));
            curl.arg(format!("https://localhost:{}/topics/t", gateway.address("https")?.port()));
            Ok(curl.output()?.status.success())
        };
        ensure!(put()?, "a certificate of ours was refused before there was a list");
        sign(&pki)?;
        ensure!(put()? == taken, "{settings:?}: a certificate whose list has expired");
        gateway.wait_log("the revocation list has expired", tcp::PATIENCE)?;
    }
    Ok(String::new())
}
