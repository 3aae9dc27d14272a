//! Our client, at an enemy's server.

use std::{collections::VecDeque, time::Duration};

use fogmux_dtls::{
    Alert, Group, Suite, Suite13,
    client::{Client, ClientConfig, ClientEvent},
};

use super::pki::{KEY, PKI, platform};

pub(crate) struct Guest {
    pub(crate) client: Client,
    pub(crate) now: Duration,
    /// Datagrams of the client's.
    pub(crate) out: VecDeque<Vec<u8>>,
    pub(crate) said: Vec<ClientEvent>,
}

/// The versions that our client offers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Versions {
    Older,
    Newer,
    Both,
}

/// With a pre-shared key, by one suite of each version and one group.
pub(crate) fn psk(versions: Versions, suite: Suite) -> ClientConfig {
    restrict(ClientConfig::psk(b"device", KEY), versions, suite)
}

pub(crate) fn certificates(versions: Versions) -> ClientConfig {
    restrict(PKI.client(), versions, Suite::EcdheEcdsaAes128Gcm)
}

fn restrict(config: ClientConfig, versions: Versions, suite: Suite) -> ClientConfig {
    let suites = if versions == Versions::Newer { Vec::new() } else { vec![suite] };
    let suites_13 = if versions == Versions::Older { Vec::new() } else { vec![Suite13::Aes128Gcm] };
    ClientConfig { suites, suites_13, groups: vec![Group::X25519], ..config }
}

impl Guest {
    pub(crate) fn new(config: ClientConfig) -> Self {
        let (now, mut out) = (Duration::from_secs(1), VecDeque::new());
        let client = Client::start(config, platform(), now, &mut |bytes| out.push_back(bytes.to_vec())).unwrap();
        Self { client, now, out, said: Vec::new() }
    }

    pub(crate) fn arrive(&mut self, datagram: &[u8]) {
        let out = &mut self.out;
        self.said.extend(self.client.handle(self.now, datagram, &mut |bytes| out.push_back(bytes.to_vec())));
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.now += time;
        let out = &mut self.out;
        self.client.handle_timeout(self.now, &mut |bytes| out.push_back(bytes.to_vec()));
    }

    /// Asserts that our client sends so many bytes at once, and no byte more.
    pub(crate) fn sends_at_most(&mut self, most: usize) {
        assert_eq!(self.client.data_max(), most);
        let out = &mut self.out;
        assert!(!self.client.send(&vec![7; most + 1], &mut |_| panic!("it is too long")));
        assert!(self.client.send(&vec![7; most], &mut |bytes| out.push_back(bytes.to_vec())));
    }

    /// Asserts that it has given up, and with which alert.
    pub(crate) fn is_over(&mut self, alert: Option<u8>) {
        assert!(!self.client.is_established());
        assert!(!self.client.send(b"data", &mut |_| ()), "nothing can be sent");
        let Some(ClientEvent::Ended(said)) = self.said.last() else { panic!("{:?}", self.said) };
        if let Some(alert) = alert {
            assert_eq!(*said, by_number(alert));
        }
        assert_eq!(self.client.next_timeout(), None);
    }
}

/// The alerts that our client reports by a name of their own.
fn by_number(alert: u8) -> Alert {
    match alert {
        10 => Alert::UnexpectedMessage,
        40 => Alert::HandshakeFailure,
        42 => Alert::BadCertificate,
        47 => Alert::IllegalParameter,
        48 => Alert::UnknownCa,
        50 => Alert::DecodeError,
        51 => Alert::DecryptError,
        70 => Alert::ProtocolVersion,
        109 => Alert::MissingExtension,
        110 => Alert::UnsupportedExtension,
        other => Alert::Other(other),
    }
}
