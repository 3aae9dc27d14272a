//! The command line in a report: as a shell would take it again, without what must not be published.

/// Flags whose value is a secret.
pub const SECRET_FLAGS: [&str; 1] = ["--psk"];
/// The word in the place of a secret.
const REDACTED: &str = "REDACTED";

/// A command line with its secrets redacted, each word quoted as a POSIX shell needs it. The program is named without
/// its directory, which may be a user's.
#[must_use]
pub fn shown(words: impl IntoIterator<Item = String>) -> String {
    let mut words: Vec<String> = words.into_iter().collect();
    if let Some(program) = words.first_mut()
        && let Some((_, name)) = program.rsplit_once('/')
    {
        *program = name.to_owned();
    }
    redact(words.iter().map(String::as_str)).iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// The same for a line that was written before lines were redacted.
pub(super) fn redacted(line: &str) -> String {
    redact(line.split(' ')).join(" ")
}

fn redact<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut is_secret = false;
    let mut word = |word: &str| {
        if std::mem::replace(&mut is_secret, SECRET_FLAGS.contains(&word)) {
            return REDACTED.to_owned();
        }
        match word.split_once('=') {
            Some((flag, _)) if SECRET_FLAGS.contains(&flag) => format!("{flag}={REDACTED}"),
            _ => without_credentials(word),
        }
    };
    words.map(&mut word).collect()
}

/// A URL without its user, password and query (RFC 3986 §3.2.1, §3.4), any of which may be a token; other words as they
/// are.
fn without_credentials(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    // A password that contains a slash is none of a URL that works, but it is typed all the same: up to the last @.
    let (user, host) = rest.rsplit_once('@').map_or(("", rest), |(_, host)| ("REDACTED@", host));
    let (host, query) = host.split_once('?').map_or((host, ""), |(host, _)| (host, "?REDACTED"));
    format!("{scheme}://{user}{host}{query}")
}

/// A word as a POSIX shell takes it for itself.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"@%+=:,./_-".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> String {
        shown(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn secrets_are_left_out_wherever_they_stand() {
        let words =
            ["/home/me/fogmux", "bench", "peer", "mqtts://u:s3cret@h:8883/a", "--psk-id", "me", "--psk", "c0ffee"];
        assert_eq!(of(&words), "fogmux bench peer mqtts://REDACTED@h:8883/a --psk-id me --psk REDACTED");
        assert_eq!(of(&["--psk=c0ffee"]), "--psk=REDACTED");
        for url in
            ["mqtt://tok3n@h", "http://u:p@ss/w@h", "http://u:tok3n?x@h", "https://h/x?token=tok3n", "ws://u:a b@h"]
        {
            let shown = of(&["fogmux", url]);
            for secret in ["tok3n", "p@ss", "/w", "a b"] {
                assert!(!shown.contains(secret), "{shown}");
            }
        }
        assert_eq!(of(&["fogmux", "coap://[::1]:5683/ps"]), "fogmux 'coap://[::1]:5683/ps'");
    }

    #[test]
    fn a_shell_reads_the_words_that_were_typed() {
        let words = ["fogmux", "--topic", "a b/{}", "--to", "it's", "", "$HOME", "room/#", "loss=5%,delay=20ms"];
        let line = format!("printf '%s\\n' {}", of(&words));
        let read = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
        assert_eq!(String::from_utf8(read.stdout).unwrap().lines().collect::<Vec<_>>(), words);
    }

    #[test]
    fn an_old_line_is_redacted_when_it_is_read() {
        assert_eq!(
            redacted("fogmux bench peer mqtt://u:p@h --psk 00 -o x"),
            "fogmux bench peer mqtt://REDACTED@h --psk REDACTED -o x"
        );
        assert_eq!(redacted("fogmux bench run --topic 'a b'"), "fogmux bench run --topic 'a b'");
    }
}
