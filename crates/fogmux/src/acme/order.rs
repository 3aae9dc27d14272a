//! One order (RFC 8555 §7.4): account, order, challenges, certificate, and its file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fogmux_client::tls::Trust;
use fogmux_net::channel::Zeroizing;
use fogmux_net::{Challenges, Named, UnderWay};
use instant_acme::{
    Account, AccountCredentials, AuthorizationHandle, AuthorizationStatus, CertificateIdentifier, ChallengeType,
    ExternalAccountKey, Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};

use super::Files;
use super::client::Client;
use super::failed::Failed;
use super::schedule::Window;
use crate::config::acme::{Acme, Challenge};
use crate::data;

/// How long a server may take to validate the names, and to sign the certificate after that.
const SERVER_MAX: Duration = Duration::from_secs(180);

/// More than a key and a chain have, in bytes.
const CERTIFICATE_BYTES: usize = 16 << 10;

/// The server, the files and the challenges of orders.
#[derive(Clone)]
pub(super) struct Orders {
    pub(super) config: Acme,
    pub(super) files: Files,
    pub(super) challenges: Challenges,
    pub(super) client: Client,
}

impl Orders {
    pub(super) fn new(config: Acme, files: Files, challenges: Challenges) -> Self {
        let trust = config.ca_file.clone().map_or(Trust::System(None), Trust::File);
        Self { config, files, challenges, client: Client::new(trust) }
    }

    /// Has a certificate issued and puts it in its file. Returns it, and the server's window for its renewal.
    pub(super) async fn order(&self) -> Result<(Named, Option<Window>), Failed> {
        data::make(&self.files.directory).map_err(|error| unwritten(&self.files.directory, &error))?;
        // A disk that takes nothing is noticed before the server signs: it does so a few times a week only.
        let candidate = self.candidate();
        let reserved = data::write_private(&candidate, &[0; CERTIFICATE_BYTES]);
        let ordered = match reserved {
            Ok(()) => self.order_with_account().await,
            Err(error) => Err(unwritten(&candidate, &error)),
        };
        ordered.inspect_err(|_| drop(std::fs::remove_file(&candidate)))
    }

    async fn order_with_account(&self) -> Result<(Named, Option<Window>), Failed> {
        let ordered = self.order_of(&self.account().await?).await;
        let Err(failed) = &ordered else { return ordered };
        if !failed.is_of_account() {
            return ordered;
        }
        tracing::warn!("ACME: {} does not know the account any more; it gets another", self.config.directory);
        std::fs::remove_file(&self.files.account).map_err(|error| unwritten(&self.files.account, &error))?;
        self.order_of(&self.account().await?).await
    }

    /// Asks the server for the time of the renewal; `None` if it has no such thing, or does not answer.
    pub(super) async fn window(&self, named: &Named) -> Option<Window> {
        let account = self.known_account().await;
        let unknown = |failed: &Failed| tracing::debug!("ACME: no time for the renewal: {}", failed.reason);
        window(&account.inspect_err(unknown).ok()??, named).await
    }

    async fn account(&self) -> Result<Account, Failed> {
        if let Some(account) = self.known_account().await? {
            return Ok(account);
        }
        let contact: Vec<_> = self.config.contact.iter().map(|address| format!("mailto:{address}")).collect();
        let contact: Vec<_> = contact.iter().map(String::as_str).collect();
        let wanted = NewAccount {
            contact: &contact,
            terms_of_service_agreed: self.config.agree_to_terms,
            only_return_existing: false,
        };
        let binding = self.external_account()?;
        let builder = Account::builder_with_http(Box::new(self.client.clone()));
        let created = builder.create(&wanted, self.config.directory.clone(), binding.as_ref()).await;
        let external = binding.is_some().then_some(self.config.external_account.as_str());
        let (account, credentials) = created.map_err(|error| Failed::account(error, external))?;
        let text = serde_json::to_vec(&credentials).map(Zeroizing::new);
        let text = text.map_err(|error| Failed::new(error.to_string()))?;
        let file = &self.files.account;
        data::replace_private(file, &text).map_err(|error| unwritten(file, &error))?;
        tracing::info!("ACME: {} has an account for this gateway: {}", self.config.directory, account.id());
        Ok(account)
    }

    /// The account of the file, if it is one of this server. One that cannot be read is left to the operator: a server
    /// limits how many it gives.
    async fn known_account(&self) -> Result<Option<Account>, Failed> {
        let file = &self.files.account;
        let text = match fogmux_file::read(file).map(Zeroizing::new) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| unreadable(file, &error))?,
        };
        let value: serde_json::Value = serde_json::from_slice(&text).map_err(|error| unreadable(file, &error))?;
        if value.get("directory").and_then(serde_json::Value::as_str) != Some(&self.config.directory) {
            return Ok(None);
        }
        let credentials: AccountCredentials =
            serde_json::from_value(value).map_err(|error| unreadable(file, &error))?;
        let builder = Account::builder_with_http(Box::new(self.client.clone()));
        Ok(Some(builder.from_credentials(credentials).await?))
    }

    fn external_account(&self) -> Result<Option<ExternalAccountKey>, Failed> {
        let Some(file) = &self.config.external_account_key_file else { return Ok(None) };
        let text =
            fogmux_file::read_to_string(file).map(Zeroizing::new).map_err(|error| Failed::key_file(file, error))?;
        let key = URL_SAFE_NO_PAD.decode(text.trim().trim_end_matches('=')).map(Zeroizing::new);
        let key = key.map_err(|_| Failed::key_file(file, "what is in it is not base64url"))?;
        if key.is_empty() {
            return Err(Failed::key_file(file, "it is empty"));
        }
        Ok(Some(ExternalAccountKey::new(self.config.external_account.clone(), &key)))
    }

    async fn order_of(&self, account: &Account) -> Result<(Named, Option<Window>), Failed> {
        let identifiers: Vec<_> = self.config.domains.iter().cloned().map(Identifier::Dns).collect();
        let mut order = account.new_order(&NewOrder::new(&identifiers)).await?;
        let patience = RetryPolicy::new().timeout(SERVER_MAX);
        let under_way = self.begin_challenges(&mut order).await?;
        let ready = order.poll_ready(&patience).await;
        if !matches!(ready, Ok(OrderStatus::Ready)) {
            let unready = ready.err().map_or_else(|| Failed::new("the server refuses the order"), Failed::from);
            return Err(why_invalid(&mut order).await.unwrap_or(unready));
        }
        drop(under_way);
        let key = Zeroizing::new(order.finalize().await?);
        let chain = order.poll_certificate(&patience).await?;
        let named = self.put_in_place(&key, &chain)?;
        let window = window(account, &named).await;
        Ok((named, window))
    }

    /// Answers the challenges of all names, and tells the server so. They end when the guards are dropped.
    async fn begin_challenges(&self, order: &mut Order) -> Result<Vec<UnderWay>, Failed> {
        let mut under_way = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            match authorization.status {
                // Of an order before, which failed for another name.
                AuthorizationStatus::Valid => continue,
                AuthorizationStatus::Pending
                | AuthorizationStatus::Invalid
                | AuthorizationStatus::Revoked
                | AuthorizationStatus::Expired
                | AuthorizationStatus::Deactivated => {}
            }
            under_way.push(self.begin_challenge(&mut authorization).await?);
        }
        Ok(under_way)
    }

    async fn begin_challenge<'a>(&self, authorization: &'a mut AuthorizationHandle<'a>) -> Result<UnderWay, Failed> {
        let kind = match self.config.challenge {
            Challenge::Http01 => ChallengeType::Http01,
            Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
        };
        let name = self.config.challenge.name();
        let domain = authorization.identifier().to_string();
        let challenge = authorization.challenge(kind);
        let mut challenge = challenge.ok_or_else(|| Failed::new(format!("{domain}: the server offers no {name}")))?;
        let expected = challenge.key_authorization();
        let begun = match self.config.challenge {
            Challenge::Http01 => self.challenges.begin_http(&domain, &challenge.token, expected.as_str()),
            Challenge::TlsAlpn01 => {
                let begun = self.challenges.begin_tls_alpn(&domain, expected.digest().as_ref());
                begun.map_err(|error| Failed::new(error.to_string()))?
            }
        };
        tracing::info!("ACME: the server may validate {domain} by {name}");
        challenge.set_ready().await?;
        Ok(begun)
    }

    /// The file that takes the place of the certificate's.
    fn candidate(&self) -> PathBuf {
        self.files.certificate.with_added_extension("new")
    }

    /// Writes key and chain beside the certificate that is there, which they replace if they can be used.
    fn put_in_place(&self, key: &str, chain: &str) -> Result<Named, Failed> {
        let file = &self.files.certificate;
        let candidate = self.candidate();
        let text = Zeroizing::new(format!("{key}{chain}"));
        data::write_private(&candidate, text.as_bytes()).map_err(|error| unwritten(&candidate, &error))?;
        let named = Named::read(&candidate).map_err(|error| Failed::new(error.to_string()))?;
        let missing = self.config.domains.iter().find(|domain| !covers(&named, domain));
        if let Some(domain) = missing {
            return Err(Failed::new(format!("the certificate that the server has issued is not for {domain}")));
        }
        let renamed = std::fs::rename(&candidate, file);
        let synced = renamed.and_then(|()| std::fs::File::open(&self.files.directory)?.sync_all());
        synced.map_err(|error| unwritten(file, &error))?;
        Ok(named)
    }
}

/// Whether a certificate has a name.
pub(super) fn covers(named: &Named, domain: &str) -> bool {
    named.names().iter().any(|name| name.eq_ignore_ascii_case(domain))
}

/// The error of the challenge that failed, which says more than the order does.
async fn why_invalid(order: &mut Order) -> Option<Failed> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let domain = authorization.identifier().to_string();
        let state = authorization.refresh().await.ok()?;
        let error = state.challenges.iter().find_map(|challenge| challenge.error.as_ref());
        if let Some(problem) = error {
            return Some(Failed::validation(&domain, problem));
        }
    }
    None
}

/// RFC 9773 §4.1. A server without it has no window, and one that fails to tell has none for now.
async fn window(account: &Account, named: &Named) -> Option<Window> {
    let leaf = named.leaf().into();
    let identifier = CertificateIdentifier::try_from(&leaf).ok()?;
    let told = account.renewal_info(&identifier).await;
    let (info, again) = told.inspect_err(|error| tracing::debug!("ACME: no time for the renewal: {error}")).ok()?;
    let unix_s = |seconds: i64| u64::try_from(seconds).unwrap_or_default();
    Some(Window {
        start_unix_s: unix_s(info.suggested_window.start.unix_timestamp()),
        end_unix_s: unix_s(info.suggested_window.end.unix_timestamp()),
        again_s: again.as_secs(),
    })
}

fn unreadable(file: &Path, error: &dyn std::fmt::Display) -> Failed {
    Failed::new(format!("{}: {error}", file.display()))
}

fn unwritten(file: &Path, error: &std::io::Error) -> Failed {
    Failed::new(format!("{} cannot be written: {error}", file.display()))
}
