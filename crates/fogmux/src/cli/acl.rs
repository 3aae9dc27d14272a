//! The arguments of `fogmux acl`.

use clap::{Args, Subcommand, ValueEnum};

use super::Files;

/// The access rules.
#[derive(Debug, Subcommand)]
pub(crate) enum Acl {
    /// Print the rule that allows or refuses an action; exit code 77 when refused
    Test(AclTest),
}

/// Tests one action against the rules.
#[derive(Debug, Args)]
pub(crate) struct AclTest {
    /// A user or another identity, "anonymous", link:NAME, cert:FILE, psk:IDENTITY, oscore:USER, token:FILE or
    /// callback:USER
    #[arg(value_name = "WHO")]
    pub(crate) user: String,
    /// The action to test
    pub(crate) action: AclAction,
    /// The topic; for reading also a filter
    pub(crate) topic: String,
    /// The door through which the client connects
    #[arg(long, default_value = "mqtt")]
    pub(crate) door: AclDoor,
    /// Client identifier, for %c [default: the user]
    #[arg(long)]
    pub(crate) client: Option<String>,
    /// Groups that the identity's certificate, its token or the callback gives
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    #[command(flatten)]
    pub(crate) files: Files,
    /// Print the decision as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The action on a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AclAction {
    Read,
    Write,
}

/// The doors, by their names in the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AclDoor {
    Mqtt,
    Coap,
    Http,
    Xmpp,
}
