//! What a generator asks of an agent, and what it is told.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::experiment::Experiment;
use crate::measure::environment::Environment;
use crate::outcome::ProcessUse;

/// Of this language. Another one is refused.
pub(super) const VERSION: u32 = 1;

/// What is asked. Nothing in it is a command, a path or a setting: of an experiment the agent makes these itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Comes first, and whenever the machine is to be described.
    Greet {
        /// Of the language.
        version: u32,
    },
    /// Starts a gateway, in place of one that runs.
    Start {
        /// What is to be done with it.
        experiment: Box<Experiment>,
    },
    /// Processor time and peak memory count from now. Has no answer: it must not hold the generator up.
    Observe,
    /// What was used since.
    Read,
    /// Ends the gateway.
    Stop,
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Reply {
    /// Who and where the agent is.
    Greeting {
        /// The gateway's version.
        software: String,
        /// Its machine, now.
        environment: Box<Environment>,
    },
    /// The gateway is ready.
    Started(Box<Started>),
    /// What it used.
    Used {
        /// Nothing, where it has no process of its own.
        gateway: Option<ProcessUse>,
        /// Seconds of processor time that others used on that machine.
        others_cpu_s: f64,
    },
    /// There is no gateway any more.
    Stopped,
    /// It was not done.
    Refused {
        /// Why.
        why: String,
    },
}

/// How clients reach a gateway that was started.
#[derive(Debug, Serialize, Deserialize)]
pub struct Started {
    /// Publishers.
    pub publishers: Way,
    /// Subscribers.
    pub subscribers: Way,
    /// What the gateway was set to.
    #[serde(default)]
    pub settings: Vec<String>,
}

/// To one door, with what clients show there.
#[derive(Default, Serialize, Deserialize)]
pub struct Way {
    /// On the host that the agent is on.
    pub port: u16,
    /// What the certificate says, and the XMPP domain.
    pub name: String,
    /// The authority, PEM.
    pub authority: Option<String>,
    /// User and password.
    pub password: Option<(String, String)>,
    /// A certificate and its key, PEM.
    pub certificate: Option<(String, String)>,
    /// Identity and key.
    pub psk: Option<(String, Vec<u8>)>,
    /// OSCORE contexts by client: `publisher-0`, `subscriber-0`, …
    pub oscore: BTreeMap<String, String>,
    /// A bearer token.
    pub token: Option<String>,
    /// What stands before a topic in a path.
    pub prefix: Option<String>,
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way").field("port", &self.port).field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_json_and_nothing_else_is_one() {
        for request in [
            Request::Greet { version: 1 },
            Request::Start { experiment: Box::default() },
            Request::Observe,
            Request::Read,
            Request::Stop,
        ] {
            let text = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request, "{text}");
        }
        for text in [
            r#"{"ask":"run","command":"id"}"#,
            r#"{"ask":"greet","version":1,"path":"/etc"}"#,
            r#"{"ask":"start","experiment":{"binary":"/bin/sh"}}"#,
        ] {
            assert!(serde_json::from_str::<Request>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_clients_show_is_not_printed() {
        let way = Way { password: Some(("bench".to_owned(), "secret".to_owned())), ..Way::default() };
        assert!(!format!("{way:?}").contains("secret"));
    }
}
