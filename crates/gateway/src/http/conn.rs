//! A connection as its requests see it, whatever version carries them.

use std::{
    cell::{OnceCell, RefCell},
    rc::Rc,
};

use http::HeaderValue;

use super::{context::HttpContext, identity::Identities, io::Progress, stream::EventStream, websocket::Carried};
use crate::{Peer, listener::Listener};

/// Clients of one proxy whose identities are remembered on its connection.
const BEHIND_MAX: usize = 8;

/// One connection as its requests see it.
pub(super) struct Conn {
    pub(super) ctx: Rc<HttpContext>,
    pub(super) peer: Rc<Peer>,
    pub(super) progress: Rc<Progress>,
    pub(super) identities: Identities,
    /// The protocol to switch to once the head of the response is written (HTTP/1.1).
    pub(super) upgrade: Rc<RefCell<Option<Upgrade>>>,
    /// The connection as requests of others see it that came through the same proxy, the latest last.
    behind: RefCell<Vec<Rc<Self>>>,
    /// Where HTTP/3 is.
    alt_svc: OnceCell<Option<HeaderValue>>,
}

/// The protocol that takes over an HTTP/1.1 connection.
pub(super) enum Upgrade {
    /// A WebSocket, after 101. In a box, which event streams do not pay for.
    WebSocket(Box<(Carried, Peer)>),
    /// A stream of events that ends with the connection, after 200.
    Stream(EventStream),
}

impl Conn {
    pub(super) fn new(ctx: &Rc<HttpContext>, peer: Peer) -> Rc<Self> {
        let peer = Rc::new(peer);
        Rc::new(Self {
            ctx: Rc::clone(ctx),
            progress: Rc::default(),
            identities: Identities::new(ctx, Rc::clone(&peer)),
            peer,
            upgrade: Rc::default(),
            behind: RefCell::default(),
            alt_svc: OnceCell::new(),
        })
    }

    /// Where HTTP/3 is, if the connection is secure and HTTP/3 was open beside its listener at its first request.
    pub(super) fn alt_svc(&self) -> Option<HeaderValue> {
        let found = || {
            let place = self.peer.listener.filter(|_| self.peer.secure)?;
            let port = self.ctx.shared.listening.beside(place, Listener::Http3)?.address()?.port();
            HeaderValue::from_str(&fogmux_http::alt_svc::http3(port)).ok()
        };
        self.alt_svc.get_or_init(found).clone()
    }

    /// The connection as requests of `peer` see it, which came through the proxy that the connection comes from.
    pub(super) fn seen_by(self: &Rc<Self>, peer: Peer) -> Rc<Self> {
        if peer == *self.peer {
            return Rc::clone(self);
        }
        let mut behind = self.behind.borrow_mut();
        if let Some(known) = behind.iter().find(|conn| *conn.peer == peer) {
            return Rc::clone(known);
        }
        let peer = Rc::new(peer);
        let conn = Rc::new(Self {
            ctx: Rc::clone(&self.ctx),
            progress: Rc::clone(&self.progress),
            identities: Identities::new(&self.ctx, Rc::clone(&peer)),
            peer,
            upgrade: Rc::clone(&self.upgrade),
            behind: RefCell::default(),
            alt_svc: OnceCell::new(),
        });
        if behind.len() >= BEHIND_MAX {
            behind.remove(0);
        }
        behind.push(Rc::clone(&conn));
        conn
    }
}
