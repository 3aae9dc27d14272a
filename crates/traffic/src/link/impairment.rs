//! The means by which frames are delayed and lost, and the connection of the two ends.

use std::fmt;

use super::conditions::{Conditions, Direction};
use super::namespace::Namespace;
use super::relay::Relay;
use super::tool::{NFT, TC};
use super::veth::{self, CLIENT_MAC, End, GATEWAY_MAC, Mac};
use super::{CLIENT, GATEWAY, LinkError};

/// Devices of the namespace in the middle.
const TO_CLIENT: &str = "client0";
const TO_GATEWAY: &str = "gateway0";
const TO_CLIENT_MAC: Mac = [2, 0, 0, 0, 0, 3];
const TO_GATEWAY_MAC: Mac = [2, 0, 0, 0, 0, 4];

/// Of which nftables loses some.
const OF: u32 = 1_000_000;
/// Frames that `netem` may hold when no rate bounds them; its own 1 000 would be one for each 20 µs of 20 ms.
const NETEM_FRAMES_MAX: u64 = 100_000;

/// The mechanism that impairs a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// Frames are not impaired.
    Nothing,
    /// nftables at the receiving end loses some, drawn by the kernel.
    Nftables,
    /// The kernel's `netem`, in a namespace between the two. From Linux 6.7 and iproute2 6.6 on it takes a seed.
    Netem,
    /// A relay of ours, in a namespace between the two; frames that are lost are drawn from the seed.
    Relay,
}

impl fmt::Display for Means {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Nftables => "nftables",
            Self::Netem => "netem",
            Self::Relay => "relay",
        })
    }
}

/// The source of chance by which `netem` loses frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Draws {
    /// The kernel's random numbers.
    Kernel,
    /// The seed.
    Seed,
}

/// The devices and processes between the two ends, for the lifetime of the link.
#[derive(Debug)]
pub(super) enum Impairment {
    /// A pair of devices; loss is a rule in the namespaces of the ends.
    Direct(Means),
    /// Namespace in the middle, with `netem` on its devices.
    Netem(#[expect(dead_code, reason = "held, so that it stays")] Namespace, Draws),
    /// Namespace in the middle, and what carries frames through it.
    Relay(
        #[expect(dead_code, reason = "held, so that it works")] Relay,
        #[expect(dead_code, reason = "as above")] Namespace,
    ),
}

impl Impairment {
    pub(super) fn means(&self) -> Means {
        match self {
            Self::Direct(means) => *means,
            Self::Netem(..) => Means::Netem,
            Self::Relay(..) => Means::Relay,
        }
    }

    /// Whether frames are lost, and late by different times, as the seed decides.
    pub(super) fn is_seeded(&self) -> bool {
        matches!(self, Self::Relay(..) | Self::Netem(_, Draws::Seed))
    }

    /// Joins the ends in the cheapest way that does what is asked for.
    pub(super) fn lay(
        conditions: &Conditions,
        seed: u64,
        client: &Namespace,
        gateway: &Namespace,
    ) -> Result<Self, LinkError> {
        let ends = Ends { client: End::client(client), gateway: End::gateway(gateway) };
        if conditions.is_lossless() {
            ends.join_directly()?;
            return Ok(Self::Direct(Means::Nothing));
        }
        if conditions.is_loss_only() && !conditions.seeded && NFT.is_there() {
            ends.join_directly()?;
            lose(&ends.client, conditions.down.loss)?;
            lose(&ends.gateway, conditions.up.loss)?;
            return Ok(Self::Direct(Means::Nftables));
        }
        let middle = Namespace::create("middle")?;
        let to_client = End { namespace: &middle, device: TO_CLIENT, mac: TO_CLIENT_MAC };
        let to_gateway = End { namespace: &middle, device: TO_GATEWAY, mac: TO_GATEWAY_MAC };
        veth::join(ends.client, to_client)?;
        veth::join(ends.gateway, to_gateway)?;
        let draws = if conditions.needs_relay() { None } else { draws_of_netem(&middle) };
        let must_be_seeded = conditions.seeded && conditions.is_lossy();
        if let Some(draws) = draws.filter(|draws| *draws == Draws::Seed || !must_be_seeded) {
            netem(&to_gateway, conditions.up, draws, seed)?;
            netem(&to_client, conditions.down, draws, !seed)?;
            route(&to_client, &to_gateway)?;
            veth::address(ends.client, ends.gateway, TO_CLIENT_MAC, TO_GATEWAY_MAC)?;
            return Ok(Self::Netem(middle, draws));
        }
        for end in [&ends.client, &ends.gateway, &to_client, &to_gateway] {
            veth::compute_checksums(end)?;
        }
        let relay = {
            let _entered = middle.enter()?;
            Relay::start(conditions, seed, TO_CLIENT, TO_GATEWAY)?
        };
        veth::address(ends.client, ends.gateway, GATEWAY_MAC, CLIENT_MAC)?;
        Ok(Self::Relay(relay, middle))
    }
}

struct Ends<'a> {
    client: End<'a>,
    gateway: End<'a>,
}

impl Ends<'_> {
    fn join_directly(&self) -> Result<(), LinkError> {
        veth::join(self.client, self.gateway)?;
        for end in [&self.client, &self.gateway] {
            match veth::compute_checksums(end) {
                // Frames are right without it, but their checksums look wrong in a capture.
                Ok(()) | Err(LinkError::Missing { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        veth::address(self.client, self.gateway, GATEWAY_MAC, CLIENT_MAC)
    }
}

/// Loses a share of what an end receives, after it was counted and captured there.
fn lose(end: &End<'_>, share: f64) -> Result<(), LinkError> {
    if share <= 0.0 {
        return Ok(());
    }
    let some = share * f64::from(OF);
    let rules = format!(
        "table ip fogmux {{ chain lose {{ type filter hook prerouting priority raw; policy accept; \
         iifname {} numgen random mod {OF} < {some:.0} drop; }}; }}",
        end.device
    );
    NFT.run_command(end.namespace.command(NFT.name.as_ref()).arg(rules))
}

/// The source of this machine's `netem`; nothing if it has none. A kernel that does not know the seed ignores it, so
/// that counts which one it says it has.
fn draws_of_netem(middle: &Namespace) -> Option<Draws> {
    let name = middle.name();
    if TC.run(&format!("-n {name} qdisc add dev lo root netem loss 1% seed 77")).is_ok() {
        let said = TC.output(&format!("-n {name} qdisc show dev lo")).unwrap_or_default();
        return Some(if said.contains("seed 77") { Draws::Seed } else { Draws::Kernel });
    }
    TC.run(&format!("-n {name} qdisc add dev lo root netem delay 1ms")).ok().map(|()| Draws::Kernel)
}

fn netem(end: &End<'_>, direction: Direction, draws: Draws, seed: u64) -> Result<(), LinkError> {
    let mut words = format!("-n {} qdisc add dev {} root netem", end.namespace.name(), end.device);
    let frames = direction.rate.map_or(NETEM_FRAMES_MAX, |rate| super::lane::frames_max(rate, direction.delay));
    words += &format!(" limit {frames} delay {}us", direction.delay.as_micros());
    if direction.loss > 0.0 {
        words += &format!(" loss {}%", direction.loss * 100.0);
    }
    if draws == Draws::Seed {
        words += &format!(" seed {seed}");
    }
    if let Some(rate) = direction.rate {
        words += &format!(" rate {rate}bit");
    }
    TC.run(&words)
}

/// Has the kernel forward between the two devices.
fn route(to_client: &End<'_>, to_gateway: &End<'_>) -> Result<(), LinkError> {
    let middle = to_client.namespace;
    middle.set("net/ipv4/ip_forward", "1");
    for (end, address, mac) in [(to_client, CLIENT, CLIENT_MAC), (to_gateway, GATEWAY, GATEWAY_MAC)] {
        middle.ip(&format!("route add {address}/32 dev {}", end.device))?;
        end.know(address, mac)?;
    }
    Ok(())
}
