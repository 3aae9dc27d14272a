//! `fogmux acl test`: which rule allows or refuses.

use std::sync::Arc;

use fogmux_auth::{ANONYMOUS, Action, Authority, Door, Principal, Reach, RuleRef};

use crate::check::read;
use crate::cli::{Acl, AclAction, AclDoor, AclTest};
use crate::exit::{Failure, Status};
use crate::home;

/// Asks the rules as a door would.
pub(crate) fn run(command: &Acl) -> Result<(), Failure> {
    let Acl::Test(arguments) = command;
    let config = read(arguments.config.as_deref(), &[])?;
    let sources = home::sources(&config, arguments.data.directory.as_deref())?;
    let rules = fogmux_auth::Rules::load(&sources).map_err(|problems| Failure::new(Status::Config, problems))?;
    let authority = Arc::new(Authority::new(rules));
    let answer = decide(&authority, arguments)?;
    if arguments.json {
        println!("{}", answer.to_json(arguments));
    } else {
        println!("{}", answer.text);
    }
    if answer.allowed { Ok(()) } else { Err(Failure::silent(Status::NoPerm)) }
}

struct Answer {
    allowed: bool,
    text: String,
    rule: Option<RuleRef>,
}

impl Answer {
    fn to_json(&self, arguments: &AclTest) -> serde_json::Value {
        serde_json::json!({
            "allowed": self.allowed,
            "user": arguments.user,
            "topic": arguments.topic,
            "rule": self.rule.as_ref().map(ToString::to_string),
            "file": self.rule.as_ref().filter(|rule| rule.line() > 0).map(|rule| rule.file().display().to_string()),
            "line": self.rule.as_ref().map(RuleRef::line).filter(|line| *line > 0),
        })
    }
}

fn decide(authority: &Arc<Authority>, arguments: &AclTest) -> Result<Answer, Failure> {
    let principal = principal(authority, &arguments.user)?;
    let client = arguments.client.as_deref().unwrap_or(&arguments.user);
    let door = match arguments.door {
        AclDoor::Mqtt => Door::Mqtt,
        AclDoor::Coap => Door::Coap,
        AclDoor::Http => Door::Http,
        AclDoor::Xmpp => Door::Xmpp,
    };
    let is_filter = arguments.topic.split('/').any(|level| level == "+" || level == "#");
    match arguments.action {
        AclAction::Write if is_filter => Err(Failure::new(Status::Usage, "one writes to a topic, not to a filter")),
        AclAction::Read if is_filter => {
            Ok(reach(&authority.access(&principal, client, door).may_subscribe(&arguments.topic)))
        }
        AclAction::Read | AclAction::Write => {
            let action = if arguments.action == AclAction::Read { Action::Read } else { Action::Write };
            let decision = authority.may(&principal, client, action, door, &arguments.topic);
            Ok(Answer { allowed: decision.allowed, text: decision.to_string(), rule: decision.rule })
        }
    }
}

fn reach(reach: &Reach) -> Answer {
    match reach {
        Reach::Everything => {
            Answer { allowed: true, text: "allowed: everything that the filter matches".to_owned(), rule: None }
        }
        Reach::Some => Answer {
            allowed: true,
            text: "allowed in part: only those topics arrive that rules allow one by one".to_owned(),
            rule: None,
        },
        Reach::Nothing(decision) => Answer { allowed: false, text: decision.to_string(), rule: decision.rule.clone() },
    }
}

fn principal(authority: &Authority, user: &str) -> Result<Principal, Failure> {
    if user == ANONYMOUS {
        return Ok(Principal::anonymous());
    }
    let known = authority.principal(user);
    known.ok_or_else(|| {
        Failure::new(Status::DataErr, format!("there is no user {user:?}; `fogmux passwd {user}` makes one"))
    })
}
