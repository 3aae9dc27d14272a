//! The doors of a gateway. Nothing else knows all of them.

use std::{rc::Rc, sync::Arc};

use fogmux_auth::Door;

use crate::{
    WorkerContext,
    coap::{self, CoapContext, CoapDoor},
    door::DoorService,
    http::{HttpContext, HttpDoor, Upgrades},
    metrics::Counted,
    mqtt::{self, MqttContext, MqttDoor},
    xmpp::{XmppContext, XmppDoor},
};

/// The state of each door, which the workers share.
#[derive(Clone, Debug)]
pub(crate) struct Doors {
    pub(crate) mqtt: Arc<MqttDoor>,
    pub(crate) coap: Arc<CoapDoor>,
    pub(crate) http: Arc<HttpDoor>,
    pub(crate) xmpp: Arc<XmppDoor>,
}

impl Doors {
    /// The doors that compute values for `/metrics` and `$SYS`.
    pub(crate) fn counted(&self) -> Vec<Arc<dyn Counted>> {
        vec![Arc::clone(&self.mqtt) as _, Arc::clone(&self.http) as _, Arc::clone(&self.xmpp) as _]
    }

    /// The doors on a worker.
    pub(crate) fn on(&self, worker: &Rc<WorkerContext>) -> WorkerDoors {
        let mqtt = MqttContext::new(Rc::clone(worker), Arc::clone(&self.mqtt));
        let coap = CoapContext::new(Rc::clone(worker), Arc::clone(&self.coap));
        let (to_mqtt, to_coap) = (Rc::clone(&mqtt), Rc::clone(&coap));
        let upgrades = Upgrades {
            mqtt: Box::new(move |stream, peer| Box::pin(mqtt::serve(Rc::clone(&to_mqtt), stream, peer))),
            coap: Box::new(move |stream, peer| Box::pin(coap::serve_websocket(Rc::clone(&to_coap), stream, peer))),
        };
        let http = HttpContext::new(Rc::clone(worker), Arc::clone(&self.http), upgrades);
        let xmpp = XmppContext::new(Rc::clone(worker), Arc::clone(&self.xmpp));
        WorkerDoors { mqtt, coap, http, xmpp }
    }
}

#[cfg(test)]
impl Default for Doors {
    fn default() -> Self {
        Self {
            mqtt: Arc::new(MqttDoor::new(mqtt::MqttConfig::default())),
            coap: Arc::new(CoapDoor::new(coap::CoapConfig::default())),
            http: Arc::new(HttpDoor::new(crate::http::HttpConfig::default())),
            xmpp: Arc::new(XmppDoor::new(crate::xmpp::XmppConfig::default())),
        }
    }
}

/// The doors on one worker.
#[derive(Debug)]
pub(crate) struct WorkerDoors {
    pub(crate) mqtt: Rc<MqttContext>,
    pub(crate) coap: Rc<CoapContext>,
    pub(crate) http: Rc<HttpContext>,
    pub(crate) xmpp: Rc<XmppContext>,
}

impl WorkerDoors {
    /// Starts the housekeeping of every door, on one of the workers.
    pub(crate) fn keep_house(&self) {
        for door in Door::ALL {
            self.of(door).keep_house();
        }
    }

    /// The door that serves the connections of a listener.
    pub(super) fn of(&self, door: Door) -> &dyn DoorService {
        match door {
            Door::Mqtt => &self.mqtt,
            Door::Coap => &self.coap,
            Door::Http => &self.http,
            Door::Xmpp => &self.xmpp,
        }
    }
}
