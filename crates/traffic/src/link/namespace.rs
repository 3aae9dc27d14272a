//! Network namespaces with a name, as `ip netns` makes them.
//!
//! Names are `fogmux-PID-N-ROLE`: a name whose process is gone was left over by a process that was killed.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::LinkError;
use super::tool::IP;

const PREFIX: &str = "fogmux-";
/// Where `ip netns` keeps them.
const DIRECTORY: &str = "/run/netns";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A namespace, removed when it is dropped. Processes and sockets in it keep it alive without a name.
#[derive(Debug)]
pub(super) struct Namespace {
    name: String,
}

impl Namespace {
    pub(super) fn create(role: &str) -> Result<Self, LinkError> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}-{role}", std::process::id());
        IP.run(&format!("netns add {name}"))?;
        let namespace = Self { name };
        // Router solicitations and multicast reports of IPv6 would be in the counters.
        namespace.set("net/ipv6/conf/all/disable_ipv6", "1");
        namespace.set("net/ipv6/conf/default/disable_ipv6", "1");
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// `ip` with these words, in here.
    pub(super) fn ip(&self, arguments: &str) -> Result<(), LinkError> {
        IP.run(&format!("-n {} {arguments}", self.name))
    }

    /// A command that runs in here.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(IP.name);
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Sets a value below `/proc/sys`, which shows the namespace of the thread that opens it. A kernel that does not
    /// have it does not need it.
    pub(super) fn set(&self, key: &str, value: &str) {
        if let Ok(_entered) = self.enter() {
            let _ = fs::write(format!("/proc/sys/{key}"), value);
        }
    }

    pub(super) fn enter(&self) -> Result<Entered, LinkError> {
        let home = open(Path::new("/proc/thread-self/ns/net"))?;
        let there = open(&PathBuf::from(DIRECTORY).join(&self.name))?;
        enter(&there, &self.name)?;
        Ok(Entered { home, _of_this_thread: std::marker::PhantomData })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = IP.run(&format!("netns del {}", self.name));
    }
}

/// The calling thread is in a namespace, until this is dropped.
#[derive(Debug)]
pub struct Entered {
    home: File,
    /// It must be dropped by the thread that it moved.
    _of_this_thread: std::marker::PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let _ = enter(&self.home, "its own namespace");
    }
}

/// Removes the namespaces of processes that are gone.
pub(super) fn remove_leftovers() {
    for entry in fs::read_dir(DIRECTORY).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            let _ = IP.run(&format!("netns del {name}"));
        }
    }
}

fn open(path: &Path) -> Result<File, LinkError> {
    File::open(path).map_err(LinkError::kernel(path.display().to_string()))
}

fn enter(namespace: &File, name: &str) -> Result<(), LinkError> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| LinkError::kernel(format!("entering {name}"))(error.into()))
}
