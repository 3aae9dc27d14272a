//! `fogmux pki psk`: a key shared by a device and the gateway.

use data_encoding::HEXLOWER_PERMISSIVE;
use fogmux_auth::{Psks, UserError};

use crate::cli::PkiPsk;
use crate::exit::{Failure, Status};
use crate::output::say;
use crate::passwd::enrol;
use crate::{data, installed};

/// RFC 9257 §6: a key has at least 128 bits. With a recorded handshake a shorter one can be searched for where nobody
/// counts the guesses. A file with a shorter key is read all the same, with a warning: a device may have no other.
const KEY_BYTES: usize = 16;

/// Creates, stores and prints a key, or removes one.
pub(crate) fn run(arguments: &PkiPsk) -> Result<(), Failure> {
    let found = installed::find(&arguments.files)?;
    let file = match &found.config.auth.psk_file {
        Some(file) => file.clone(),
        None => found.writable()?.join(data::PSK),
    };
    let identity = arguments.identity.as_bytes();
    let failed = |error: UserError| match error {
        UserError::Io(error) => Failure::io(file.display(), &error),
        UserError::File(problems) => Failure::new(Status::Config, problems),
        error @ (UserError::Name | UserError::Link | UserError::Unknown | UserError::Psk | UserError::Password(_)) => {
            Failure::new(Status::DataErr, error)
        }
    };
    if arguments.delete {
        let removed = Psks::update(&file, |psks| Ok(psks.remove(identity))).map_err(failed)?;
        return match removed {
            true => Ok(()),
            false => Err(Failure::new(Status::DataErr, format!("there is no key for {:?}", arguments.identity))),
        };
    }
    let key = match &arguments.key {
        Some(digits) => given(digits)?,
        None => {
            let mut key = vec![0; KEY_BYTES];
            getrandom::fill(&mut key)
                .map_err(|error| Failure::new(Status::IoErr, format!("cannot get random numbers: {error}")))?;
            key
        }
    };
    enrol(arguments.user.as_deref().unwrap_or(&arguments.identity), &arguments.groups, &found)?;
    Psks::update(&file, |psks| psks.set(identity, &key, arguments.user.as_deref())).map_err(failed)?;
    if arguments.key.is_none() {
        say!("{}:{}\n", arguments.identity, fogmux_net::channel::hex(&key))?;
    }
    Ok(())
}

/// Returns a key that was made elsewhere.
fn given(digits: &str) -> Result<Vec<u8>, Failure> {
    let key =
        bytes(digits).ok_or_else(|| Failure::new(Status::Usage, "a key has an even number of hexadecimal digits"))?;
    if key.len() < KEY_BYTES {
        let message = format!(
            "a key of {} bytes can be guessed from a recorded handshake; it has at least {KEY_BYTES} bytes, {} \
             hexadecimal digits (RFC 9257 §6)",
            key.len(),
            2 * KEY_BYTES
        );
        return Err(Failure::new(Status::Usage, message));
    }
    Ok(key)
}

/// Decodes hexadecimal digits.
pub(crate) fn bytes(digits: &str) -> Option<Vec<u8>> {
    HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()
}
