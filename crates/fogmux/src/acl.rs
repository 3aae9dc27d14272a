//! `fogmux acl test`: the principal of a credential, and the rule that allows or refuses an action.
//!
//! WHO is the name of a principal, which need be in no file: a user, `link:NAME`, or an identity of a certificate, a
//! token or the callback; or `anonymous`; or a credential: `cert:FILE`, `psk:IDENTITY`, `oscore:USER`, `token:FILE`
//! (`-` for standard input), `callback:USER`. `user:NAME` is a principal of any name.

use std::sync::Arc;
use std::time::SystemTime;

use fogmux_auth::{
    Action, Authority, Door, Explained, Named, NoTopic, NotNamed, Principal, Refused, RuleRef, Verified,
};
use fogmux_gateway::names_of;
use fogmux_net::{ClientCertificate, pem};

use crate::callback;
use crate::cli::{Acl, AclAction, AclDoor, AclTest};
use crate::config::Config;
use crate::exit::{Failure, Status};
use crate::output::say;
use crate::{home, installed};

/// Checks the rules as a door would.
pub(crate) fn run(command: &Acl) -> Result<(), Failure> {
    let Acl::Test(arguments) = command;
    let found = installed::find(&arguments.files)?;
    let sources = home::sources(&found.config, Some(&found.directory()?))?;
    let config = found.config;
    let rules = fogmux_auth::Rules::load(&sources).map_err(|problems| Failure::new(Status::Config, problems))?;
    let rules = rules.with_callback(callback::configured(&config.auth.callback));
    let authority = Arc::new(Authority::new(rules));
    let action = match arguments.action {
        AclAction::Read => Action::Read,
        AclAction::Write => Action::Write,
    };
    NoTopic::check(action, &arguments.topic).map_err(|error| Failure::new(Status::Usage, error))?;
    let answer = match principal(&authority, &config, arguments)? {
        Ok(named) => decide(&authority, arguments, action, named)?,
        Err(refused) => Answer::nobody(&refused),
    };
    if arguments.json {
        say!("{}\n", answer.to_json(arguments))?;
    } else {
        say!("{}\n", answer.text)?;
        if let Some(note) = &answer.note {
            say!("{note}\n")?;
        } else if let Some(principal) = answer.principal.as_ref().filter(|principal| is_shown(arguments, principal)) {
            say!("{}\n", introduction(principal))?;
        }
    }
    if answer.allowed { Ok(()) } else { Err(Failure::silent(Status::NoPerm)) }
}

/// Returns whether to describe the principal; a user given by name is not described.
fn is_shown(arguments: &AclTest, principal: &Principal) -> bool {
    *arguments.user != *principal.name
}

/// Describes the principal of a credential.
fn introduction(principal: &Principal) -> String {
    let mut text = format!("the credential belongs to {}, verified by {}", principal.name, principal.source.name());
    if !principal.groups.is_empty() {
        text += &format!(", in groups {}", principal.groups.join(", "));
    }
    if let Some(variables) = &principal.variables {
        let named = variables.iter().map(|(name, values)| format!("%{{{name}}} = {}", values.join(" ")));
        text += &format!("; {}", named.collect::<Vec<_>>().join(", "));
    }
    text
}

struct Answer {
    allowed: bool,
    text: String,
    rule: Option<RuleRef>,
    principal: Option<Principal>,
    note: Option<String>,
}

impl Answer {
    /// Returns the answer for a principal that is not let in.
    fn nobody(refused: &NotNamed) -> Self {
        Self { allowed: false, text: format!("refused: {refused}"), rule: None, principal: None, note: None }
    }

    fn to_json(&self, arguments: &AclTest) -> serde_json::Value {
        let principal = self.principal.as_ref();
        serde_json::json!({
            "allowed": self.allowed,
            "user": principal.map_or(arguments.user.as_str(), |principal| &principal.name),
            "source": principal.filter(|principal| !principal.anonymous).map(|principal| principal.source.name()),
            "groups": principal.map(|principal| principal.groups.iter().map(|group| &**group).collect::<Vec<_>>()),
            "topic": arguments.topic,
            "text": self.text,
            "note": self.note,
            "rule": self.rule.as_ref().map(ToString::to_string),
            "file": self.rule.as_ref().filter(|rule| rule.line() > 0).map(|rule| rule.file().display().to_string()),
            "line": self.rule.as_ref().map(RuleRef::line).filter(|line| *line > 0),
        })
    }
}

fn decide(authority: &Arc<Authority>, arguments: &AclTest, action: Action, named: Named) -> Result<Answer, Failure> {
    let Named { principal, note } = named;
    let client = arguments.client.as_deref().unwrap_or(&principal.name);
    let door = match arguments.door {
        AclDoor::Mqtt => Door::Mqtt,
        AclDoor::Coap => Door::Coap,
        AclDoor::Http => Door::Http,
        AclDoor::Xmpp => Door::Xmpp,
    };
    let explained = authority.explain(&principal, client, action, door, &arguments.topic);
    let Explained { allowed, text, rule } = explained.map_err(|error| Failure::new(Status::Usage, error))?;
    Ok(Answer { allowed, text, rule, principal: Some(principal), note })
}

/// Returns the principal, or the reason of the refusal.
fn principal(authority: &Authority, config: &Config, arguments: &AclTest) -> Result<Result<Named, NotNamed>, Failure> {
    let who = arguments.user.as_str();
    let (kind, named) = who.split_once(':').unwrap_or(("", who));
    let judged = match kind {
        "cert" => authority.certificate(&names_of(&certificate(named)?, config.xmpp_domain())),
        "callback" if config.auth.callback.url.is_empty() => {
            return Err(Failure::new(Status::Config, "auth.callback.url is not set"));
        }
        "callback" => authority.vouched_elsewhere(named, &arguments.groups),
        "token" => token(authority, named)?.map(|verified| verified.principal),
        _ => return named_here(authority, config, arguments),
    };
    Ok(judged.map(Named::from).map_err(NotNamed::from))
}

fn named_here(authority: &Authority, config: &Config, arguments: &AclTest) -> Result<Result<Named, NotNamed>, Failure> {
    let link = |name: &str| config.links.0.get(name).map(|link| link.principal(name));
    match authority.named(&arguments.user, &arguments.groups, link) {
        Err(error @ (NotNamed::Name | NotNamed::Groups)) => {
            Err(Failure::new(Status::DataErr, format!("{:?}: {error}", arguments.user)))
        }
        named => Ok(named),
    }
}

fn certificate(file: &str) -> Result<ClientCertificate, Failure> {
    // A file that cannot be read is no wrong certificate, as it is no wrong token.
    fogmux_file::open(file.as_ref()).map_err(|error| Failure::io(file, &error))?;
    let broken = |error: String| Failure::new(Status::DataErr, format!("{file}: {error}"));
    let chain = pem::certificates(file.as_ref()).map_err(|error| Failure::new(Status::DataErr, error))?;
    ClientCertificate::parse(chain.first().map(AsRef::as_ref).unwrap_or_default())
        .map_err(|error| broken(error.to_string()))
}

fn token(authority: &Authority, file: &str) -> Result<Result<Verified, Refused>, Failure> {
    let text = match file {
        "-" => std::io::read_to_string(std::io::stdin()).map_err(|error| Failure::io("standard input", &error)),
        file => std::fs::read_to_string(file).map_err(|error| Failure::io(file, &error)),
    }?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(authority.token(text.trim(), now))
}
