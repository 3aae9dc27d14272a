//! The parts of a ClientHello that DTLS 1.3 adds (RFC 8446 §4.1.2, RFC 9147 §5.3), and the server's answers to it:
//! HelloRetryRequest and ServerHello.

use rustls::pki_types::CertificateDer;

use crate::{
    Alert, Group, Platform, Suite13,
    client::ClientConfig,
    exchange::Ephemeral,
    hello::extension,
    v13::{
        hello::RETRY,
        schedule::{self, Early, Transcript},
        server::{PSK_DHE_KE, PSK_KE},
    },
    wire::{self, DTLS_1_2, DTLS_1_3, Reader, message},
};

/// Bytes of one binder behind its length.
const BINDER: usize = 1 + 32;

/// A client's offer of DTLS 1.3.
pub(crate) struct Newer {
    /// Of the pre-shared key.
    pub(super) early: Option<Early>,
    pub(super) share: Option<(Group, Ephemeral)>,
    retried: Option<Retried>,
}

/// The contents of a HelloRetryRequest.
struct Retried {
    cookie: Vec<u8>,
    suite: Suite13,
    /// Of the first ClientHello and the HelloRetryRequest.
    transcript: Transcript,
}

impl Newer {
    /// Nothing where the configuration has nothing for DTLS 1.3.
    pub(crate) fn new(config: &ClientConfig, platform: &Platform) -> Result<Option<Self>, Alert> {
        let able = config.psk.is_some() || (config.server.is_some() && !config.groups.is_empty());
        if config.suites_13.is_empty() || !able {
            return Ok(None);
        }
        let early = config.psk.as_ref().map(|psk| Early::new(Some(&psk.key)));
        let make = |group: &Group| Ephemeral::generate(platform, *group).map(|ephemeral| (*group, ephemeral));
        let share = config.groups.first().map(make).transpose()?;
        Ok(Some(Self { early, share, retried: None }))
    }

    /// Whether a HelloRetryRequest has come, after which there is neither a second nor DTLS 1.2.
    pub(crate) const fn is_retried(&self) -> bool {
        self.retried.is_some()
    }

    /// Appends the extensions of DTLS 1.3, but for pre-shared keys, which come last.
    pub(crate) fn put_extensions(&self, speaks_older: bool, extensions: &mut Vec<u8>) {
        let mut versions = Vec::with_capacity(5);
        let older = if speaks_older { &DTLS_1_2.to_be_bytes()[..] } else { &[] };
        wire::put_vector8(&mut versions, &[&DTLS_1_3.to_be_bytes(), older].concat());
        wire::put_extension(extensions, extension::SUPPORTED_VERSIONS, &versions);
        if let Some(retried) = self.retried.as_ref().filter(|retried| !retried.cookie.is_empty()) {
            wire::put_list_extension(extensions, extension::COOKIE, &retried.cookie);
        }
        if let Some((group, ephemeral)) = &self.share {
            let mut entry = group.number().to_be_bytes().to_vec();
            wire::put_vector16(&mut entry, ephemeral.public());
            wire::put_list_extension(extensions, extension::KEY_SHARE, &entry);
        }
    }

    /// Appends the pre-shared key, whose binder [`Newer::bind`] fills in (RFC 8446 §4.2.11).
    pub(crate) fn put_psk(&self, config: &ClientConfig, extensions: &mut Vec<u8>) {
        let Some(psk) = &config.psk else { return };
        // With forward secrecy, if the server has a group of ours.
        let modes: &[u8] = if config.groups.is_empty() { &[1, PSK_KE] } else { &[2, PSK_DHE_KE, PSK_KE] };
        wire::put_extension(extensions, extension::PSK_KEY_EXCHANGE_MODES, modes);
        let mut identity = Vec::with_capacity(6 + psk.identity.len());
        wire::put_vector16(&mut identity, &psk.identity);
        // The age of a ticket; an external key has none.
        identity.extend_from_slice(&[0; 4]);
        let mut body = Vec::with_capacity(identity.len() + 4 + BINDER);
        wire::put_vector16(&mut body, &identity);
        wire::put_vector16(&mut body, &[&[32][..], &[0; 32]].concat());
        wire::put_extension(extensions, extension::PRE_SHARED_KEY, &body);
    }

    /// Fills in the binder at the end of a whole ClientHello (RFC 8446 §4.2.11.2).
    pub(crate) fn bind(&self, hello: &mut [u8]) {
        let Some(early) = &self.early else { return };
        let mut transcript = self.transcript();
        let len = hello.len();
        let Some((covered, binders)) = len.checked_sub(2 + BINDER).and_then(|at| hello.split_at_mut_checked(at)) else {
            return;
        };
        transcript.add_part(message::CLIENT_HELLO, len, covered);
        let binder = early.binder(&transcript.hash());
        binders.iter_mut().skip(3).zip(binder).for_each(|(to, from)| *to = from);
    }

    /// The transcript before the last ClientHello.
    pub(super) fn transcript(&self) -> Transcript {
        self.retried.as_ref().map_or_else(Transcript::empty, |retried| retried.transcript.clone())
    }

    /// Takes in a HelloRetryRequest that answers `hello` (RFC 8446 §4.1.4).
    pub(crate) fn retry(
        &mut self,
        config: &ClientConfig,
        platform: &Platform,
        hello: &[u8],
        answer: &ServerHello<'_>,
    ) -> Result<(), Alert> {
        if self.is_retried() {
            return Err(Alert::UnexpectedMessage);
        }
        let suite = answer.suite(config)?;
        let mut cookie = Vec::new();
        let mut group = None;
        for (number, body) in &answer.extensions {
            let mut reader = Reader(body);
            match *number {
                extension::SUPPORTED_VERSIONS => {}
                extension::COOKIE => {
                    let bytes = reader.vector16().filter(|cookie| reader.is_empty() && !cookie.is_empty());
                    cookie = bytes.ok_or(Alert::DecodeError)?.to_vec();
                }
                extension::KEY_SHARE => {
                    let number = reader.u16().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)?;
                    group = Some(Group::parse(number).filter(|group| config.groups.contains(group)));
                }
                number => return Err(extension::misplaced(number)),
            }
        }
        match group {
            Some(Some(group)) if self.share.as_ref().is_none_or(|(ours, _)| *ours != group) => {
                self.share = Some((group, Ephemeral::generate(platform, group)?));
            }
            // A group that we did not offer, or have sent a share of.
            Some(_) => return Err(Alert::IllegalParameter),
            // It asks for nothing.
            None if cookie.is_empty() => return Err(Alert::IllegalParameter),
            None => {}
        }
        let transcript = Transcript::after_retry(&schedule::hash_of_hello(hello), answer.body);
        self.retried = Some(Retried { cookie, suite, transcript });
        Ok(())
    }

    /// The suite of a ServerHello, which is that of the HelloRetryRequest if there was one (RFC 8446 §4.1.4).
    pub(super) fn suite(&self, config: &ClientConfig, answer: &ServerHello<'_>) -> Result<Suite13, Alert> {
        let suite = answer.suite(config)?;
        match &self.retried {
            Some(retried) if retried.suite != suite => Err(Alert::IllegalParameter),
            Some(_) | None => Ok(suite),
        }
    }
}

/// A ServerHello of DTLS 1.3, or the HelloRetryRequest that looks like one (RFC 8446 §4.1.3).
pub(crate) struct ServerHello<'a> {
    body: &'a [u8],
    random: [u8; 32],
    suite: u16,
    pub(super) extensions: Vec<(u16, &'a [u8])>,
}

impl<'a> ServerHello<'a> {
    /// `None`: it is one of DTLS 1.2.
    pub(crate) fn parse(body: &'a [u8]) -> Option<Result<Self, Alert>> {
        Self::read(body).transpose()
    }

    fn read(body: &'a [u8]) -> Result<Option<Self>, Alert> {
        let mut reader = Reader(body);
        let (version, random) = reader.u16().zip(reader.array()).ok_or(Alert::DecodeError)?;
        let session_id = reader.vector8().ok_or(Alert::DecodeError)?;
        let (suite, compression) = reader.u16().zip(reader.u8()).ok_or(Alert::DecodeError)?;
        if reader.is_empty() {
            return Ok(None);
        }
        let mut list = Reader(reader.vector16().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)?);
        let mut extensions: Vec<(u16, &[u8])> = Vec::new();
        let mut is_twice = false;
        while !list.is_empty() {
            let extension = list.u16().zip(list.vector16()).ok_or(Alert::DecodeError)?;
            is_twice |= extensions.iter().any(|(number, _)| *number == extension.0);
            extensions.push(extension);
        }
        let chosen = extensions.iter().find(|(number, _)| *number == extension::SUPPORTED_VERSIONS);
        let Some((_, chosen)) = chosen else { return Ok(None) };
        let chosen = <[u8; 2]>::try_from(*chosen).map_err(|_| Alert::DecodeError)?;
        // RFC 8446 §4.1.3, §4.2.1; RFC 9147 §5.3: the session's name is not echoed, and we have given none.
        let holds = version == DTLS_1_2 && session_id.is_empty() && compression == 0 && !is_twice;
        if !holds || chosen != DTLS_1_3.to_be_bytes() {
            return Err(Alert::IllegalParameter);
        }
        Ok(Some(Self { body, random, suite, extensions }))
    }

    pub(crate) fn is_retry(&self) -> bool {
        self.random == RETRY
    }

    pub(super) const fn body(&self) -> &'a [u8] {
        self.body
    }

    fn suite(&self, config: &ClientConfig) -> Result<Suite13, Alert> {
        let offered = |suite: &Suite13| config.suites_13.contains(suite);
        Suite13::parse(self.suite).filter(offered).ok_or(Alert::IllegalParameter)
    }
}

/// The leaf of a server's chain, once its verifier and its name hold.
pub(super) fn verified_leaf(
    config: &ClientConfig,
    platform: &Platform,
    chain: Vec<CertificateDer<'static>>,
) -> Result<CertificateDer<'static>, Alert> {
    let (verifier, name) = config.server.as_ref().ok_or(Alert::UnexpectedMessage)?;
    let mut chain = chain.into_iter();
    // RFC 8446 §4.4.2.4: a server's is never empty.
    let leaf = chain.next().ok_or(Alert::DecodeError)?;
    let intermediates: Vec<_> = chain.collect();
    let verified = verifier.verify_server_cert(&leaf, &intermediates, name, &[], platform.unix_time()?);
    verified.map(|_| leaf).map_err(|error| crate::exchange::alert_of(&error))
}
