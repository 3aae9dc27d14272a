//! A server's extensions: in its ServerHello, in EncryptedExtensions and in a CertificateRequest (RFC 8446
//! §4.2).

use rustls::SignatureScheme;

use super::{ClientHandshake, SCHEMES};
use crate::{
    Alert, exchange,
    hello::extension,
    limit::RecordLimit,
    v13::client::ServerHello,
    wire::{Reader, is_numbers},
};

impl ClientHandshake {
    /// RFC 8446 §4.3.1: only what was asked for, and only what belongs here. Gives the server's limit of records, if it
    /// announces one (RFC 8449 §4).
    pub(super) fn encrypted_extensions(&self, body: &[u8]) -> Result<Option<RecordLimit>, Alert> {
        let mut reader = Reader(body);
        let mut list = Reader(reader.vector16().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)?);
        let (mut seen, mut limit) = (Vec::new(), None);
        while !list.is_empty() {
            let (number, body) = list.u16().zip(list.vector16()).ok_or(Alert::DecodeError)?;
            // RFC 8446 §4.2.
            if seen.contains(&number) {
                return Err(Alert::IllegalParameter);
            }
            seen.push(number);
            match number {
                extension::RECORD_SIZE_LIMIT => limit = Some(RecordLimit::parse(body)?),
                extension::SUPPORTED_GROUPS => {}
                extension::SERVER_NAME if self.config.server.is_some() && body.is_empty() => {}
                extension::SERVER_NAME if self.config.server.is_some() => return Err(Alert::DecodeError),
                // Without a name there was no question.
                extension::SERVER_NAME => return Err(Alert::UnsupportedExtension),
                number => return Err(extension::misplaced(number)),
            }
        }
        Ok(limit)
    }
}

/// The choice of a ServerHello among the offers.
pub(super) struct Chosen<'a> {
    pub(super) share: Option<(u16, &'a [u8])>,
    pub(super) psk: bool,
    pub(super) identifier: Option<&'a [u8]>,
}

impl<'a> Chosen<'a> {
    pub(super) fn parse(answer: &ServerHello<'a>, is_identified: bool) -> Result<Self, Alert> {
        let mut chosen = Self { share: None, psk: false, identifier: None };
        for (number, body) in &answer.extensions {
            let mut reader = Reader(body);
            match *number {
                extension::SUPPORTED_VERSIONS => {}
                extension::KEY_SHARE => {
                    let share = reader.u16().zip(reader.vector16()).filter(|_| reader.is_empty());
                    chosen.share = Some(share.ok_or(Alert::DecodeError)?);
                }
                // §4.2.11: there is one, whose index is 0.
                extension::PRE_SHARED_KEY => match **body {
                    [0, 0] => chosen.psk = true,
                    [_, _] => return Err(Alert::IllegalParameter),
                    _ => return Err(Alert::DecodeError),
                },
                extension::CONNECTION_ID if is_identified => {
                    let cid = reader.vector8().filter(|_| reader.is_empty());
                    chosen.identifier = Some(cid.ok_or(Alert::DecodeError)?);
                }
                extension::CONNECTION_ID => return Err(Alert::UnsupportedExtension),
                number => return Err(extension::misplaced(number)),
            }
        }
        Ok(chosen)
    }
}

/// The schemes that a CertificateRequest takes (RFC 8446 §4.3.2).
pub(super) fn asked(body: &[u8]) -> Result<Vec<SignatureScheme>, Alert> {
    let mut reader = Reader(body);
    // The context is for requests after the handshake.
    if !reader.vector8().ok_or(Alert::DecodeError)?.is_empty() {
        return Err(Alert::IllegalParameter);
    }
    let mut list = Reader(reader.vector16().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)?);
    let (mut schemes, mut seen) = (None, Vec::new());
    while !list.is_empty() {
        let (number, body) = list.u16().zip(list.vector16()).ok_or(Alert::DecodeError)?;
        // RFC 8446 §4.2.
        if seen.contains(&number) {
            return Err(Alert::IllegalParameter);
        }
        seen.push(number);
        if number == extension::SIGNATURE_ALGORITHMS {
            let mut reader = Reader(body);
            let offered = reader.vector16().filter(|list| reader.is_empty() && is_numbers(list));
            let offered = offered.ok_or(Alert::DecodeError)?;
            schemes = Some(exchange::schemes(Some(offered)).into_iter().filter(|at| SCHEMES.contains(at)).collect());
        }
    }
    schemes.ok_or(Alert::MissingExtension)
}
