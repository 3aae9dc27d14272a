//! The network between the two ends: the loopback, or a link of its own with conditions and counters.
//!
//! [`Laid`] is network namespaces of this machine, joined by pairs of virtual Ethernet devices. The gateway
//! is started in one namespace; the generator's thread [enters](Laid::enter_client) the other. Nothing else is in them:
//! no IPv6, no address resolution, no segmentation offload, so that the [counters](Laid::wire) hold the experiment's
//! frames and nothing more, each as it would be on a cable.
//!
//! Loss alone is done by nftables where it is, which costs next to nothing. For all else a third namespace stands
//! between the two: there the kernel's `netem` does delay and rate, where it is, and a relay of ours the rest:
//! jitter, bursts of loss, corruption, duplicates, reordering, and a model of Wi-Fi (module `air`). Frames are lost
//! *after* the counter of the end that sent them.
//!
//! All of this needs root. Nothing outside the namespaces is changed, and they are removed when the link is dropped, or
//! by the next one if the process was killed.

mod air;
mod background;
mod capture;
pub mod conditions;
mod counters;
mod dice;
mod impairment;
mod lane;
mod namespace;
mod packet_socket;
mod relay;
mod tool;
mod veth;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

pub use capture::Capture;
pub use conditions::Conditions;
pub use impairment::Means;
pub use namespace::Entered;

use crate::outcome::Wire;
use counters::Counters;
use impairment::Impairment;
use namespace::Namespace;

/// The gateway's address on every link of ours.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The clients' address.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// A link that is there, until it is dropped.
#[derive(Debug)]
pub struct Laid {
    // Order of dropping: what works in the namespaces, then they.
    impairment: Impairment,
    client_counters: Counters,
    gateway_counters: Counters,
    client: Namespace,
    gateway: Namespace,
    seed: Option<u64>,
}

impl Laid {
    /// Lays a link. `seed` decides which frames are lost, where [`Self::seed`] says so.
    ///
    /// # Errors
    /// We are not root, a tool is missing, or the kernel does not have what it needs.
    pub fn lay(conditions: &Conditions, seed: u64) -> Result<Self, LinkError> {
        if !rustix::process::geteuid().is_root() {
            return Err(LinkError::NotRoot);
        }
        namespace::remove_leftovers();
        let (gateway, client) = (Namespace::create("gateway")?, Namespace::create("client")?);
        let impairment = Impairment::lay(conditions, seed, &client, &gateway)?;
        if conditions.acks_each {
            veth::acknowledge_each(&client)?;
            veth::acknowledge_each(&gateway)?;
        }
        let client_counters = Counters::of(&client)?;
        let gateway_counters = Counters::of(&gateway)?;
        let seed = (conditions.is_drawn() && impairment.is_seeded()).then_some(seed);
        Ok(Self { impairment, client_counters, gateway_counters, client, gateway, seed })
    }

    /// The prefix of a command line that runs in the gateway's namespace. `ip netns exec` replaces itself by the
    /// program, so its process id is that of the gateway.
    #[must_use]
    pub fn wrapper(&self) -> Vec<String> {
        ["ip", "netns", "exec", self.gateway.name()].map(ToOwned::to_owned).to_vec()
    }

    /// The address at which the gateway has to listen.
    #[must_use]
    pub fn gateway_address(&self) -> IpAddr {
        GATEWAY.into()
    }

    /// Moves the calling thread into the clients' namespace: sockets that it makes from now on are there. Threads that
    /// it starts are too, others of this process are not. Dropping the guard moves it back.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn enter_client(&self) -> Result<Entered, LinkError> {
        self.client.enter()
    }

    /// The same with the gateway's namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn enter_gateway(&self) -> Result<Entered, LinkError> {
        self.gateway.enter()
    }

    /// The traffic that both ends have sent since the link was created, before losses. Costs two small reads of
    /// `/proc`, from any thread.
    #[must_use]
    pub fn wire(&self) -> Wire {
        wire(&self.client_counters, &self.gateway_counters)
    }

    /// The same, to be kept apart from the link.
    #[must_use]
    pub fn counter(&self) -> Box<dyn Fn() -> Wire> {
        let (client, gateway) = (self.client_counters.clone(), self.gateway_counters.clone());
        Box::new(move || wire(&client, &gateway))
    }

    /// The means by which frames are delayed and lost.
    #[must_use]
    pub fn means(&self) -> Means {
        self.impairment.means()
    }

    /// The seed that lost frames are drawn from; none if the kernel draws them, or nothing is drawn.
    #[must_use]
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// Looks at the frames at the clients' end until the capture is finished: all that the clients send, and what has
    /// come through to them. They are written to `path`, which Wireshark opens, and shown to `inspect`.
    ///
    /// # Errors
    /// The socket or the file cannot be made.
    pub fn capture<T: Send + 'static>(
        &self,
        path: Option<&Path>,
        state: T,
        inspect: fn(&mut T, &[u8]),
    ) -> Result<Capture<T>, LinkError> {
        let _entered = self.enter_client()?;
        Capture::begin(veth::END, path, state, inspect)
    }
}

fn wire(client: &Counters, gateway: &Counters) -> Wire {
    let (up, down) = (client.sent(), gateway.sent());
    Wire { bytes_up: up.bytes, packets_up: up.packets, bytes_down: down.bytes, packets_down: down.packets }
}

/// The reason why a link cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The conditions cannot be parsed.
    #[error(
        "no link: {0:?}; write loopback, lossless, wifi, or loss=5%,delay=20ms,jitter=1ms,rate=250kbit,ge=1%:25%,air=65mbit"
    )]
    Conditions(String),
    /// Network namespaces require root.
    #[error("a link of its own needs root (network namespaces); run this as root, or use --link loopback")]
    NotRoot,
    /// A program that it takes is not installed.
    #[error("a link of its own needs {tool}: install the package {package}, or use --link loopback")]
    Missing {
        /// Its name.
        tool: &'static str,
        /// Where it comes from.
        package: &'static str,
    },
    /// A program failed.
    #[error("{command}: {said}")]
    Failed {
        /// The command line.
        command: String,
        /// The error.
        said: String,
    },
    /// A system call failed.
    #[error("{what}: {error}")]
    Kernel {
        /// The operation.
        what: String,
        /// The error.
        error: io::Error,
    },
}

impl LinkError {
    fn kernel(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::Kernel { what, error }
    }
}
