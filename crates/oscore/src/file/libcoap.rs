//! libcoap's configuration of OSCORE (its `coap-oscore-conf(5)`): lines of `keyword,encoding,value`.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use zeroize::Zeroizing;

use super::FileError;
use crate::algorithm::Algorithm;
use crate::id::Id;
use crate::parameters::Parameters;

/// HKDF SHA-256 in the COSE registry.
const HKDF_SHA_256: [&str; 2] = ["-10", "direct+HKDF-SHA-256"];

/// The fields of the file read so far.
#[derive(Default)]
struct Fields {
    secret: Option<Zeroizing<Vec<u8>>>,
    salt: Vec<u8>,
    id_context: Option<Vec<u8>>,
    sender: Option<Id>,
    recipient: Option<Id>,
    algorithm: Algorithm,
}

/// Reads a file; it must be for one recipient.
///
/// # Errors
/// [`FileError`] with the line.
pub fn read(text: &str) -> Result<Parameters, FileError> {
    let mut fields = Fields::default();
    for (at, line) in text.lines().enumerate() {
        let content = line.trim();
        if !content.is_empty() && !content.starts_with('#') {
            fields.take(content).map_err(|problem| FileError::Line { line: at + 1, problem })?;
        }
    }
    let parameters = Parameters {
        master_secret: fields.secret.ok_or(FileError::Missing("master_secret"))?,
        master_salt: fields.salt,
        id_context: fields.id_context,
        sender_id: fields.sender.ok_or(FileError::Missing("sender_id"))?,
        recipient_id: fields.recipient.ok_or(FileError::Missing("recipient_id"))?,
        algorithm: fields.algorithm,
    };
    parameters.check()?;
    Ok(parameters)
}

impl Fields {
    fn take(&mut self, line: &str) -> Result<(), String> {
        let mut parts = line.splitn(3, ',').map(str::trim);
        let (Some(keyword), Some(encoding), Some(value)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("not keyword,encoding,value".to_owned());
        };
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        let id = |bytes: Vec<u8>| Id::new(&bytes).map_err(|error| error.to_string());
        match keyword {
            "master_secret" => self.secret = Some(Zeroizing::new(bytes(encoding, value)?)),
            "master_salt" => self.salt = bytes(encoding, value)?,
            "id_context" => self.id_context = Some(bytes(encoding, value)?),
            "sender_id" => self.sender = Some(id(bytes(encoding, value)?)?),
            "recipient_id" if self.recipient.is_some() => return Err("more than one recipient_id".to_owned()),
            "recipient_id" => self.recipient = Some(id(bytes(encoding, value)?)?),
            "aead_alg" => self.algorithm = value.parse().map_err(|error: crate::UnknownAlgorithm| error.to_string())?,
            "hkdf_alg" if !HKDF_SHA_256.contains(&value) => {
                return Err("only HKDF SHA-256 (-10) is supported".to_owned());
            }
            // Ours to decide: windows, how often numbers are saved, and what happens after a restart.
            "hkdf_alg" | "replay_window" | "ssn_freq" | "rfc8613_b_1_2" => {}
            "rfc8613_b_2" if value == "false" => {}
            "rfc8613_b_2" => return Err("contexts derived anew (RFC 8613 appendix B.2) are not supported".to_owned()),
            _ => return Err(format!("{keyword} is not known")),
        }
        Ok(())
    }
}

fn bytes(encoding: &str, value: &str) -> Result<Vec<u8>, String> {
    match encoding {
        "hex" => {
            HEXLOWER_PERMISSIVE.decode(value.as_bytes()).map_err(|_| "not an even number of hex digits".to_owned())
        }
        "ascii" => Ok(value.as_bytes().to_vec()),
        _ => Err(format!("{encoding} is no encoding of bytes; hex and ascii are")),
    }
}

/// Writes a file.
#[must_use]
pub fn write(parameters: &Parameters) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::new());
    let mut line = |key: &str, bytes: &[u8]| text.push_str(&format!("{key},hex,\"{}\"\n", HEXLOWER.encode(bytes)));
    line("master_secret", &parameters.master_secret);
    if !parameters.master_salt.is_empty() {
        line("master_salt", &parameters.master_salt);
    }
    if let Some(id_context) = &parameters.id_context {
        line("id_context", id_context);
    }
    line("sender_id", parameters.sender_id.as_slice());
    line("recipient_id", parameters.recipient_id.as_slice());
    text.push_str(&format!("aead_alg,integer,{}\n", parameters.algorithm.number()));
    text.push_str("hkdf_alg,integer,-10\nrfc8613_b_1_2,bool,true\n");
    text
}
