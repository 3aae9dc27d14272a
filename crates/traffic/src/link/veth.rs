//! Pairs of virtual Ethernet devices, set up so that each frame is one that a cable would carry.

use super::namespace::Namespace;
use super::tool::{ETHTOOL, IP};
use super::{CLIENT, GATEWAY, LinkError};

/// The device of either end, in its own namespace.
pub(super) const END: &str = "end0";

/// A hardware address of our own ("locally administered", IEEE 802 clause 8.4.2).
pub(super) type Mac = [u8; 6];
pub(super) const GATEWAY_MAC: Mac = [2, 0, 0, 0, 0, 1];
pub(super) const CLIENT_MAC: Mac = [2, 0, 0, 0, 0, 2];

/// One end of a pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct End<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) device: &'a str,
    pub(super) mac: Mac,
}

impl<'a> End<'a> {
    pub(super) fn client(namespace: &'a Namespace) -> Self {
        Self { namespace, device: END, mac: CLIENT_MAC }
    }

    pub(super) fn gateway(namespace: &'a Namespace) -> Self {
        Self { namespace, device: END, mac: GATEWAY_MAC }
    }

    /// Notes who has an address, so that nobody asks.
    pub(super) fn know(&self, address: std::net::Ipv4Addr, mac: Mac) -> Result<(), LinkError> {
        let (device, mac) = (self.device, text(mac));
        self.namespace.ip(&format!("neigh replace {address} lladdr {mac} dev {device} nud permanent"))
    }

    fn finish(&self) -> Result<(), LinkError> {
        let (device, mac) = (self.device, text(self.mac));
        // One segment at most: TCP and QUIC hand over large ones, which would be carried, and counted, as one frame.
        self.namespace.ip(&format!("link set dev {device} address {mac} gso_max_segs 1 up"))
    }
}

/// Joins two namespaces by a pair of devices.
pub(super) fn join(one: End<'_>, other: End<'_>) -> Result<(), LinkError> {
    IP.run(&format!(
        "link add {} netns {} type veth peer name {} netns {}",
        one.device,
        one.namespace.name(),
        other.device,
        other.namespace.name()
    ))?;
    one.finish()?;
    other.finish()
}

/// Gives both ends their addresses; `seen_by_*` is who each takes the other for.
pub(super) fn address(
    client: End<'_>,
    gateway: End<'_>,
    gateway_seen_by_client: Mac,
    client_seen_by_gateway: Mac,
) -> Result<(), LinkError> {
    client.namespace.ip(&format!("addr add {CLIENT}/24 dev {END}"))?;
    gateway.namespace.ip(&format!("addr add {GATEWAY}/24 dev {END}"))?;
    client.know(GATEWAY, gateway_seen_by_client)?;
    gateway.know(CLIENT, client_seen_by_gateway)
}

/// Has checksums computed in software, as a frame that leaves the kernel needs; without it they are left for hardware
/// that is not there. Large segments and receive coalescing are switched off in the same way.
pub(super) fn compute_checksums(end: &End<'_>) -> Result<(), LinkError> {
    ETHTOOL.require()?;
    let mut command = end.namespace.command(ETHTOOL.name.as_ref());
    command.args(["-K", end.device, "tx", "off", "sg", "off", "tso", "off", "gso", "off", "gro", "off"]);
    ETHTOOL.run_command(&mut command)
}

/// Has each TCP segment acknowledged at once.
pub(super) fn acknowledge_each(namespace: &Namespace) -> Result<(), LinkError> {
    namespace.ip(&format!("route change 10.77.0.0/24 dev {END} proto kernel scope link quickack 1"))
}

fn text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
