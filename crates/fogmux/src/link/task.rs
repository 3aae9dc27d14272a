//! The life of a link: connect, pass on, wait, and again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fogmux_auth::{Authority, Door, Principal, Reach};
use fogmux_client::Url;
use fogmux_gateway::RunningGateway;
use fogmux_gateway::links::{self, LinkError};
use fogmux_gateway::runtime::Inside;
use fogmux_gateway::worker::Shared;
use fogmux_mqtt::{ReasonCode, RetainHandling, SESSION_NEVER_EXPIRES};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::connection::{Connection, Event, Timing};
use super::failure::{Failure, Kind};
use super::known::{Known, Session};
use super::local::{Local, PACKET_BYTES_MAX, subscribe, unsubscribe};
use super::mapping::{Direction, Mapping};
use super::owed::Owed;
use super::relay::Relay;
use super::remote::{self, Opening};
use super::search::{Ended, QUIET, Suspicion};
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
    /// The session at the other broker that goes with the one here; `None` if there is none.
    session: Option<Session>,
    /// Filters whose retained messages the gateway has begun to send, and goes on with at the next connection.
    begun: BTreeSet<String>,
    suspicion: Suspicion,
    /// The generation of the rules under which the link may read something of each entry.
    generation: Option<u64>,
    /// Whether the session here is subscribed to what is passed on.
    is_prepared: bool,
    /// The largest packet that the gateway takes, in bytes, as it said last; the other broker is asked for no larger.
    packet_bytes_max: u32,
    /// Whether the last connection passed messages on.
    was_up: bool,
}

/// The client identifier of a link at its broker.
pub(super) fn client_id(name: &str, config: &Link, known: &Known) -> Option<String> {
    if !config.client_id.is_empty() {
        return Some(config.client_id.clone());
    }
    match known.gateway() {
        Ok(gateway) => Some(format!("fogmux-{name}-{gateway}")),
        Err(error) => {
            tracing::error!(link = name, %error, "no client identifier for this link can be kept");
            None
        }
    }
}

impl Task {
    /// A link, entered among those of the gateway. `None` if its URL is none, which the configuration has found.
    pub(super) fn new(name: &str, config: &Link, gateway: &RunningGateway, known: Known) -> Option<Self> {
        let broker = config.broker()?;
        let client_id = client_id(name, config, &known)?;
        let state = Arc::new(config.state(name));
        gateway.shared.links.add(Arc::clone(&state));
        let session = known.session(name).filter(|session| session.is_of(&config.url, &client_id));
        if session.is_none() {
            known.say_what_stays(name);
        }
        Some(Self {
            session,
            begun: BTreeSet::new(),
            suspicion: Suspicion::default(),
            generation: None,
            broker,
            client_id,
            state,
            shared: Arc::clone(&gateway.shared),
            inside: gateway.inside(),
            known,
            out: Arc::new(Mapping::new(&config.out, Direction::Out)),
            inward: Arc::new(Mapping::new(&config.inward, Direction::In)),
            config: config.clone(),
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
            if failure.kind == Kind::Searched {
                continue;
            }
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
        let mut passed_on = None;
        let failure = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => None,
            failure = connection.run(|event| self.note(event, &mut passed_on)) => Some(failure),
        };
        if let Some(failure) = &failure {
            self.learn(failure, &connection.relay);
        }
        connection.close().await;
        failure
    }

    /// Follows what happens on a connection. `passed_on` is the place in the output up to which QoS 0 has to be taken.
    fn note(&mut self, event: Event, passed_on: &mut Option<u64>) -> Result<(), Failure> {
        match event {
            Event::Subscribed => {
                self.was_up = true;
                self.begun = self.out.filters().into_iter().map(|(filter, _)| filter.to_owned()).collect();
                self.shared.links.is_up(&self.state, self.unix_ms());
                tracing::info!(link = self.state.name, url = self.state.url, "this link is up");
            }
            Event::Unsubscribed => {
                let wanted = self.inward.filters().into_iter().map(|(filter, _)| filter.to_owned()).collect();
                self.change_session(|session| session.subscribed = wanted);
            }
            Event::Second { taken, made } => {
                self.look_at_rights()?;
                self.look_at_retained(taken, made, passed_on);
            }
        }
        Ok(())
    }

    /// Notes when the other broker has all retained messages.
    fn look_at_retained(&mut self, taken: u64, made: u64, passed_on: &mut Option<u64>) {
        let keys: BTreeSet<String> = self.out.keys().into_iter().map(|(_, key)| key).collect();
        if !self.was_up || self.session.as_ref().is_none_or(|session| session.announced == keys) {
            return;
        }
        let (principal, client) = (self.config.principal(&self.state.name), self.state.client());
        let sessions = self.shared.links.sessions();
        if sessions.is_none_or(|sessions| sessions.is_announcing(&principal, &client)) {
            return;
        }
        if taken >= *passed_on.get_or_insert(made) {
            self.change_session(|session| session.announced = keys);
        }
    }

    /// Ends the connection when the rules have changed and let nothing of an entry be read any more.
    fn look_at_rights(&mut self) -> Result<(), Failure> {
        let generation = self.shared.authority.generation();
        if self.generation == Some(generation) {
            return Ok(());
        }
        let access = self.shared.authority.access(&self.principal()?, self.state.client(), Door::Mqtt);
        for (filter, _) in self.out.filters() {
            if let Reach::Nothing(_) = access.may_subscribe(filter) {
                return Err(Failure::not_subscribed(Direction::Out, filter, ReasonCode::NOT_AUTHORIZED));
            }
        }
        self.generation = Some(generation);
        Ok(())
    }

    /// Looks for the reason why a connection ended.
    fn learn(&mut self, failure: &Failure, relay: &Relay) {
        if failure.kind == Kind::Forbidden {
            // The other broker is left alone as long as nothing may be read for it.
            self.is_prepared = false;
        }
        let (is_waiting, is_acknowledged) = (relay.is_waiting(), relay.is_acknowledged());
        let (kind, search, at) = (failure.kind, relay.search.as_ref(), Instant::now());
        let was_there = self.suspicion.is_there();
        if self.suspicion.learn(&Ended { kind, is_waiting, is_acknowledged, search, at }) {
            let link = &self.state.name;
            tracing::error!(link, "the other broker closes the connection at each message; no more are dropped");
        } else if self.suspicion.is_there() && !was_there {
            let link = &self.state.name;
            tracing::warn!(link, "the other broker closes each connection; messages are sent one at a time");
        }
    }

    /// Changes what is known of the session at the other broker.
    fn change_session(&mut self, change: impl FnOnce(&mut Session)) {
        let Some(session) = &mut self.session else { return };
        let before = session.clone();
        change(session);
        if *session != before {
            keep(&self.known, &self.state.name, session);
        }
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
        let mut window = welcome.receive_maximum.min(self.config.inflight_max);
        let search = self.suspicion.search(window, jittered(QUIET * 2));
        if search.is_some() {
            window = 1;
        }
        let connected = timeout(HERE, local.connect(window)).await;
        let (mut here, greeted) = connected.map_err(|_| Failure::new("the gateway does not answer"))??;
        self.packet_bytes_max = greeted.receiver.packet_bytes_max;
        if !greeted.session_present {
            // It was ended by an administrator: what the other broker knows of it has to go as well.
            self.is_prepared = false;
            self.forget_session()?;
            return Err(Failure::new("the session at the gateway has ended"));
        }
        let mappings = (Arc::clone(&self.out), Arc::clone(&self.inward));
        let mut relay = Relay::new(Arc::clone(&self.state), mappings, (greeted.receiver, welcome.receiver), search);
        if !welcome.session_present {
            relay.release_all(&mut here.output);
        }
        let stale = self.begin_session(&welcome);
        let sessions = self.shared.links.sessions();
        if !welcome.session_present || !sessions.is_some_and(|held| held.goes_on_announcing(&principal.name, client_id))
        {
            self.begun.clear();
        }
        let is_announced = |filter: &str| self.is_announced(filter) || self.begun.contains(filter);
        let handling = |filter: &str| if is_announced(filter) { RetainHandling::Never } else { RetainHandling::Always };
        subscribe(&self.out, handling, &mut here.output)?;
        if !stale.is_empty() {
            unsubscribe(&stale.iter().map(String::as_str).collect::<Vec<_>>(), &mut there.output)?;
        }
        subscribe(&self.inward, |_| RetainHandling::IfNew, &mut there.output)?;
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
        let Welcome { session_present: present, receiver, .. } = local.prepare(&self.out, &stale).await?;
        self.packet_bytes_max = receiver.packet_bytes_max;
        self.begun.clear();
        if present { Ok(()) } else { self.forget_session() }
    }

    /// Notes that the session at the other broker goes with none that is here.
    fn forget_session(&mut self) -> Result<(), Failure> {
        self.session = None;
        self.begun.clear();
        let forgotten = self.known.forget_session(&self.state.name);
        forgotten.map_err(|error| Failure::new(format!("the data directory: {error}")))
    }

    /// Notes what the session at the other broker has, before anything else is done there. Returns the filters that
    /// it is subscribed to for an earlier configuration.
    fn begin_session(&mut self, welcome: &Welcome) -> Vec<String> {
        let before = self.session.take().filter(|_| welcome.session_present);
        let mut session = before.clone().unwrap_or_else(|| Session::new(&self.config.url, &self.client_id));
        let keys = self.out.keys();
        session.announced.retain(|announced| keys.iter().any(|(_, key)| key == announced));
        let wanted: BTreeSet<String> = self.inward.filters().into_iter().map(|(filter, _)| filter.to_owned()).collect();
        let stale = session.subscribed.difference(&wanted).cloned().collect();
        session.subscribed.extend(wanted);
        if before.as_ref() != Some(&session) {
            keep(&self.known, &self.state.name, &session);
        }
        self.session = Some(session);
        stale
    }

    /// Whether the other broker has the retained messages of an entry of `out`.
    fn is_announced(&self, filter: &str) -> bool {
        let Some(session) = &self.session else { return false };
        self.out.keys().iter().any(|(of, key)| *of == filter && session.announced.contains(key))
    }

    /// Connects to the other broker, to the session that goes with the one here.
    async fn connect(
        &self,
    ) -> Result<(super::side::Side<fogmux_client::Stream<tokio::net::TcpStream>>, Welcome), Failure> {
        let opening = Opening {
            client_id: &self.client_id,
            mark: self.shared.links.mark(),
            clean_start: self.session.is_none(),
            session_expiry: SESSION_NEVER_EXPIRES,
            receive_maximum: self.config.inflight_max,
            packet_bytes_max: self.packet_bytes_max,
        };
        remote::connect(&self.config, &self.broker, &opening).await
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

/// Keeps what is known of the session at the other broker.
fn keep(known: &Known, link: &str, session: &Session) {
    if let Err(error) = known.set_session(link, session) {
        tracing::warn!(link, %error, "the session at the other broker ends with this process");
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
