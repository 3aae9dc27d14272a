//! The connection to the other broker: TCP, TLS, and CONNECT with the credentials of the configuration. Files are read
//! for each connection, so that a password or certificate that was replaced is used by the next one.

use std::path::Path;

use fogmux_client::{Connector, Options, Own, Stream, Trust, Url};
use fogmux_gateway::links::MARK;
use fogmux_mqtt::{Connect, Property, PropertyBuffer, Version};
use tokio::net::TcpStream;

use super::failure::Failure;
use super::local::{PACKET_BYTES_MAX, goodbye};
use super::mapping::Direction;
use super::side::{Side, Welcome};
use crate::config::links::Link;

/// How the session at the other broker is opened.
pub(super) struct Opening<'a> {
    pub(super) client_id: &'a str,
    /// The mark by which a gateway knows a link of its own.
    pub(super) mark: Option<&'a str>,
    /// Whether a session that is there ends.
    pub(super) clean_start: bool,
    /// Seconds that it outlives the connection.
    pub(super) session_expiry: u32,
    /// QoS 1 and 2 messages that the other broker may have under way.
    pub(super) receive_maximum: u16,
    /// The largest packet that the gateway takes, in bytes.
    pub(super) packet_bytes_max: u32,
}

/// Connects to the other broker; returns on CONNACK.
pub(super) async fn connect(
    config: &Link,
    broker: &Url,
    opening: &Opening<'_>,
) -> Result<(Side<Stream<TcpStream>>, Welcome), Failure> {
    let password = config.password_file.as_deref().map(password).transpose()?;
    let stream = dial(config, broker).await?;
    let mut side = Side::new(stream, Direction::In, opening.packet_bytes_max);
    let mut list = PropertyBuffer::new();
    let properties = [
        Property::SessionExpiryInterval(opening.session_expiry),
        Property::ReceiveMaximum(opening.receive_maximum.max(1)),
        Property::MaximumPacketSize(opening.packet_bytes_max.max(1)),
    ];
    properties.into_iter().try_for_each(|property| list.push(property)).map_err(Failure::new)?;
    if let Some(mark) = opening.mark {
        list.push(Property::UserProperty(MARK, mark)).map_err(Failure::new)?;
    }
    let connect = Connect {
        version: Version::V5,
        bridge: false,
        clean_start: opening.clean_start,
        keep_alive: config.keep_alive,
        client_id: opening.client_id,
        will: None,
        user: Some(config.user.as_str()).filter(|user| !user.is_empty()),
        password: password.as_deref().map(str::as_bytes),
        properties: list.properties(),
    };
    let welcome = side.connect(&connect).await?;
    Ok((side, welcome))
}

/// Ends the session of a link that is not configured any more.
pub(super) async fn end(config: &Link, broker: &Url, client_id: &str) -> Result<(), Failure> {
    let packet_bytes_max = PACKET_BYTES_MAX;
    let (mark, clean_start, session_expiry, receive_maximum) = (None, true, 0, 1);
    let opening = Opening { client_id, mark, clean_start, session_expiry, receive_maximum, packet_bytes_max };
    let ended = async {
        let (mut side, _) = connect(config, broker, &opening).await?;
        side.send(&goodbye()).await
    };
    let late = |_| Failure::new(format!("{}:{}: no answer in time", broker.host, broker.port));
    tokio::time::timeout(config.connect_timeout, ended).await.map_err(late)?
}

async fn dial(config: &Link, broker: &Url) -> Result<Stream<TcpStream>, Failure> {
    let trust = config.ca_file.clone().map_or(Trust::System(None), Trust::File);
    let own = config.cert_file.clone().zip(config.key_file.clone());
    let own = own.map(|(certificate, key)| Own { certificate, key });
    let options = Options { trust, own, ..Options::default() };
    // Before the connection: a file that is missing needs none.
    let connector = broker.secure.then(|| Connector::new(&options, &[])).transpose().map_err(failed)?;
    let stream = fogmux_client::stream::tcp(&broker.host, broker.port).await.map_err(failed)?;
    match connector {
        Some(connector) => connector.connect(stream, &broker.host).await.map_err(failed),
        None => Ok(Stream::Plain(stream)),
    }
}

/// The client names a flag of the command line, which a link does not have.
fn failed(error: fogmux_client::ClientError) -> Failure {
    Failure::new(error.to_string().replace("--ca FILE", "ca_file"))
}

fn password(file: &Path) -> Result<String, Failure> {
    let text =
        fogmux_file::read_to_string(file).map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    // As the files of other passwords: an editor may leave more lines.
    Ok(text.lines().next().unwrap_or_default().trim_end_matches('\r').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("password");
        for text in ["secret", "secret\n", "secret\r\n", "secret\n# of north\n", "secret\n\n"] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(password(&file).unwrap(), "secret", "{text:?}");
        }
        std::fs::write(&file, "").unwrap();
        assert_eq!(password(&file).unwrap(), "");
    }
}
