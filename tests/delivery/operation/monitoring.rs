//! The files of `deploy/monitoring` for Prometheus and Grafana, against a gateway and `promtool`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;
use serde_json::Value;

pub(super) const CHECKED: Case = Case { name: "monitoring, as promtool checks it", run: checked };
pub(super) const NAMES: Case = Case { name: "monitoring asks for metrics that exist", run: names };
pub(super) const PAGE: Case = Case { name: "monitoring: the page of metrics names all, and no others", run: page };
pub(super) const BOARD: Case = Case { name: "monitoring's dashboard is laid out", run: board };

const ALERTS: &str = "fogmux-alerts.yml";
const ALERT_TESTS: &str = "fogmux-alerts.test.yml";
const DASHBOARD: &str = "fogmux-dashboard.json";

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/monitoring")
}

fn read(name: &str) -> Result<String> {
    fs::read_to_string(directory().join(name)).with_context(|| name.to_owned())
}

/// The page that is scraped, in the format that promtool reads.
fn scrape(gateway: &Gateway) -> Result<String> {
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answer = String::from_utf8(tcp::ask(gateway.address("http")?, request)?)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no body")?;
    Ok(body.to_owned())
}

fn promtool(words: &[&str], input: &str) -> Result<String> {
    let mut command = Command::new("promtool");
    command.args(words).current_dir(directory());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().context("no standard input")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    ensure!(output.status.success(), "promtool {}: {said}", words.join(" "));
    Ok(said)
}

fn checked() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let said = promtool(&["check", "metrics"], &scrape(&gateway)?)?;
    ensure!(said.is_empty(), "promtool check metrics: {said}");
    promtool(&["check", "rules", ALERTS], "")?;
    promtool(&["test", "rules", ALERT_TESTS], "")?;
    gateway.check_alive()?;
    Ok(String::new())
}

/// The words of a text that are names of metrics.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    words.filter(|word| word.starts_with("fogmux_") || word.starts_with("process_")).collect()
}

fn names() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let page = scrape(&gateway)?;
    let there: BTreeSet<&str> =
        page.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(['{', ' ']).next()).collect();
    let (alerts, dashboard) = (read(ALERTS)?, read(DASHBOARD)?);
    let (of_alerts, of_dashboard) = (metrics_in(&alerts), metrics_in(&dashboard));
    ensure!(of_alerts.len() > 10 && of_dashboard.len() > 20, "{of_alerts:?} {of_dashboard:?}");
    let missing: Vec<&&str> = of_alerts.union(&of_dashboard).filter(|name| !there.contains(**name)).collect();
    ensure!(missing.is_empty(), "no gateway has {missing:?}");
    // The page for operators names each alert and says what to do.
    let page = fs::read_to_string(directory().join("../../docs/operating/monitoring.md"))?;
    for alert in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        ensure!(page.contains(&format!("`{alert}`")), "docs/operating/monitoring.md does not name {alert}");
    }
    Ok(format!("{} names", of_alerts.union(&of_dashboard).count()))
}

/// A link and a collector that are not there, so that their metrics are.
const WITH_ALL: &str = "[links.away]\nurl = \"mqtt://127.0.0.1:9\"\nout = [{ filter = \"#\" }]\n\
    [telemetry.traces]\nendpoint = \"http://127.0.0.1:9/v1/traces\"\n";
/// Metrics that no gateway has without an ACME server; tests/interop/scenarios_acme.py reads it.
const WITHOUT_SAMPLE: [&str; 1] = ["fogmux_acme_certificate_not_after_seconds"];

/// Every metric is explained, and every one that is explained exists.
fn page() -> Result<String> {
    let gateway = Gateway::start_configured(WITH_ALL)?;
    let answer = scrape(&gateway)?;
    let there = answer.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let there: BTreeSet<&str> = there.chain(WITHOUT_SAMPLE).collect();
    ensure!(there.len() > 100, "{there:?}");
    let page = fs::read_to_string(directory().join("../../docs/metrics.md"))?;
    // A family in words, as `fogmux_link_…`, is no name; a bucket is of its histogram.
    let told: BTreeSet<&str> =
        metrics_in(&page).into_iter().map(|name| name.strip_suffix("_bucket").unwrap_or(name)).collect();
    let (missing, stale): (Vec<_>, Vec<_>) = (there.difference(&told).collect(), told.difference(&there).collect());
    ensure!(missing.is_empty(), "docs/metrics.md does not name {missing:?}");
    ensure!(stale.is_empty(), "docs/metrics.md names {stale:?}, which no gateway has");
    for name in WITHOUT_SAMPLE {
        let (_, behind) = page.split_once(&format!("`{name}`")).context(name)?;
        let sentence = behind.split_once(". ").map_or(behind, |(sentence, _)| sentence);
        ensure!(sentence.contains("no sample without one"), "docs/metrics.md does not say when there is no {name}");
    }
    Ok(format!("{} names", there.len()))
}

fn board() -> Result<String> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)?)?;
    let panels = dashboard.get("panels").and_then(Value::as_array).context("no panels")?;
    let (mut taken, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = panel.get("title").and_then(Value::as_str).context("a panel without a title")?;
        let number =
            |name: &str| panel.pointer(name).and_then(Value::as_u64).with_context(|| format!("{title}: {name}"));
        ensure!(ids.insert(number("/id")?), "{title}: its id is another's");
        let (x, y, w, h) = (number("/gridPos/x")?, number("/gridPos/y")?, number("/gridPos/w")?, number("/gridPos/h")?);
        ensure!(x + w <= 24, "{title} is wider than the page");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            ensure!(taken.insert(cell), "{title} lies upon another");
        }
        if panel.get("type").and_then(Value::as_str) == Some("row") {
            continue;
        }
        let targets = panel.get("targets").and_then(Value::as_array).filter(|targets| !targets.is_empty());
        for target in targets.with_context(|| format!("{title} asks for nothing"))? {
            let asked = target.get("expr").and_then(Value::as_str).context("no expression")?;
            let source = target.pointer("/datasource/uid").and_then(Value::as_str);
            if source != Some("${datasource}") || !asked.contains("$instance") {
                bail!("{title} is not of the chosen data source and gateway: {asked}");
            }
        }
    }
    Ok(format!("{} panels", ids.len()))
}
