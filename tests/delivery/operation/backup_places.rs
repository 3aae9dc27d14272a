//! Backups of gateways whose files are in other places than usual, or have several names.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::suite::Case;

use super::backup::{done, fogmux, restore};
use super::store::stop;

pub(super) const PLACES: Case =
    Case { name: "operation: a backup has each file once, and no sequence numbers, wherever they are", run: places };
pub(super) const OTHER_NAMES: Case =
    Case { name: "operation: a backup is not a part of itself, whatever its directory is called", run: other_names };

fn names(file: &Path) -> Result<Vec<String>> {
    let mut list = Command::new("tar");
    list.arg("--list").arg("--file").arg(file);
    Ok(done(list, 0)?.lines().map(str::to_owned).collect())
}

fn places() -> Result<String> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    let (store, oscore) = (data.join("messages"), data.join("contexts"));
    // A store that was in use before store.path was set.
    fs::create_dir_all(data.join("store/journal"))?;
    fs::write(data.join("store/journal/00000000.segment"), "old")?;
    fs::create_dir(&oscore)?;
    let text =
        format!("[store]\npath = \"{}\"\n[coap.oscore]\ndirectory = \"{}\"\n", store.display(), oscore.display());
    let config = home.path().join("fogmux.toml");
    fs::write(&config, &text)?;
    let mut context = fogmux(["pki", "oscore", "lamp", "--config", "fogmux.toml", "--data", "data"])?;
    context.current_dir(home.path());
    done(context, 0)?;
    let gateway = Gateway::start_as(Plan { data: Some(&data), configuration: Some(&text), ..Plan::default() })?;
    ensure!(data.join("oscore/journal").exists(), "there are no sequence numbers");
    // Relative, where the configuration is absolute.
    let mut backup = fogmux(["backup", "--data", "data", "--config", "fogmux.toml", "b.tar"])?;
    backup.current_dir(home.path());
    let told = done(backup, 0)?;
    ensure!(told.contains("data/store: left out"), "{told}");
    let file = home.path().join("b.tar");
    let names = names(&file)?;
    let of_stores: Vec<_> = names.iter().filter(|name| name.contains(".segment")).collect();
    ensure!(!of_stores.is_empty() && of_stores.iter().all(|name| name.starts_with("store/")), "{of_stores:?}");
    ensure!(!names.iter().any(|name| name.ends_with("/journal")), "sequence numbers: {names:?}");
    stop(gateway)?;
    restore(&file, &home.path().join("restored"), 0)?;
    Ok(String::new())
}

fn other_names() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let home = tempfile::tempdir()?;
    let link = home.path().join("link");
    std::os::unix::fs::symlink(gateway.data(), &link)?;
    fs::create_dir(home.path().join("a"))?;
    let by_parent = home.path().join("a/../link/b.tar");
    for file in [link.join("b.tar"), by_parent] {
        let data = gateway.data();
        let told = done(fogmux([OsStr::new("backup"), "--data".as_ref(), data.as_ref(), file.as_ref()])?, 64)?;
        ensure!(told.contains("would be a part"), "{told}");
    }
    stop(gateway)?;
    Ok(String::new())
}
