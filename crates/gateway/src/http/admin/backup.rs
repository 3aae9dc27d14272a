//! `POST /api/v1/backup`: the file that `fogmux backup` writes, as a download. It has all keys, so it is for those who
//! could change users and rules: that a client is on this machine does not suffice, where the files of the gateway are
//! closed to others.

use std::rc::Rc;

use fogmux_http::{Kind, Problem};
use http::{
    HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};

use super::{
    super::{conn::Conn, identity::Identity, payload::Payload, respond, state},
    changes,
};
use crate::{
    administration::{Command, Download, Requester},
    audit,
};

/// Has a backup made, and passes it on while it is made.
pub(super) async fn download(conn: &Rc<Conn>, identity: &Identity) -> Result<Response<Payload>, Problem<'static>> {
    state::check_access_changes(conn, identity)?;
    // With the keys in it one becomes anybody, as by a change of users (ADR 0058).
    if !conn.ctx.shared.administration.allows_changes() {
        return Err(Problem::new(Kind::ChangesOff).detail(changes::OFF));
    }
    let (peer, principal) = (conn.peer.clone(), identity.principal().clone());
    let by = Requester { principal: principal.clone(), force: false };
    let note = move |_: &Download| audit::backup_begun(&peer, &principal);
    let begun = changes::carry_out(conn, move |answer| Command::Backup(by, answer), note).await;
    let download = begun.map_err(|refusal| changes::refused(&refusal))?;
    let name = format!("attachment; filename=\"{}\"", download.name);
    let mut response = Response::new(Payload::download(download));
    respond::set(&mut response, CONTENT_DISPOSITION, &name);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    headers.insert(CACHE_CONTROL, respond::NO_STORE);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}
