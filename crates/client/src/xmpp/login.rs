//! The login of a stream (RFC 6120 §6): choice of the SASL mechanism, and its exchange.

use fogmux_auth::looks_like_token;
use fogmux_auth::sasl::{Bearer, Plain};
use fogmux_auth::scram::{ChannelBinding, ClientBinding, ScramClient, ScramHash};
use fogmux_xmpp::ClientEvent;

use super::Session;
use crate::Options;
use crate::error::ClientError;
use crate::stream::Stream;

impl Session {
    /// Logs in with the strongest mechanism that server and client have in common.
    pub(super) async fn log_in(&mut self, options: &Options) -> Result<(), ClientError> {
        let mechanisms = |event: ClientEvent<'_>| {
            if let ClientEvent::Mechanisms(names) = event { Some(names) } else { None }
        };
        let offered = self.until(mechanisms).await?;
        let offers = |name: &str| offered.iter().any(|offer| offer == name);
        if let Some(token) = &options.token {
            if offers("OAUTHBEARER") {
                return self.bearer(token).await;
            }
            return Err(ClientError::Refused("the gateway takes no tokens here".to_owned()));
        }
        let Some((user, password)) = &options.credentials else {
            // Offered to who has shown a certificate (XEP-0178 §3); the identity is the certificate's own.
            if offers("EXTERNAL") {
                return self.authenticate("EXTERNAL", b"").await;
            }
            if options.own.is_some() {
                return Err(ClientError::Refused("the gateway does not take the certificate".to_owned()));
            }
            // RFC 4505 §2: the trace may be empty; sent at once it spares a challenge.
            if offers("ANONYMOUS") {
                return self.authenticate("ANONYMOUS", b"").await;
            }
            return Err(ClientError::Refused("the gateway wants a user and password".to_owned()));
        };
        if offers("OAUTHBEARER") && looks_like_token(password.as_bytes()) {
            return self.bearer(password).await;
        }
        let bound = self.binding(&offered);
        for hash in [ScramHash::Sha256, ScramHash::Sha1] {
            let (plain, plus) = (hash.mechanism(), format!("{}-PLUS", hash.mechanism()));
            match &bound {
                ClientBinding::Bound(_) if offers(&plus) => {
                    return self.scram(&plus, hash, user, password, bound).await;
                }
                ClientBinding::Bound(_) if offers(plain) => {
                    return self.scram(plain, hash, user, password, ClientBinding::None).await;
                }
                ClientBinding::None | ClientBinding::NotOffered if offers(plain) => {
                    return self.scram(plain, hash, user, password, bound).await;
                }
                ClientBinding::Bound(_) | ClientBinding::None | ClientBinding::NotOffered => {}
            }
        }
        if offers("PLAIN") && !matches!(self.transport, Stream::Plain(_)) {
            return self.authenticate("PLAIN", &Plain::encode(user, password)).await;
        }
        Err(ClientError::protocol(format!("no mechanism in common: {}", offered.join(" "))))
    }

    /// A mechanism of one message.
    async fn authenticate(&mut self, mechanism: &str, message: &[u8]) -> Result<(), ClientError> {
        self.stream.authenticate(mechanism, Some(message), &mut self.output);
        self.until(succeeded).await?;
        self.stream.accept(&mut self.output);
        Ok(())
    }

    /// RFC 7628 §3.2.3: who is told what is wrong says that it has understood, and is refused then.
    async fn bearer(&mut self, token: &str) -> Result<(), ClientError> {
        let message = Bearer::encode(token, &self.host.0, self.host.1);
        self.stream.authenticate("OAUTHBEARER", Some(&message), &mut self.output);
        let answered = |event: ClientEvent<'_>| match event {
            ClientEvent::Challenge(_) => Some(false),
            ClientEvent::Success(_) => Some(true),
            ClientEvent::StartTls
            | ClientEvent::Mechanisms(_)
            | ClientEvent::Refused(_)
            | ClientEvent::Bound(_)
            | ClientEvent::Stanza(_)
            | ClientEvent::Ended(_)
            | ClientEvent::Failed(_) => None,
        };
        if !self.until(answered).await? {
            self.stream.respond(Bearer::KISS, &mut self.output);
            self.until(succeeded).await?;
        }
        self.stream.accept(&mut self.output);
        Ok(())
    }

    /// The channel binding of a login to this TLS 1.3 connection (RFC 9266), if the server supports it.
    fn binding(&self, offered: &[String]) -> ClientBinding {
        let Stream::Tls(stream) = &self.transport else { return ClientBinding::None };
        let connection = stream.get_ref().1;
        if connection.protocol_version() != Some(rustls::ProtocolVersion::TLSv1_3) {
            return ClientBinding::None;
        }
        let exported = connection.export_keying_material([0; 32], b"EXPORTER-Channel-Binding", Some(&[]));
        let plus = offered.iter().any(|offer| offer.starts_with("SCRAM-") && offer.ends_with("-PLUS"));
        match exported {
            // So that the server notices when somebody in between has taken the `-PLUS` away.
            Ok(_) if !plus => ClientBinding::NotOffered,
            Ok(data) if self.stream.takes_channel_binding("tls-exporter") => {
                ClientBinding::Bound(ChannelBinding::exporter(&data))
            }
            Ok(_) | Err(_) => ClientBinding::None,
        }
    }

    async fn scram(
        &mut self,
        name: &str,
        hash: ScramHash,
        user: &str,
        password: &str,
        binding: ClientBinding,
    ) -> Result<(), ClientError> {
        let nonce = getrandom::u64().and_then(|high| Ok((high, getrandom::u64()?)));
        let (high, low) = nonce.map_err(|error| ClientError::Io(format!("no random numbers: {error}")))?;
        let nonce = format!("{high:016x}{low:016x}");
        let refused = |error: fogmux_auth::scram::ScramClientError| ClientError::Refused(error.to_string());
        let mut client = ScramClient::new(hash, user, password, &nonce).map_err(refused)?.bound(binding);
        self.stream.authenticate(name, Some(&client.first()), &mut self.output);
        let challenge =
            |event: ClientEvent<'_>| if let ClientEvent::Challenge(data) = event { Some(data) } else { None };
        let server_first = self.until(challenge).await?;
        let answer = client.respond(&server_first).map_err(refused)?;
        self.stream.respond(&answer, &mut self.output);
        let proof = self.until(succeeded).await?.unwrap_or_default();
        client.verify(&proof).map_err(refused)?;
        self.stream.accept(&mut self.output);
        Ok(())
    }
}

fn succeeded(event: ClientEvent<'_>) -> Option<Option<Vec<u8>>> {
    if let ClientEvent::Success(data) = event { Some(data) } else { None }
}
