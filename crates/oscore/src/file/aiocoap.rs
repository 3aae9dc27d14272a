//! aiocoap's context directories: `settings.json` and `secret.json`, of which either may hold any key, and bytes are
//! hexadecimal or ASCII by the ending of their key.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::FileError;
use crate::algorithm::Algorithm;
use crate::id::Id;
use crate::parameters::Parameters;

/// The texts of a directory's two files.
#[derive(Debug)]
pub struct Files {
    /// `settings.json`: what is not secret.
    pub settings: String,
    /// `secret.json`.
    pub secret: Zeroizing<String>,
}

/// Reads the texts of the files that are there.
///
/// # Errors
/// [`FileError`].
pub fn read<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Parameters, FileError> {
    let mut all = Map::new();
    for text in texts {
        all.extend(serde_json::from_str::<Map<String, Value>>(text)?);
    }
    let need = |key| bytes(&all, key)?.ok_or(FileError::Missing(key));
    if let Some(hash) = all.get("kdf-hashfun").filter(|hash| hash.as_str() != Some("sha256")) {
        return Err(FileError::value("kdf-hashfun", format!("{hash} is not supported, only sha256")));
    }
    let parameters = Parameters {
        master_secret: Zeroizing::new(need("secret")?),
        master_salt: bytes(&all, "salt")?.unwrap_or_default(),
        id_context: bytes(&all, "id-context")?,
        sender_id: Id::new(&need("sender-id")?)?,
        recipient_id: Id::new(&need("recipient-id")?)?,
        algorithm: match all.get("algorithm") {
            Some(Value::String(name)) => name.parse()?,
            Some(Value::Number(number)) => number.to_string().parse()?,
            Some(other) => return Err(FileError::value("algorithm", format!("{other} is no name"))),
            None => Algorithm::default(),
        },
    };
    parameters.check()?;
    Ok(parameters)
}

fn bytes(all: &Map<String, Value>, key: &'static str) -> Result<Option<Vec<u8>>, FileError> {
    let text = |suffix: &str| {
        let value = all.get(&format!("{key}{suffix}"));
        value.map(|value| value.as_str().ok_or_else(|| FileError::value(key, "not a string"))).transpose()
    };
    if let Some(hex) = text("_hex")? {
        return HEXLOWER_PERMISSIVE
            .decode(hex.as_bytes())
            .map(Some)
            .map_err(|_| FileError::value(key, "not an even number of hex digits"));
    }
    Ok(text("_ascii")?.map(|ascii| ascii.as_bytes().to_vec()))
}

/// Writes the two files.
#[must_use]
pub fn write(parameters: &Parameters) -> Files {
    let mut settings = Map::new();
    let mut put = |key: &str, value: String| settings.insert(key.to_owned(), Value::String(value));
    put("algorithm", parameters.algorithm.to_string());
    put("kdf-hashfun", "sha256".to_owned());
    put("sender-id_hex", HEXLOWER.encode(parameters.sender_id.as_slice()));
    put("recipient-id_hex", HEXLOWER.encode(parameters.recipient_id.as_slice()));
    if let Some(id_context) = &parameters.id_context {
        put("id-context_hex", HEXLOWER.encode(id_context));
    }
    let (secret, salt) = (HEXLOWER.encode(&parameters.master_secret), HEXLOWER.encode(&parameters.master_salt));
    Files {
        settings: format!("{:#}\n", Value::Object(settings)),
        secret: Zeroizing::new(format!("{{\n  \"salt_hex\": \"{salt}\",\n  \"secret_hex\": \"{secret}\"\n}}\n")),
    }
}
