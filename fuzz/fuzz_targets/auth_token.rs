//! Tokens (JWT) and key sets (JWKS): the first byte chooses. Any text is refused without the key; any set gives keys or
//! problems that can be shown.
#![no_main]

use std::sync::{Arc, LazyLock};

use fogmux_auth::{AnonymousPolicy, Authority, Rules, TokenSettings, Tokens, Users};
use libfuzzer_sys::fuzz_target;

/// One key of each kind; nobody has signed anything with them but the seeds, which are out of date.
const KEYS: &[u8] = br#"{"keys":[
  {"kty":"oct","kid":"h","alg":"HS256","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"},
  {"kty":"EC","kid":"e","alg":"ES256","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"},
  {"kty":"OKP","kid":"o","alg":"EdDSA","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
const NOW_UNIX_S: u64 = 4_000_000_000;

static AUTHORITY: LazyLock<Arc<Authority>> = LazyLock::new(|| {
    let tokens = Tokens::with_key_set(TokenSettings::default(), KEYS).expect("keys");
    Arc::new(Authority::new(Rules::new(Users::default(), None, AnonymousPolicy::Never).with_tokens(tokens)))
});

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else { return };
    if first & 1 == 0 {
        let Ok(token) = std::str::from_utf8(rest) else { return };
        assert!(AUTHORITY.token(token, NOW_UNIX_S).is_err(), "nobody signed that");
    } else {
        match Tokens::with_key_set(TokenSettings::default(), rest) {
            Ok(tokens) => drop(tokens.is_configured()),
            Err(problems) => drop(problems.to_string()),
        }
    }
});
