//! The messages between a generator and an agent.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::experiment::Experiment;
use crate::measure::environment::Environment;
use crate::outcome::ProcessUse;

/// The version of the protocol. Others are refused.
pub(super) const VERSION: u32 = 3;

/// A request to an agent. It contains no command, path or setting: the agent derives these from the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Sent first, and whenever a description of the machine is needed.
    Greet {
        /// The version of the protocol.
        version: u32,
    },
    /// Starts a gateway, which replaces a running one.
    Start {
        /// The experiment that the gateway is for.
        experiment: Box<Experiment>,
    },
    /// Restarts the measurement of processor time and peak memory. Has no reply, so that the generator does not wait.
    Observe,
    /// Reads the resources used since [`Request::Observe`].
    Read,
    /// Ends the gateway.
    Stop,
}

/// A reply of an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Reply {
    /// The agent's version and machine.
    Greeting {
        /// The gateway's version.
        software: String,
        /// Its machine, now.
        environment: Box<Environment>,
    },
    /// The gateway is ready.
    Started(Box<Started>),
    /// The resources that the gateway used.
    Used {
        /// The use of the gateway's process; `None` if no gateway runs.
        gateway: Option<ProcessUse>,
        /// Seconds of processor time that others used on that machine.
        others_cpu_s: f64,
    },
    /// There is no gateway any more.
    Stopped,
    /// The request was not carried out.
    Refused {
        /// The reason.
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
    /// The settings of the gateway, as `KEY=VALUE`.
    #[serde(default)]
    pub settings: Vec<String>,
}

/// The access to one door, with the credentials of its clients.
#[derive(Default, Serialize, Deserialize)]
pub struct Way {
    /// The port, on the host of the agent.
    pub port: u16,
    /// The name in the server's certificate, and the XMPP domain.
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
    /// The path before a topic.
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
