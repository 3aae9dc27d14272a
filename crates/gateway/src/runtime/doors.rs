//! The doors of a gateway. Nothing else knows all of them.

use std::{rc::Rc, sync::Arc, time::Duration};

use fogmux_auth::Door;

#[cfg(feature = "coap")]
use crate::coap::{self, CoapContext, CoapDoor};
#[cfg(feature = "http")]
use crate::http::{HttpContext, HttpDoor, Serve, Upgrades};
#[cfg(feature = "mqtt")]
use crate::mqtt::{self, MqttContext, MqttDoor};
#[cfg(feature = "xmpp")]
use crate::xmpp::{XmppContext, XmppDoor};
use crate::{WorkerContext, door::DoorService, metrics::Counted};

/// The state of each door, which the workers share.
#[derive(Clone, Debug)]
pub(crate) struct Doors {
    #[cfg(feature = "mqtt")]
    pub(crate) mqtt: Arc<MqttDoor>,
    #[cfg(feature = "coap")]
    pub(crate) coap: Arc<CoapDoor>,
    #[cfg(feature = "http")]
    pub(crate) http: Arc<HttpDoor>,
    #[cfg(feature = "xmpp")]
    pub(crate) xmpp: Arc<XmppDoor>,
}

impl Doors {
    /// The doors that compute values for `/metrics` and `$SYS`.
    pub(crate) fn counted(&self) -> Vec<Arc<dyn Counted>> {
        let doors = std::iter::empty();
        #[cfg(feature = "mqtt")]
        let doors = doors.chain([Arc::clone(&self.mqtt) as Arc<dyn Counted>]);
        #[cfg(feature = "http")]
        let doors = doors.chain([Arc::clone(&self.http) as Arc<dyn Counted>]);
        #[cfg(feature = "xmpp")]
        let doors = doors.chain([Arc::clone(&self.xmpp) as Arc<dyn Counted>]);
        doors.collect()
    }

    /// How often `$SYS` is published; never if that is zero.
    pub(super) fn sys_interval(&self) -> Duration {
        #[cfg(feature = "mqtt")]
        return self.mqtt.config.sys_interval;
        #[cfg(not(feature = "mqtt"))]
        return Duration::ZERO;
    }

    /// The doors on a worker.
    pub(crate) fn on(&self, worker: &Rc<WorkerContext>) -> WorkerDoors {
        #[cfg(feature = "mqtt")]
        let mqtt = MqttContext::new(Rc::clone(worker), Arc::clone(&self.mqtt));
        #[cfg(feature = "coap")]
        let coap = CoapContext::new(Rc::clone(worker), Arc::clone(&self.coap));
        #[cfg(feature = "http")]
        let upgrades = Upgrades {
            #[cfg(feature = "mqtt")]
            mqtt: Some(to_mqtt(&mqtt)),
            #[cfg(feature = "coap")]
            coap: Some(to_coap(&coap)),
            #[cfg(feature = "mqtt")]
            sessions: Some(Box::new(Rc::clone(&mqtt))),
            #[cfg(not(feature = "mqtt"))]
            mqtt: None,
            #[cfg(not(feature = "mqtt"))]
            sessions: None,
            #[cfg(not(feature = "coap"))]
            coap: None,
        };
        WorkerDoors {
            #[cfg(feature = "mqtt")]
            mqtt,
            #[cfg(feature = "coap")]
            coap,
            #[cfg(feature = "http")]
            http: HttpContext::new(Rc::clone(worker), Arc::clone(&self.http), upgrades),
            #[cfg(feature = "xmpp")]
            xmpp: XmppContext::new(Rc::clone(worker), Arc::clone(&self.xmpp)),
        }
    }
}

/// Serves MQTT inside a WebSocket.
#[cfg(all(feature = "http", feature = "mqtt"))]
fn to_mqtt(ctx: &Rc<MqttContext>) -> Serve {
    let ctx = Rc::clone(ctx);
    Box::new(move |stream, peer| Box::pin(mqtt::serve(Rc::clone(&ctx), stream, peer)))
}

/// Serves CoAP inside a WebSocket.
#[cfg(all(feature = "coap", feature = "http"))]
fn to_coap(ctx: &Rc<CoapContext>) -> Serve {
    let ctx = Rc::clone(ctx);
    Box::new(move |stream, peer| Box::pin(coap::serve_websocket(Rc::clone(&ctx), stream, peer)))
}

#[cfg(test)]
impl Default for Doors {
    fn default() -> Self {
        Self {
            #[cfg(feature = "mqtt")]
            mqtt: Arc::new(MqttDoor::new(mqtt::MqttConfig::default())),
            #[cfg(feature = "coap")]
            coap: Arc::new(CoapDoor::new(coap::CoapConfig::default())),
            #[cfg(feature = "http")]
            http: Arc::new(HttpDoor::new(crate::http::HttpConfig::default())),
            #[cfg(feature = "xmpp")]
            xmpp: Arc::new(XmppDoor::new(crate::xmpp::XmppConfig::default())),
        }
    }
}

/// The doors on one worker.
#[derive(Debug)]
pub(crate) struct WorkerDoors {
    #[cfg(feature = "mqtt")]
    pub(crate) mqtt: Rc<MqttContext>,
    #[cfg(feature = "coap")]
    pub(crate) coap: Rc<CoapContext>,
    #[cfg(feature = "http")]
    pub(crate) http: Rc<HttpContext>,
    #[cfg(feature = "xmpp")]
    pub(crate) xmpp: Rc<XmppContext>,
}

impl WorkerDoors {
    /// Starts the housekeeping of every door, on one of the workers.
    pub(crate) fn keep_house(&self) {
        for door in Door::ALL.into_iter().filter_map(|door| self.of(door)) {
            door.keep_house();
        }
    }

    /// Has every door give back memory of this worker that it has not used since the last call.
    pub(crate) fn rest(&self) {
        for door in Door::ALL.into_iter().filter_map(|door| self.of(door)) {
            door.rest();
        }
    }

    /// The door that serves the connections of a listener, if this program has it.
    pub(super) fn of(&self, door: Door) -> Option<&dyn DoorService> {
        match door {
            #[cfg(feature = "mqtt")]
            Door::Mqtt => Some(&self.mqtt),
            #[cfg(feature = "coap")]
            Door::Coap => Some(&self.coap),
            #[cfg(feature = "http")]
            Door::Http => Some(&self.http),
            #[cfg(feature = "xmpp")]
            Door::Xmpp => Some(&self.xmpp),
            #[cfg(not(all(feature = "coap", feature = "http", feature = "mqtt", feature = "xmpp")))]
            _ => None,
        }
    }
}
