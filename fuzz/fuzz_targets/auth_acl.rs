//! Access files: any text gives rules or problems that can be shown, and rules can be asked.
#![no_main]

use std::{path::Path, sync::Arc};

use fogmux_auth::{Acl, Action, AnonymousPolicy, Authority, Door, Principal, Rules, Users};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Acl::parse(Path::new("acl.toml"), text) {
        Ok(acl) => {
            let authority = Arc::new(Authority::new(Rules::new(Users::default(), Some(acl), AnonymousPolicy::Never)));
            for topic in ["a/b", "$SYS/x", "site/anonymous/t", ""] {
                for action in [Action::Read, Action::Write] {
                    let _ = authority.may(&Principal::anonymous(), "client", action, Door::Mqtt, topic);
                }
            }
        }
        Err(problems) => drop(problems.to_string()),
    }
});
