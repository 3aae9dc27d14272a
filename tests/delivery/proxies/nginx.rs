//! nginx in front of HTTP, as it comes and as the documentation has it.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::users;

use super::server::Server;
use super::{FEW_GUESSES, NAMED};

/// The page whose configuration is tested.
const PAGE: &str = include_str!("../../../docs/operating/reverse-proxy.md");

/// Returns the lines of the documented location for HTTP, without the upstream.
fn documented() -> Result<String> {
    let location = PAGE.split_once("    location / {\n").and_then(|(_, rest)| rest.split_once("\n    }"));
    let (lines, _) = location.context("the page has no location")?;
    let lines = lines.lines().filter(|line| !line.trim_start().starts_with("proxy_pass "));
    // Of `map`, which stands outside a server.
    Ok(lines.collect::<Vec<_>>().join("\n").replace("$connection_upgrade", "$http_connection") + "\n")
}

/// Starts it with lines for the location that it passes on to `upstream`; `None` if there is no nginx.
fn start(upstream: SocketAddr, lines: &str) -> Result<Option<Server>> {
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary: String = temporary.map(|name| format!("{name}_temp_path {name};")).concat();
    Server::start("nginx", &["-p", ".", "-c", "config"], 1, |addresses| {
        let address = addresses.first().map(ToString::to_string).unwrap_or_default();
        format!(
            "daemon off; master_process off; pid nginx.pid; error_log stderr; events {{}}\n\
             http {{ access_log off; {temporary} server {{ listen {address}; location / {{\n\
             proxy_pass http://{upstream}; {lines} }} }} }}\n"
        )
    })
}

pub(super) fn default_listener() -> Result<String> {
    let put = |nginx: &Server, user: &str| users::http(nginx.address(0)?, user, "PUT", "/topics/t", b"x");
    // As it comes: it says nothing of whom it asks for.
    let gateway = users::gateway(&[], &["dev"], &[])?;
    let Some(plain) = start(gateway.address("http")?, "")? else {
        return Ok("skipped: there is no nginx".to_owned());
    };
    let status = put(&plain, "")?;
    ensure!(status == 401, "an anonymous PUT through nginx is answered {status}");
    let status = put(&plain, "dev")?;
    ensure!(matches!(status, 201 | 204), "a user's PUT through nginx is answered {status}");
    // As the documentation has it.
    let gateway = users::gateway(&[NAMED, FEW_GUESSES, "auth.backoff.first=5s"], &["dev"], &[])?;
    let Some(nginx) = start(gateway.address("http")?, &documented()?)? else { return Ok(String::new()) };
    ensure!(put(&nginx, "")? == 401, "an anonymous PUT through a named nginx");
    let status = put(&nginx, "dev")?;
    ensure!(matches!(status, 201 | 204), "a user's PUT through a named nginx is answered {status}");
    Ok(String::new())
}
