//! `pub`, `sub` and `get`: one client for every door, with the same flags for all. The client itself is
//! [`fogmux_client`]; this module has its flags, exit codes and output.

mod print;

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use fogmux_client::{
    Arrived, ClientError, HttpVersion, MqttVersion, Options, Outgoing, Own, Psk, Publisher, Scheme, Subscription,
    Trust, Url, get, subscribe,
};
use fogmux_net::channel::Zeroizing;
use tokio::time::timeout;

use crate::cli::{self, Access, Format, Get, Publish, Subscribe};
use crate::data;
use crate::exit::{Failure, OrFail as _, Status};
use crate::output::say;
use crate::serve::Stop;

/// The default time limit of `pub` and `get`.
const PATIENCE_SECONDS: f64 = 10.0;
/// The time limit for closing the connection at the end of `sub`; a second signal ends it at once.
const CLOSE: Duration = Duration::from_secs(2);

/// `fogmux pub`.
pub(crate) fn run_publish(arguments: &Publish) -> Result<(), Failure> {
    let (url, options) = prepare(&arguments.url, &arguments.access)?;
    let payload = if arguments.payload == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map_err(|error| Failure::io("standard input", &error))?;
        Bytes::from(bytes)
    } else {
        Bytes::from(arguments.payload.clone())
    };
    let message = Outgoing {
        topic: url.topic.clone(),
        payload,
        content_type: arguments.content_type.clone(),
        qos: arguments.access.qos,
        retain: arguments.retain,
    };
    let patience = arguments.access.timeout.unwrap_or(PATIENCE_SECONDS);
    let publish = async {
        let mut publisher = Publisher::open(&url, &options).await?;
        publisher.publish(&message).await?;
        publisher.close().await
    };
    block_on(within(patience, publish))??;
    if arguments.access.json {
        say!("{}\n", serde_json::json!({"topic": url.topic, "bytes": message.payload.len()}))?;
    }
    Ok(())
}

/// `fogmux get`.
pub(crate) fn run_get(arguments: &Get) -> Result<(), Failure> {
    let (url, options) = prepare(&arguments.url, &arguments.access)?;
    let patience = arguments.access.timeout.unwrap_or(PATIENCE_SECONDS);
    let message = block_on(within(patience, get(&url, &options)))??.ok_or(ClientError::Nothing)?;
    print(&message, format(arguments.format, &arguments.access)).map(drop)
}

/// `fogmux sub`.
pub(crate) fn run_subscribe(arguments: &Subscribe) -> Result<(), Failure> {
    let (url, options) = prepare(&arguments.url, &arguments.access)?;
    let format = format(arguments.format, &arguments.access);
    let work = async {
        let mut stop = Stop::listen()?;
        let connecting = arguments.access.timeout.unwrap_or(PATIENCE_SECONDS);
        let mut subscription = tokio::select! {
            subscribed = within(connecting, subscribe(&url, &options)) => subscribed?,
            () = stop.requested() => return Ok(()),
        };
        let followed = tokio::select! {
            followed = follow(&mut subscription, arguments, format) => followed,
            () = stop.requested() => Ok(()),
        };
        // The result is that of the messages printed; a failed close does not change it.
        tokio::select! {
            _ = timeout(CLOSE, subscription.close()) => {}
            () = stop.requested() => {}
        }
        followed
    };
    block_on(work)?
}

/// Prints messages until the count is reached or standard output is closed.
async fn follow(subscription: &mut Subscription, arguments: &Subscribe, format: Format) -> Result<(), Failure> {
    let mut left = arguments.count.unwrap_or(u64::MAX);
    while left > 0 {
        let message = match arguments.access.timeout {
            Some(patience) => within(patience, subscription.next()).await?,
            None => subscription.next().await?,
        };
        if !print(&message, format)? {
            break;
        }
        left -= 1;
    }
    Ok(())
}

fn format(format: Format, access: &Access) -> Format {
    if access.json { Format::Json } else { format }
}

/// Prints a message; returns false if standard output is closed.
fn print(message: &Arrived, format: Format) -> Result<bool, Failure> {
    match print::print(message, format, &mut std::io::stdout().lock()) {
        Ok(()) => Ok(true),
        // `fogmux sub … | head -1` is no error.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::io("standard output", &error)),
    }
}

/// Converts address and flags for the doors' clients.
fn prepare(address: &str, access: &Access) -> Result<(Url, Options), Failure> {
    let url: Url = address.parse().or_fail(Status::Usage, "the address")?;
    let user = access.user.clone().or_else(|| url.user.clone());
    let password = match &access.password_file {
        Some(file) => Some(password_from(file)?),
        None => access.password.clone().or_else(|| url.password.clone()),
    };
    if user.is_none() && password.is_some() {
        return Err(Failure::new(Status::Usage, "a password needs a user: --user NAME, or NAME@ in the address"));
    }
    let token = match &access.token_file {
        Some(file) => Some(password_from(file)?.trim().to_owned()),
        None => access.token.clone(),
    };
    refuse_unused(&url, access)?;
    let options = Options {
        credentials: user.map(|user| (user, password.unwrap_or_default())),
        token,
        trust: match (&access.ca, access.insecure) {
            (Some(file), _) => Trust::File(file.clone()),
            (None, true) => Trust::Insecure,
            (None, false) => trust_here(),
        },
        http: access.http.into(),
        mqtt: access.mqtt.into(),
        client_id: access.client_id.clone(),
        domain: access.domain.clone(),
        qos: access.qos,
        own: access.cert.clone().zip(access.key.clone()).map(|(certificate, key)| Own { certificate, key }),
        psk: psk(access)?,
        oscore: access.oscore.clone(),
        ..Options::default()
    };
    Ok((url, options))
}

/// Refuses protection that the scheme of the address does not have: the message would be sent without it.
fn refuse_unused(url: &Url, access: &Access) -> Result<(), Failure> {
    let is_coap = matches!(url.scheme, Scheme::Coap | Scheme::CoapTcp | Scheme::CoapWebSocket);
    // STARTTLS makes a TLS connection of one with `xmpp://`.
    let has_certificates = url.secure || matches!(url.scheme, Scheme::Xmpp);
    let refused = if access.oscore.is_some() && !is_coap {
        "--oscore protects CoAP only; use a scheme such as coap://"
    } else if access.psk_id.is_some() && !url.secure {
        "--psk-id protects TLS and DTLS only; use a scheme such as mqtts:// or coaps://"
    } else if access.cert.is_some() && !has_certificates {
        "--cert is for TLS and DTLS only; use a scheme such as mqtts:// or coaps://"
    } else {
        return Ok(());
    };
    Err(Failure::new(Status::Usage, refused))
}

/// The system's authorities and, on this machine, the gateway's own: a user who can write there may start the gateway.
pub(crate) fn trust_here() -> Trust {
    Trust::System(data::default_directory().ok().map(|directory| directory.join(data::AUTHORITY)))
}

/// Returns identity and key of `--psk-id` and `--psk` or `--psk-file`.
fn psk(access: &Access) -> Result<Option<Psk>, Failure> {
    let Some(identity) = &access.psk_id else { return Ok(None) };
    let digits = match (&access.psk, &access.psk_file) {
        (Some(digits), _) => Zeroizing::new(digits.clone()),
        (None, Some(file)) => Zeroizing::new(password_from(file)?),
        (None, None) => return Err(Failure::new(Status::Usage, "--psk-id needs --psk-file FILE or --psk HEX")),
    };
    let key = crate::pki::bytes(digits.trim());
    let key = key.filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| Failure::new(Status::Usage, "the pre-shared key is not hexadecimal"))?;
    Ok(Some(Psk { identity: identity.clone(), key: Zeroizing::new(key) }))
}

/// Returns the first line of a file, or of standard input for `-`.
pub(crate) fn password_from(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_line(&mut text).map(drop)
    } else {
        std::fs::read_to_string(file).map(|whole| text = whole)
    };
    read.map_err(|error| Failure::io(file.display(), &error))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

async fn within<T>(seconds: f64, work: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    let patience = Duration::try_from_secs_f64(seconds)
        .map_err(|_| ClientError::Usage(format!("{seconds} is not a number of seconds")))?;
    tokio::time::timeout(patience, work).await.unwrap_or(Err(ClientError::Timeout(seconds)))
}

/// Runs a client on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    Ok(runtime()?.block_on(work))
}

/// The runtime of this thread.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::io("the runtime", &error))
}

impl From<cli::HttpVersion> for HttpVersion {
    fn from(version: cli::HttpVersion) -> Self {
        match version {
            cli::HttpVersion::One => Self::One,
            cli::HttpVersion::Two => Self::Two,
            cli::HttpVersion::Three => Self::Three,
        }
    }
}

impl From<cli::MqttVersion> for MqttVersion {
    fn from(version: cli::MqttVersion) -> Self {
        match version {
            cli::MqttVersion::V311 => Self::V311,
            cli::MqttVersion::V5 => Self::V5,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let status = match &error {
            ClientError::Unavailable(_) | ClientError::Timeout(_) | ClientError::Nothing => Status::Unavailable,
            ClientError::Refused(_) => Status::NoPerm,
            ClientError::NotAccepted(_) => Status::DataErr,
            ClientError::Protocol(_) => Status::Protocol,
            ClientError::Usage(_) => Status::Usage,
            ClientError::Io(_) => Status::IoErr,
        };
        Self::new(status, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protection_that_the_scheme_does_not_have_is_refused_by_its_flag() {
        let oscore = Access { oscore: Some("lamp-1.toml".into()), ..Access::default() };
        let psk = Access { psk_id: Some("a".to_owned()), psk: Some("aabb".to_owned()), ..Access::default() };
        let refused = |address: &str, access: &Access| {
            let failure = prepare(address, access).err()?;
            assert_eq!(failure.status, Status::Usage, "{address}");
            failure.message()
        };
        for scheme in ["mqtt", "mqtts", "ws", "wss", "http", "https", "xmpp", "xmpps"] {
            let said = refused(&format!("{scheme}://127.0.0.1/a"), &oscore).expect(scheme);
            assert!(said.contains("--oscore"), "{said}");
        }
        for scheme in ["mqtt", "ws", "coap", "coap+tcp", "coap+ws", "http", "xmpp"] {
            let said = refused(&format!("{scheme}://127.0.0.1/a"), &psk).expect(scheme);
            assert!(said.contains("--psk"), "{said}");
        }
        for scheme in ["coap", "coaps", "coap+tcp", "coaps+tcp", "coap+ws", "coaps+ws"] {
            assert_eq!(refused(&format!("{scheme}://127.0.0.1/a"), &oscore), None);
        }
        for scheme in ["mqtts", "wss", "coaps", "coaps+tcp", "coaps+ws", "https", "xmpps"] {
            assert_eq!(refused(&format!("{scheme}://127.0.0.1/a"), &psk), None);
        }
    }
}
