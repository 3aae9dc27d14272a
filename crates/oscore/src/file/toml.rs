//! Our own format: what `fogmux pki oscore` writes, on both sides.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::FileError;
use crate::algorithm::Algorithm;
use crate::id::Id;
use crate::parameters::Parameters;

/// The file as it stands; all bytes are hexadecimal.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    user: Option<String>,
    made: Option<u64>,
    master_secret: String,
    #[serde(default)]
    master_salt: String,
    id_context: Option<String>,
    sender_id: String,
    recipient_id: String,
    algorithm: Option<String>,
}

/// A context and who holds its other end, if the file says so.
#[derive(Debug)]
pub struct Named {
    /// The user of the other end; where it is not said, the name of the file stands for it.
    pub user: Option<String>,
    /// When its keys were made, by whoever knows that nobody had used them before; in seconds since 1970.
    pub made: Option<u64>,
    /// The context.
    pub parameters: Parameters,
}

/// Reads a file.
///
/// # Errors
/// [`FileError`], which never shows what is secret.
pub fn read(text: &str) -> Result<Named, FileError> {
    let file: File = toml::from_str(text).map_err(|error| FileError::Toml(error.message().to_owned()))?;
    let secret = Zeroizing::new(file.master_secret);
    let hex = |key, text: &str| {
        HEXLOWER_PERMISSIVE
            .decode(text.as_bytes())
            .map_err(|_| FileError::value(key, "not an even number of hex digits"))
    };
    let parameters = Parameters {
        master_secret: Zeroizing::new(hex("master_secret", &secret)?),
        master_salt: hex("master_salt", &file.master_salt)?,
        id_context: file.id_context.as_deref().map(|text| hex("id_context", text)).transpose()?,
        sender_id: Id::new(&hex("sender_id", &file.sender_id)?)?,
        recipient_id: Id::new(&hex("recipient_id", &file.recipient_id)?)?,
        algorithm: file.algorithm.as_deref().map(str::parse).transpose()?.unwrap_or(Algorithm::default()),
    };
    parameters.check()?;
    Ok(Named { user: file.user, made: file.made, parameters })
}

/// Writes a file.
#[must_use]
pub fn write(user: Option<&str>, parameters: &Parameters) -> Zeroizing<String> {
    let mut text =
        Zeroizing::new(String::from("# An OSCORE security context (RFC 8613 §3.2). Secret; all bytes in hex.\n"));
    if let Some(user) = user {
        text.push_str(&format!("user = {}\n", toml::Value::String(user.to_owned())));
    }
    text.push_str(&format!("algorithm = \"{}\"\n", parameters.algorithm));
    let mut line = |key: &str, bytes: &[u8]| text.push_str(&format!("{key} = \"{}\"\n", HEXLOWER.encode(bytes)));
    line("sender_id", parameters.sender_id.as_slice());
    line("recipient_id", parameters.recipient_id.as_slice());
    if let Some(id_context) = &parameters.id_context {
        line("id_context", id_context);
    }
    line("master_salt", &parameters.master_salt);
    line("master_secret", &parameters.master_secret);
    text
}

/// The line that says when keys were made that nobody has used before; to be put behind the rest of a file.
#[must_use]
pub fn made(unix_seconds: u64) -> String {
    format!("made = {unix_seconds}\n")
}
