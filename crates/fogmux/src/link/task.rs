//! The life of a link: connect, pass on, wait, and again.

use std::sync::Arc;
use std::time::Duration;

use fogmux_auth::{Authority, Principal};
use fogmux_client::Url;
use fogmux_gateway::RunningGateway;
use fogmux_gateway::links::{self, LinkError};
use fogmux_gateway::runtime::Inside;
use fogmux_gateway::worker::Shared;
use fogmux_mqtt::RetainHandling;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::connection::{Connection, Timing};
use super::failure::Failure;
use super::known::Known;
use super::local::{Local, PACKET_BYTES_MAX, subscribe};
use super::mapping::{Direction, Mapping};
use super::owed::Owed;
use super::relay::Relay;
use super::remote::{self, Opening};
use super::side::Welcome;
use crate::config::links::Link;

/// The first pause after a failure, which doubles.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);
/// A connection that lasted for this long is followed by the first pause.
const LASTED: Duration = Duration::from_secs(30);
/// The longest pause after a connection that was up, however short it lasted.
const FLAPPING: Duration = Duration::from_secs(4);
/// The longest that the MQTT door may take to answer.
const HERE: Duration = Duration::from_secs(30);

/// A link that runs.
pub(super) struct Task {
    config: Link,
    broker: Url,
    client_id: String,
    state: Arc<links::Link>,
    shared: Arc<Shared>,
    inside: Inside,
    known: Known,
    out: Arc<Mapping>,
    inward: Arc<Mapping>,
    /// Whether retained messages go to the other broker at the next connection, whatever session it has.
    announces: bool,
    /// Whether the session here is subscribed to what is passed on.
    is_prepared: bool,
    /// The largest packet that the gateway takes, in bytes, as it said last; the other broker is asked for no larger.
    packet_bytes_max: u32,
    /// Whether the last connection passed messages on.
    was_up: bool,
}

/// The name of the principal that a link has at the gateway.
pub(super) fn principal_name(name: &str, config: &Link) -> Arc<str> {
    if config.user_here.is_empty() { Arc::clone(&Principal::link(name).name) } else { config.user_here.as_str().into() }
}

impl Task {
    /// A link, entered among those of the gateway. `None` if its URL is none, which the configuration has found.
    pub(super) fn new(name: &str, config: &Link, gateway: &RunningGateway, known: Known) -> Option<Self> {
        let broker = config.broker()?;
        let client_id = match config.client_id.as_str() {
            "" => match known.gateway() {
                Ok(gateway) => format!("fogmux-{name}-{gateway}"),
                Err(error) => {
                    tracing::error!(link = name, %error, "no client identifier for this link can be kept");
                    return None;
                }
            },
            own => own.to_owned(),
        };
        let state = Arc::new(links::Link::new(name, config.url.clone(), principal_name(name, config)));
        gateway.shared.links.add(Arc::clone(&state));
        Some(Self {
            broker,
            client_id,
            state,
            shared: Arc::clone(&gateway.shared),
            inside: gateway.inside(),
            known,
            out: Arc::new(Mapping::new(&config.out, Direction::Out)),
            inward: Arc::new(Mapping::new(&config.inward, Direction::In)),
            config: config.clone(),
            announces: false,
            is_prepared: false,
            // Every link is prepared before it connects, and the gateway says then.
            packet_bytes_max: PACKET_BYTES_MAX,
            was_up: false,
        })
    }

    /// Keeps the link connected until it is to stop.
    pub(super) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut pause = FIRST;
        let mut said = None;
        loop {
            let began = Instant::now();
            self.was_up = false;
            let Some(failure) = self.attempt(&mut stop).await else { break };
            let text = failure.to_string();
            if self.shared.is_draining() || *stop.borrow() {
                self.shared.links.is_down(&self.state, None);
                let _ = stop.wait_for(|stop| *stop).await;
                return;
            }
            self.shared.links.is_down(&self.state, Some(LinkError { text: text.clone(), at_unix_ms: self.unix_ms() }));
            if self.was_up {
                pause = if began.elapsed() >= LASTED { FIRST } else { pause.min(FLAPPING) };
                said = None;
            }
            // One line for a reason, however often it is tried.
            if said.as_ref() != Some(&text) {
                tracing::warn!(link = self.state.name, url = self.state.url, error = text, "this link is down");
                said = Some(text);
            }
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                () = sleep(jittered(pause)) => {}
            }
            pause = (pause * 2).min(LONGEST);
        }
        self.shared.links.is_down(&self.state, None);
    }

    /// Connects and passes messages on until the connection is over; `None` if the link is to stop.
    async fn attempt(&mut self, stop: &mut watch::Receiver<bool>) -> Option<Failure> {
        let opened = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return None,
            opened = self.open() => opened,
        };
        let mut connection = match opened {
            Ok(connection) => connection,
            Err(failure) => return Some(failure),
        };
        let (shared, state) = (Arc::clone(&self.shared), Arc::clone(&self.state));
        let mut subscribed = false;
        let failure = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => None,
            failure = connection.run(|| {
                subscribed = true;
                shared.links.is_up(&state, shared.clock.unix_ms(shared.clock.now()));
                tracing::info!(link = state.name, url = state.url, "this link is up");
            }) => Some(failure),
        };
        connection.close().await;
        if subscribed {
            (self.announces, self.was_up) = (false, true);
        }
        failure
    }

    fn unix_ms(&self) -> u64 {
        self.shared.clock.unix_ms(self.shared.clock.now())
    }

    /// Opens both ends: the session here first, which queues from then on.
    async fn open(
        &mut self,
    ) -> Result<Connection<tokio::io::DuplexStream, fogmux_client::Stream<tokio::net::TcpStream>>, Failure> {
        let principal = self.principal()?;
        let session = self.state.client();
        let (inside, client_id) = (self.inside.clone(), session.as_str());
        let local = Local { inside: &inside, principal: &principal, client_id };
        if !self.is_prepared {
            timeout(HERE, self.prepare(&local)).await.map_err(|_| Failure::new("the gateway does not answer"))??;
            self.is_prepared = true;
        }
        let deadline = Instant::now() + self.config.connect_timeout;
        let late = |_| Failure::new(format!("{}:{}: no answer in time", self.broker.host, self.broker.port));
        let remote = tokio::time::timeout_at(deadline, self.connect()).await;
        let (mut there, welcome) = remote.map_err(late)??;
        self.check(&welcome)?;
        let window = welcome.receive_maximum.min(self.config.inflight_max);
        let connected = timeout(HERE, local.connect(window)).await;
        let (mut here, greeted) = connected.map_err(|_| Failure::new("the gateway does not answer"))??;
        self.packet_bytes_max = greeted.receiver.packet_bytes_max;
        if !greeted.session_present {
            // It was ended by an administrator: what the other broker knows of it has to go as well.
            self.is_prepared = false;
            self.announces = true;
            self.forget_session()?;
            return Err(Failure::new("the session at the gateway has ended"));
        }
        let mappings = (Arc::clone(&self.out), Arc::clone(&self.inward));
        let mut relay = Relay::new(Arc::clone(&self.state), mappings, (greeted.receiver, welcome.receiver));
        if !welcome.session_present {
            relay.release_all(&mut here.output);
        }
        let is_new = self.announces || !welcome.session_present;
        let handling = if is_new { RetainHandling::Always } else { RetainHandling::IfNew };
        subscribe(&self.out, handling, &mut here.output)?;
        subscribe(&self.inward, RetainHandling::IfNew, &mut there.output)?;
        let timing = Timing::new(supervised(self.config.keep_alive, welcome.keep_alive), deadline);
        Ok(Connection { here, there, relay, timing, owed: Owed::default() })
    }

    /// The principal of the link, under the present rules.
    fn principal(&self) -> Result<Principal, Failure> {
        if self.config.user_here.is_empty() {
            return Ok(Principal::link(&self.state.name));
        }
        let authority: &Authority = &self.shared.authority;
        let none = || Failure::new(format!("as: no user {:?} in users.toml", self.config.user_here));
        authority.principal(&self.config.user_here).ok_or_else(none)
    }

    /// Makes the session here what the configuration says.
    async fn prepare(&mut self, local: &Local<'_>) -> Result<(), Failure> {
        let sessions = self.shared.links.sessions();
        let before = sessions.map(|held| held.filters(&local.principal.name, local.client_id)).unwrap_or_default();
        let wanted = self.out.filters();
        let is_wanted = |filter: &String| wanted.iter().any(|(wanted, _)| wanted == filter);
        let stale: Vec<String> = before.iter().filter(|filter| !is_wanted(filter)).cloned().collect();
        let is_new = wanted.iter().any(|(filter, _)| !before.iter().any(|before| before == filter));
        let Welcome { session_present: present, receiver, .. } = local.prepare(&self.out, &stale).await?;
        self.packet_bytes_max = receiver.packet_bytes_max;
        self.announces |= is_new || !present;
        if present { Ok(()) } else { self.forget_session() }
    }

    /// Notes that the session at the other broker goes with none that is here.
    fn forget_session(&self) -> Result<(), Failure> {
        let forgotten = self.known.forget_session(&self.state.name);
        forgotten.map_err(|error| Failure::new(format!("the data directory: {error}")))
    }

    /// Connects to the other broker, to the session that goes with the one here.
    async fn connect(
        &self,
    ) -> Result<(super::side::Side<fogmux_client::Stream<tokio::net::TcpStream>>, Welcome), Failure> {
        let session = format!("{}\n{}\n", self.config.url, self.client_id);
        let name = &self.state.name;
        let opening = Opening {
            client_id: &self.client_id,
            clean_start: !self.known.is_session(name, &session),
            receive_maximum: self.config.inflight_max,
            packet_bytes_max: self.packet_bytes_max,
        };
        let connected = remote::connect(&self.config, &self.broker, &opening).await?;
        if let Err(error) = self.known.set_session(name, &session) {
            tracing::warn!(link = name, %error, "the session at the other broker ends with this process");
        }
        Ok(connected)
    }

    /// Whether the other broker has what the configuration needs.
    fn check(&self, welcome: &Welcome) -> Result<(), Failure> {
        let qos_max = welcome.receiver.qos_max;
        if self.out.qos_max() > qos_max {
            return Err(Failure::new(format!(
                "the other broker takes QoS {qos_max} at most: an entry of out asks for more"
            )));
        }
        Ok(())
    }
}

/// The keep alive of a connection, in seconds: the other broker may ask for more pings, but not for none, without which
/// nobody would notice that the line is dead.
fn supervised(own: u16, asked: Option<u16>) -> u16 {
    asked.filter(|asked| *asked > 0).map_or(own, |asked| asked.min(own))
}

/// Between half of a pause and all of it, so that many gateways do not come back at once.
fn jittered(pause: Duration) -> Duration {
    let mut random = [0; 2];
    // Without random numbers the pause is whole.
    let part = getrandom::fill(&mut random).map_or(u16::MAX, |()| u16::from_le_bytes(random));
    pause / 2 + pause.mul_f64(f64::from(part) / f64::from(u16::MAX) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_broker_turns_the_supervision_off() {
        for (asked, expected) in [(None, 60), (Some(0), 60), (Some(20), 20), (Some(u16::MAX), 60)] {
            assert_eq!(supervised(60, asked), expected, "{asked:?}");
        }
    }
}
