//! The directory of contexts: our own `NAME.toml`, libcoap's `NAME.conf`, aiocoap's `NAME/settings.json` and
//! `NAME/secret.json`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use zeroize::Zeroizing;

use super::{FileError, aiocoap, libcoap, toml};
use crate::parameters::Parameters;

/// A security context as its file describes it.
#[derive(Debug)]
pub struct ContextFile {
    /// The user at the other end: the `user` of the file, or else the file's name.
    pub user: String,
    /// The file, or the context's directory in aiocoap's format.
    pub path: PathBuf,
    /// The time at which the keys were generated and not yet used, in seconds since 1970, if the file states it.
    pub made: Option<u64>,
    /// The parameters of the context.
    pub parameters: Parameters,
}

/// Why a file gives no context.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the name of the file is no name of a user")]
    Name,
}

/// aiocoap's files; either may be missing.
const AIOCOAP: [&str; 2] = ["settings.json", "secret.json"];

impl ContextFile {
    /// Reads all contexts of a directory.
    ///
    /// # Errors
    /// A text with every file that is wrong.
    pub fn read_all(directory: &Path) -> Result<Vec<Self>, String> {
        read_all(directory).map_err(|problems| problems.join("\n"))
    }

    /// Reads a file of any of the three formats.
    ///
    /// # Errors
    /// A text that names the file.
    pub fn read(path: &Path) -> Result<Self, String> {
        read(path).map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// All contexts of a directory, in the order of their names. A directory that is not there has none.
///
/// # Errors
/// All problems at once, each with its file.
pub fn read_all(directory: &Path) -> Result<Vec<ContextFile>, Vec<String>> {
    let (contexts, problems) = read_each(directory).map_err(|problem| vec![problem])?;
    if problems.is_empty() { Ok(contexts) } else { Err(problems) }
}

/// [`read_all`] but for files that are wrong: their problems are returned as well, each with its file.
///
/// # Errors
/// The directory cannot be read.
pub fn read_each(directory: &Path) -> Result<(Vec<ContextFile>, Vec<String>), String> {
    let failed = |error: io::Error| format!("{}: {error}", directory.display());
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), Vec::new())),
        Err(error) => return Err(failed(error)),
    };
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(failed)?;
    paths.sort();
    let (mut contexts, mut problems) = (Vec::new(), Vec::new());
    for path in paths.iter().filter(|path| is_context(path)) {
        match ContextFile::read(path) {
            Ok(context) => contexts.push(context),
            Err(problem) => problems.push(problem),
        }
    }
    Ok((contexts, problems))
}

/// Whether this is meant to be a context; other things may lie in the directory too.
fn is_context(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let ending = path.extension().is_some_and(|ending| ending == "toml" || ending == "conf");
    !hidden && (ending || AIOCOAP.iter().any(|file| path.join(file).is_file()))
}

fn read(path: &Path) -> Result<ContextFile, ReadError> {
    let (user, made, parameters) = if path.is_dir() {
        let texts = AIOCOAP.map(|file| read_if_there(&path.join(file)));
        let [settings, secret] = texts;
        (None, None, aiocoap::read([settings?, secret?].iter().flatten().map(|text| text.as_str()))?)
    } else {
        let text = Zeroizing::new(fogmux_file::read_to_string(path)?);
        if path.extension().is_some_and(|ending| ending == "toml") {
            let named = toml::read(&text)?;
            (named.user, named.made, named.parameters)
        } else {
            (None, None, libcoap::read(&text)?)
        }
    };
    let stem = || if path.is_dir() { path.file_name() } else { path.file_stem() };
    let user = match user {
        Some(user) => user,
        None => stem().and_then(|stem| stem.to_str()).ok_or(ReadError::Name)?.to_owned(),
    };
    Ok(ContextFile { user, path: path.to_owned(), made, parameters })
}

fn read_if_there(path: &Path) -> io::Result<Option<Zeroizing<String>>> {
    match fogmux_file::read_to_string(path) {
        Ok(text) => Ok(Some(Zeroizing::new(text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
