//! The TLS of a QUIC handshake, watched for the client certificate that it refuses: quinn tells why a handshake has
//! failed, but not whose certificate it was, and it makes the steps of a handshake in a task of its own.

use std::{
    any::Any,
    sync::{Arc, Mutex, PoisonError},
};

use quinn::{
    ConnectionId, Side,
    crypto::{
        ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session, UnsupportedVersion,
        rustls::QuicServerConfig,
    },
};
use quinn_proto::{TransportError, transport_parameters::TransportParameters};

use crate::clients::{RefusedCertificate, refused::during};

/// The certificate that a handshake has refused. It is what quinn hands out as the handshake's data.
#[derive(Clone, Debug, Default)]
pub(super) struct Refused(Arc<Mutex<Option<RefusedCertificate>>>);

impl Refused {
    pub(super) fn take(&self) -> Option<RefusedCertificate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, refused: RefusedCertificate) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(refused);
    }
}

/// Begins handshakes that are watched.
pub(super) struct Watched(pub(super) Arc<QuicServerConfig>);

impl ServerConfig for Watched {
    fn initial_keys(&self, version: u32, dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.0.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.0.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(self: Arc<Self>, version: u32, params: &TransportParameters) -> Box<dyn Session> {
        let session = Arc::clone(&self.0).start_session(version, params);
        Box::new(WatchedSession { session, refused: Refused::default() })
    }
}

/// A handshake that is watched, and the keys that come of it.
struct WatchedSession {
    session: Box<dyn Session>,
    refused: Refused,
}

impl Session for WatchedSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.session.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.session.handshake_data().map(|_| Box::new(self.refused.clone()) as Box<dyn Any>)
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.session.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.session.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.session.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        let (read, refused) = during(|| self.session.read_handshake(buf));
        refused.into_iter().for_each(|refused| self.refused.note(refused));
        read
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.session.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        self.session.write_handshake(buf)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.session.next_1rtt_keys()
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.session.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.session.export_keying_material(output, label, context)
    }
}
