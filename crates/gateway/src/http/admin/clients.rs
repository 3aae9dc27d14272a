//! `/api/v1/clients`: the connections that are logged in, and the end of one.

use std::rc::Rc;

use fogmux_http::{
    Kind, Problem,
    api::{Client, Clients, Moment, Page, Weight},
};
use http::{Response, StatusCode};

use super::super::{conn::Conn, identity::Identity, payload::Payload, respond};
use crate::audit;

/// One page.
pub(super) fn page(conn: &Conn, page: &Page<'_>) -> Result<Vec<u8>, Problem<'static>> {
    let (found, mut more) = conn.ctx.shared.clients.page(page.after_number()?, page.limit);
    let mut clients = Vec::with_capacity(found.len());
    let mut weight = Weight::default();
    for client in &found {
        let is = &client.is;
        if !weight.takes(&[&is.publisher.principal, &is.publisher.client]) {
            more = true;
            break;
        }
        clients.push(Client {
            id: client.id,
            door: is.door.name(),
            listener: is.listener.and_then(|place| conn.ctx.shared.listening.name(place)),
            address: is.address.to_string(),
            principal: &is.publisher.principal,
            client: &is.publisher.client,
            since: Moment(is.since_unix_ms),
        });
    }
    let next = clients.last().filter(|_| more).map(|client| client.id.to_string());
    Ok(Clients { clients, next }.to_json())
}

/// Ends a connection: 204, and the connection goes as soon as its task runs.
pub(super) fn kick(conn: &Rc<Conn>, identity: &Identity, id: u64) -> Result<Response<Payload>, Problem<'static>> {
    let Some(client) = conn.ctx.shared.clients.kick(id) else {
        return Err(Problem::new(Kind::NotFound).detail("no client has this number, or it has gone"));
    };
    audit::disconnected(&conn.peer, identity.principal(), &client.is);
    Ok(respond::status(StatusCode::NO_CONTENT))
}
