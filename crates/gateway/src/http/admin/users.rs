//! `/api/v1/users` and `/api/v1/groups`: who there is, never a secret, and the change of a user.

use std::{collections::BTreeMap, rc::Rc};

use bytes::Bytes;
use fogmux_auth::HashedPassword;
use fogmux_http::{
    Kind, Problem,
    api::{BYTES_MAX, GroupEntry, Groups, Page, UserChange, UserEntry, Users, Weight, user_name},
};
use fogmux_net::channel::Zeroizing;
use http::{Response, StatusCode, request::Parts};
use http_body::Body;

use super::{
    super::{conn::Conn, identity::Identity, payload::Payload, respond},
    changes,
};
use crate::{
    administration::{Command, DeleteUser, PutUser},
    audit::{self, UserChanged},
};

/// One page of users.
pub(super) fn page(conn: &Conn, page: &Page<'_>) -> Vec<u8> {
    let rules = conn.ctx.authority().rules();
    let accounts = rules.users().accounts(page.after.as_deref());
    let (mut users, mut weight, mut more) = (Vec::new(), Weight::default(), false);
    for account in accounts {
        let groups: Vec<&str> = account.groups.iter().map(|group| &**group).collect();
        more = users.len() == page.limit || !weight.takes(&[&[account.name], groups.as_slice()].concat());
        if more {
            break;
        }
        users.push(UserEntry {
            user: account.name,
            groups,
            password: account.has_password,
            scram: account.has_scram,
            disabled: account.disabled,
        });
    }
    let next = users.last().filter(|_| more).map(|last| last.user);
    Users { users, changeable: conn.ctx.shared.administration.allows_changes(), next }.to_json()
}

/// One page of the groups that users are in, or rules name.
pub(super) fn groups(conn: &Conn, page: &Page<'_>) -> Vec<u8> {
    let rules = conn.ctx.authority().rules();
    let mut all: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for group in rules.users().accounts(None).flat_map(|account| account.groups) {
        all.entry(group).or_default().0 += 1;
    }
    for group in rules.acl().into_iter().flat_map(|acl| acl.groups()) {
        all.entry(group).or_default().1 += 1;
    }
    let after = page.after.as_deref().unwrap_or_default();
    let mut rest = all.into_iter().filter(|(group, _)| *group > after).peekable();
    let (mut groups, mut weight) = (Vec::new(), Weight::default());
    while let Some((group, (users, filters))) =
        rest.next_if(|(group, _)| groups.len() < page.limit && weight.takes(&[group]))
    {
        groups.push(GroupEntry { group, users, filters });
    }
    let next = rest.peek().and(groups.last()).map(|last| last.group);
    Groups { groups, next }.to_json()
}

/// Adds or changes a user: 201 or 204, as soon as it holds.
pub(super) async fn put<B>(
    conn: &Rc<Conn>,
    identity: &Identity,
    parts: &Parts,
    body: B,
) -> Result<Response<Payload>, Problem<'static>>
where
    B: Body<Data = Bytes> + Unpin,
{
    let by = changes::requester(conn, identity, parts)?;
    let name = user_name(parts.uri.path())?.into_owned();
    let collected = changes::json(conn, identity, parts, body, BYTES_MAX).await?;
    let UserChange { password, groups, disabled } = UserChange::parse(collected.bytes())?;
    // Before a password is hashed for nothing.
    if fogmux_auth::prepared_name(&name).as_deref() != Some(&name) {
        return Err(Problem::new(Kind::Unusable).detail("not a user's name, or not in its prepared form (RFC 4013)"));
    }
    let password = match password {
        Some(password) => Some(hashed(conn, identity, Zeroizing::new(password.into_bytes())).await?),
        None => None,
    };
    let changed = UserChanged {
        user: name.clone(),
        password: password.is_some(),
        groups: groups.as_deref().map(|groups| groups.join(" ")),
        disabled,
        force: by.force,
    };
    let (peer, principal) = (conn.peer.clone(), by.principal.clone());
    let put = PutUser { name, password, groups, disabled, by };
    let note = move |added: &bool| audit::user_changed(&peer, &principal, &changed, *added);
    let added = changes::carry_out(conn, |answer| Command::PutUser(Box::new(put), answer), note).await;
    let added = added.map_err(|refusal| changes::refused(&refusal))?;
    Ok(respond::status(if added { StatusCode::CREATED } else { StatusCode::NO_CONTENT }))
}

/// Hashed by the threads that verify logins, in turn with these.
async fn hashed(
    conn: &Rc<Conn>,
    identity: &Identity,
    password: Zeroizing<Vec<u8>>,
) -> Result<HashedPassword, Problem<'static>> {
    let verifiers = &conn.ctx.shared.verifiers;
    let hashed = verifiers.hash(conn.peer.address.ip(), &identity.principal().name, password).await;
    let hashed = hashed
        .ok_or_else(|| Problem::new(Kind::Unavailable).detail("too many passwords are being checked").retry_after(1))?;
    hashed.map_err(|error| Problem::new(Kind::Unusable).detail(error.to_string()))
}

/// Removes a user: 204, as soon as it holds.
pub(super) async fn delete(
    conn: &Rc<Conn>,
    identity: &Identity,
    parts: &Parts,
) -> Result<Response<Payload>, Problem<'static>> {
    let by = changes::requester(conn, identity, parts)?;
    let name = user_name(parts.uri.path())?.into_owned();
    let (user, force) = (name.clone(), by.force);
    let (peer, principal) = (conn.peer.clone(), by.principal.clone());
    let delete = DeleteUser { name, by };
    let note = move |(): &()| audit::user_removed(&peer, &principal, &user, force);
    let deleted = changes::carry_out(conn, |answer| Command::DeleteUser(delete, answer), note).await;
    deleted.map_err(|refusal| changes::refused(&refusal))?;
    Ok(respond::status(StatusCode::NO_CONTENT))
}
