//! Links to other brokers (ADR 0077): the ones of the configuration, each a task that connects the gateway's MQTT door
//! with another broker for as long as it is configured.

mod characters;
mod connection;
mod failure;
mod known;
mod local;
mod mapping;
mod owed;
mod relay;
mod remote;
mod search;
mod side;
mod task;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use fogmux_auth::Principal;
use fogmux_gateway::RunningGateway;
use fogmux_gateway::links::CLIENT;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::known::Known;
use self::local::Local;
use self::task::{Task, client_id};
use crate::config::links::{Link, Links as Configured};

/// The longest that links may take to end.
const END: Duration = Duration::from_secs(3);

/// The links that run.
pub(crate) struct Links {
    known: Known,
    running: BTreeMap<String, Running>,
    /// Sessions at other brokers that are being ended, by URL and client identifier.
    ending: BTreeMap<(String, String), JoinHandle<()>>,
}

/// A link and the way to end it.
struct Running {
    config: Link,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Links {
    /// Starts all links, and ends the sessions of those that are not configured any more.
    pub(crate) fn start(configured: &Configured, gateway: &RunningGateway, data: &Path) -> Self {
        set_mark(gateway);
        let mut this = Self { known: Known::new(data), running: BTreeMap::new(), ending: BTreeMap::new() };
        let sessions = gateway.shared.links.sessions().map(|sessions| sessions.names()).unwrap_or_default();
        for (name, principal) in sessions {
            let link = configured.0.get(&name);
            if link.is_none() {
                this.known.say_what_stays(&name);
            }
            if link.is_none_or(|link| *link.principal(&name) != *principal) {
                this.forget(name, Principal::user(&principal, []), gateway);
            }
        }
        for (name, link) in &configured.0 {
            this.add(name, link, gateway);
        }
        this
    }

    /// Adds, changes and removes links.
    pub(crate) async fn replace(&mut self, configured: &Configured, gateway: &RunningGateway) {
        let gone = |name: &String, running: &Running| configured.0.get(name) != Some(&running.config);
        let changed: Vec<String> =
            self.running.iter().filter(|(name, running)| gone(name, running)).map(|(name, _)| name.clone()).collect();
        for name in changed {
            let Some(running) = self.running.remove(&name) else { continue };
            let (config, before) = (running.config.clone(), running.config.principal(&name));
            running.end().await;
            let link = configured.0.get(&name);
            let is_at_broker = |link: &Link| link.url == config.url && link.client_id == config.client_id;
            if !link.is_some_and(is_at_broker) {
                // The session at the next broker is another one.
                let _ = self.known.forget_session(&name);
                self.end_there(&name, config);
            }
            if link.is_none_or(|link| link.principal(&name) != before) {
                gateway.shared.links.remove(&name);
                tracing::info!(link = name, "this link has ended");
                self.forget(name, Principal::user(&before, []), gateway);
            }
        }
        for (name, link) in &configured.0 {
            if !self.running.contains_key(name) {
                self.add(name, link, gateway);
            }
        }
    }

    /// Ends all links; their sessions stay.
    pub(crate) async fn stop(&mut self) {
        for running in self.running.values() {
            running.stop.send_replace(true);
        }
        for (_, running) in std::mem::take(&mut self.running) {
            running.end().await;
        }
    }

    /// Ends the session of a link at the other broker, once and beside everything else: that may be away.
    fn end_there(&mut self, name: &str, config: Link) {
        let (Some(broker), Some(client_id)) = (config.broker(), client_id(name, &config, &self.known)) else { return };
        let session = (config.url.clone(), client_id.clone());
        let link = name.to_owned();
        let ending = tokio::spawn(async move {
            let url = &config.url;
            match remote::end(&config, &broker, &client_id).await {
                Ok(()) => tracing::info!(link, url, "the session of this link at the other broker has ended"),
                Err(failure) => {
                    tracing::warn!(link, url, client_id, %failure, "the session of this link stays at the other broker");
                }
            }
        });
        self.ending.insert(session, ending);
    }

    fn add(&mut self, name: &str, config: &Link, gateway: &RunningGateway) {
        self.ending.retain(|_, ending| !ending.is_finished());
        let session = client_id(name, config, &self.known).map(|client_id| (config.url.clone(), client_id));
        if let Some(ending) = session.and_then(|session| self.ending.remove(&session)) {
            // It would end the session that begins now.
            ending.abort();
        }
        let (stop, stopped) = watch::channel(false);
        let Some(task) = Task::new(name, config, gateway, self.known.clone()) else { return };
        let task = tokio::spawn(task.run(stopped));
        self.running.insert(name.to_owned(), Running { config: config.clone(), stop, task });
    }

    /// Ends the session of a link at the MQTT door.
    fn forget(&self, name: String, principal: Principal, gateway: &RunningGateway) {
        let inside = gateway.inside();
        // It is of no use without the session.
        let _ = self.known.forget_session(&name);
        tokio::spawn(async move {
            let client_id = format!("{CLIENT}{name}");
            let local = Local { inside: &inside, principal: &principal, client_id: &client_id };
            if let Err(failure) = local.end().await {
                tracing::debug!(link = name, %failure, "the session of a link that is gone stays");
            }
        });
    }
}

/// Gives the process a mark that no other one has, by which its MQTT door knows its own links.
fn set_mark(gateway: &RunningGateway) {
    let mut random = [0; 16];
    // Without random numbers a link to the gateway itself is not found out.
    if getrandom::fill(&mut random).is_ok() {
        gateway.shared.links.set_mark(fogmux_net::channel::hex(&random));
    }
}

impl Running {
    async fn end(self) {
        self.stop.send_replace(true);
        let abort = self.task.abort_handle();
        if tokio::time::timeout(END, self.task).await.is_err() {
            abort.abort();
        }
    }
}
