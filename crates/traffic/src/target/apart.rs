//! The origin that answers separately, on a thread of its own: what a gateway of ours, which has its answers at once,
//! does not do.

use std::net::{IpAddr, SocketAddr};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::{Access, Home, TargetError};
use crate::experiment::{CoapAnswer, Door, Experiment, Operation};
use crate::origin::{Keys, Origin, OriginConfig};

/// A running origin. Dropped, it is ended.
#[derive(Debug)]
pub struct Apart {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
}

/// Whether the experiment needs one.
#[must_use]
pub fn is_apart(experiment: &Experiment) -> bool {
    let asks = matches!(experiment.operation, Operation::Get | Operation::Put | Operation::Post | Operation::Connect);
    experiment.coap_answer == CoapAnswer::Separate && experiment.door == Door::Coap && asks
}

impl Apart {
    /// Starts an origin in the calling thread's network namespace.
    ///
    /// # Errors
    /// Its credentials cannot be had, or its socket not bound.
    pub fn start(home: &mut Home, experiment: &Experiment, address: &str) -> Result<Self, TargetError> {
        home.furnish(experiment)?;
        let profile = experiment.security.profile;
        let dtls = match (profile.is_encrypted(), profile.psk) {
            (false, _) => None,
            (true, true) => Some(Keys::psk(super::home::USER, home.shared_key())),
            (true, false) => {
                let (chain, key) = home.server_certificate(profile.server_key)?;
                Some(Keys::certificate(&chain, &key).map_err(TargetError::Start)?)
            }
        };
        let address: IpAddr = address.parse().map_err(|_| TargetError::Start(format!("{address} is no address")))?;
        let config = OriginConfig { answer: CoapAnswer::Separate, confirm_notifications: false, dtls };
        let (stop, stopped) = oneshot::channel();
        let (ready, bound) = std::sync::mpsc::channel();
        let serve = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(error))),
            };
            runtime.block_on(async {
                let origin = match Origin::bind((address, 0).into(), config).await {
                    Ok(origin) => origin,
                    Err(error) => return drop(ready.send(Err(error))),
                };
                let _ = ready.send(origin.address());
                tokio::select! {
                    _ = stopped => {}
                    _ = origin.serve() => {}
                }
            });
        };
        let io = |error| TargetError::Io("the origin".to_owned(), error);
        let thread = std::thread::Builder::new().name("origin".to_owned()).spawn(serve).map_err(io)?;
        let address = bound.recv().map_err(|_| TargetError::Start("the origin's thread has ended".to_owned()))?;
        Ok(Self { stop: Some(stop), thread: Some(thread), address: address.map_err(io)? })
    }

    /// How clients reach it, and with what.
    #[must_use]
    pub fn access(&self, home: &Home, experiment: &Experiment) -> Access {
        home.access(experiment, experiment.door, self.address.ip().to_string(), self.address.port())
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        drop(self.stop.take());
        // It stops at its next turn, which comes at once; if it has panicked nobody is to be told.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
