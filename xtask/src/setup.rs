//! Installs what the tests need, each line saying what it does; nothing leaves `target/` but Debian packages.
//!
//! Existing programs are left alone: they are looked for by name, other tools by a copy of the file that pins them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command};

use anyhow::{Context, Result, bail};

use crate::command::{cargo, command, on_path, output, run, succeeds};
use crate::library;
use crate::tree::{Tree, same};

const H2SPEC: &str = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible";

/// An ACME server, for the certificates of interop.
const PEBBLE: &str = "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.3";

/// A program and the Debian package that has it.
struct Program {
    name: &'static str,
    package: &'static str,
}

const CLIENTS: [Program; 19] = [
    Program { name: "mosquitto_pub", package: "mosquitto-clients" },
    Program { name: "coap-client-notls", package: "libcoap3-bin" },
    Program { name: "coap-client-openssl", package: "libcoap3-bin" },
    Program { name: "coap-client-gnutls", package: "libcoap3-bin" },
    Program { name: "openssl", package: "openssl" },
    Program { name: "nft", package: "nftables" },
    Program { name: "ip", package: "iproute2" },
    Program { name: "unshare", package: "util-linux" },
    Program { name: "curl", package: "curl" },
    Program { name: "faketime", package: "faketime" },
    Program { name: "jq", package: "jq" },
    Program { name: "zstd", package: "zstd" },
    Program { name: "node", package: "nodejs" },
    Program { name: "npm", package: "npm" },
    Program { name: "javac", package: "default-jdk-headless" },
    Program { name: "mvn", package: "maven" },
    Program { name: "cc", package: "gcc" },
    Program { name: "nginx", package: "nginx-light" },
    Program { name: "caddy", package: "caddy" },
];

/// Files that are no programs, and the Debian packages that have them: docs/clients.md has clients in C, and
/// docs/operating/reverse-proxy.md an nginx that passes TCP on.
const FILES: [(&str, &str); 3] = [
    ("/usr/include/mosquitto.h", "libmosquitto-dev"),
    ("/usr/include/MQTTClient.h", "libpaho-mqtt-dev"),
    ("/usr/lib/nginx/modules/ngx_stream_module.so", "libnginx-mod-stream"),
];

const BROWSER: [Program; 2] =
    [Program { name: "chromium", package: "chromium" }, Program { name: "node", package: "nodejs" }];

const PEERS: [Program; 5] = [
    Program { name: "mosquitto", package: "mosquitto" },
    Program { name: "coap-server-notls", package: "libcoap3-bin" },
    Program { name: "coap-server-openssl", package: "libcoap3-bin" },
    Program { name: "nginx", package: "nginx-light" },
    Program { name: "ejabberdctl", package: "ejabberd" },
];

const NEIGHBOURS: [Program; 4] = [
    Program { name: "mosquitto", package: "mosquitto" },
    Program { name: "nginx", package: "nginx-light" },
    Program { name: "haproxy", package: "haproxy" },
    // For promtool, which checks metrics and alerts.
    Program { name: "promtool", package: "prometheus" },
];

const LINKS: [Program; 4] = [
    Program { name: "ip", package: "iproute2" },
    Program { name: "tc", package: "iproute2" },
    Program { name: "nft", package: "nftables" },
    Program { name: "ethtool", package: "ethtool" },
];

/// All of it.
pub(crate) fn everything(tree: &Tree) -> Result<()> {
    h2spec(tree)?;
    browser()?;
    clients(tree)?;
    neighbours()?;
    peers(tree)?;
    links()?;
    valgrind()?;
    log_reader()
}

/// The clients of the interop tests.
pub(crate) fn clients(tree: &Tree) -> Result<()> {
    let missing = CLIENTS.iter().filter(|program| !on_path(program.name)).map(|program| program.package);
    let mut packages: Vec<&str> = missing.collect();
    packages.dedup();
    packages.extend(FILES.iter().filter(|(file, _)| !Path::new(file).exists()).map(|(_, package)| package));
    packages.extend(for_python());
    debian(&packages)?;
    // The compiler is busy while the others wait for the network.
    let rust = rust(tree)?;
    let rest = python(tree)
        .and_then(|()| go_install("pebble", PEBBLE, tree))
        .and_then(|()| npm(tree))
        .and_then(|()| maven(tree))
        .and_then(|()| go(tree))
        .and_then(|()| library::peers(tree));
    finish(rust)?;
    rest
}

/// The browser for the pages of `fogmux bench`.
pub(crate) fn browser() -> Result<()> {
    let missing = BROWSER.iter().filter(|program| !on_path(program.name)).map(|program| program.package);
    debian(&missing.collect::<Vec<&str>>())
}

/// Servers that others wrote, for the generator to drive: each started by the tests, on free ports, and not by Debian.
pub(crate) fn peers(tree: &Tree) -> Result<()> {
    let mut packages = missing(&PEERS);
    packages.extend(for_python());
    {
        let _quiet = Quiet::begin()?;
        debian(&packages)?;
    }
    python(tree)
}

/// The tool that counts instructions.
pub(crate) fn valgrind() -> Result<()> {
    if on_path("valgrind") { Ok(()) } else { debian(&["valgrind"]) }
}

/// The broker beside which wear is measured.
pub(crate) fn mosquitto() -> Result<()> {
    servers(NEIGHBOURS.get(..1).unwrap_or_default())
}

/// The broker that is a bridge in the tests of delivery, and the proxies that stand in front of the gateway there.
pub(crate) fn neighbours() -> Result<()> {
    servers(&NEIGHBOURS)
}

fn servers(programs: &[Program]) -> Result<()> {
    let packages = missing(programs);
    if packages.is_empty() {
        return Ok(());
    }
    let _quiet = Quiet::begin()?;
    debian(&packages)
}

/// The packages of servers that are not installed; Debian keeps them where not everybody looks for programs.
fn missing(programs: &[Program]) -> Vec<&'static str> {
    let is_there = |name: &str| on_path(name) || Path::new("/usr/sbin").join(name).exists();
    let mut packages: Vec<&str> =
        programs.iter().filter(|program| !is_there(program.name)).map(|program| program.package).collect();
    packages.dedup();
    packages
}

/// These programs of [`CLIENTS`].
pub(crate) fn packages_of(names: &[&str]) -> Result<()> {
    let missing = CLIENTS.iter().filter(|program| names.contains(&program.name) && !on_path(program.name));
    let packages: Vec<&str> = missing.map(|program| program.package).collect();
    if packages.is_empty() { Ok(()) } else { debian(&packages) }
}

/// The programs that lay links.
pub(crate) fn links() -> Result<()> {
    let packages = missing(&LINKS);
    if packages.is_empty() { Ok(()) } else { debian(&packages) }
}

/// The program that reads our log in the tests of `deploy/`.
pub(crate) fn log_reader() -> Result<()> {
    if on_path("fail2ban-regex") {
        return Ok(());
    }
    let _quiet = Quiet::begin()?;
    debian(&["fail2ban"])
}

/// While it is there, Debian starts no service that it installs (invoke-rc.d(8)).
struct Quiet {
    ours: bool,
}

impl Quiet {
    const POLICY: &str = "/usr/sbin/policy-rc.d";

    fn begin() -> Result<Self> {
        let ours = is_root()? && !Path::new(Self::POLICY).exists();
        if ours {
            // 101: the action is forbidden.
            fs::write(Self::POLICY, "#!/bin/sh\nexit 101\n").context(Self::POLICY)?;
            fs::set_permissions(Self::POLICY, fs::Permissions::from_mode(0o755)).context(Self::POLICY)?;
        }
        Ok(Self { ours })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if self.ours {
            // If it cannot be removed, its text explains it to the administrator.
            let _ = fs::remove_file(Self::POLICY);
        }
    }
}

/// Whether this process may install packages and lay links.
pub(crate) fn is_root() -> Result<bool> {
    Ok(output(&mut command("id", &["-u"]))?.trim() == "0")
}

/// The packages for a virtual environment of Python, if it is missing.
fn for_python() -> &'static [&'static str] {
    if succeeds(&mut command("python3", &["-c", "import venv, ensurepip"])) {
        &[]
    } else {
        &["python3", "python3-venv"]
    }
}

/// The HTTP/2 conformance tester.
pub(crate) fn h2spec(tree: &Tree) -> Result<()> {
    go_install("h2spec", H2SPEC, tree)
}

/// A program in Go, of a version that its path names.
fn go_install(name: &str, path: &str, tree: &Tree) -> Result<()> {
    if tree.clients().join("bin").join(name).exists() {
        return said(name, "is there");
    }
    println!("setup: {name} by go install");
    run(go_command(&["install", path], tree)?.env("GOBIN", tree.clients().join("bin")))
}

fn go_command(arguments: &[&str], tree: &Tree) -> Result<Command> {
    if !on_path("go") {
        bail!("some clients need Go: install it from the distribution's golang packages and run this again");
    }
    let mut go = command("go", arguments);
    go.env("GOPATH", tree.clients().join("go")).env("GOFLAGS", "-modcacherw");
    Ok(go)
}

/// A client in Go, whose sums pin it; Go looks by itself whether there is something to do.
fn go(tree: &Tree) -> Result<()> {
    let binary = tree.clients().join("bin/paho-golang-peer");
    println!("setup: the Go client into {}", binary.display());
    let mut build = go_command(&["build", "-o"], tree)?;
    run(build.arg(&binary).arg(".").current_dir(tree.root().join("tests/interop/go")))
}

/// Installs Debian packages when there are any to install.
pub(crate) fn debian(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return said("Debian packages", "are there");
    }
    let list = packages.join(" ");
    if !on_path("apt-get") || !is_root()? {
        bail!("missing: {list}; run `apt-get install {list}` as root (or install their like) and try again");
    }
    println!("setup: Debian packages {list}");
    run(command("apt-get", &["update", "-qq"]).env("DEBIAN_FRONTEND", "noninteractive"))?;
    let mut install = command("apt-get", &["install", "-y", "-qq", "--no-install-recommends"]);
    run(install.args(packages).env("DEBIAN_FRONTEND", "noninteractive"))
}

fn python(tree: &Tree) -> Result<()> {
    let pins = tree.root().join("tests/interop/requirements.txt");
    let place = tree.clients().join("venv");
    let stamp = place.join("installed");
    if same(&pins, &stamp)
        && succeeds(&mut command(
            tree.python(),
            &[
                "-c",
                "import aiocoap.oscore, aiomqtt, aioquic, gmqtt, jwt, opentelemetry.proto, paho, schemathesis, slixmpp, \
                 zeroconf",
            ],
        ))
    {
        return said("Python clients", "are there");
    }
    println!("setup: Python clients into {}", place.display());
    run(command("python3", &["-m", "venv", "--clear"]).arg(&place))?;
    run(command(tree.python(), &["-m", "pip", "install", "--quiet", "-r"]).arg(&pins))?;
    fs::copy(&pins, &stamp).map(drop).with_context(|| stamp.display().to_string())
}

fn npm(tree: &Tree) -> Result<()> {
    let pins = tree.root().join("tests/interop/package.json");
    let place = tree.clients().join("npm");
    let stamp = place.join("package.json");
    if same(&pins, &stamp) && place.join("node_modules/.package-lock.json").exists() {
        return said("npm clients", "are there");
    }
    println!("setup: npm clients into {}", place.display());
    fs::create_dir_all(&place)?;
    fs::copy(&pins, &stamp).with_context(|| stamp.display().to_string())?;
    run(command("npm", &["install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"])
        .current_dir(&place))
}

/// The bridge is compiled with its clients; Maven looks by itself whether there is something to do.
fn maven(tree: &Tree) -> Result<()> {
    let place = tree.clients().join("java");
    println!("setup: Maven clients into {}", place.display());
    let mut package = command("mvn", &["--quiet", "--batch-mode", "package", "dependency:copy-dependencies", "--file"]);
    package.arg(tree.root().join("tests/interop/java/pom.xml"));
    package.arg(format!("-Dmaven.repo.local={}", tree.clients().join("m2").display()));
    run(package.arg(format!("-Dplace={}", place.display())))
}

/// Clients in Rust, of other crates than the gateway's: a workspace of its own, whose lock file pins them.
fn rust(tree: &Tree) -> Result<Child> {
    let place = tree.clients().join("rust");
    println!("setup: Rust clients into {}", place.display());
    let mut build = cargo(&["build", "--quiet", "--locked", "--manifest-path"]);
    build.arg(tree.root().join("tests/interop/rust/Cargo.toml")).arg("--target-dir").arg(place);
    build.spawn().context("cannot start cargo")
}

fn finish(mut build: Child) -> Result<()> {
    if !build.wait()?.success() {
        bail!("the Rust clients do not build");
    }
    Ok(())
}

fn said(what: &str, how: &str) -> Result<()> {
    println!("setup: {what} {how}");
    Ok(())
}
