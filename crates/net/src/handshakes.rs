//! A thread for handshakes that cost milliseconds: an RSA-4096 signature would hold up everybody else on the worker.
//!
//! It is started when the first such handshake comes, and shares its one core fairly with the workers whatever the
//! flood.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use tokio::{runtime::Handle, sync::oneshot, task::JoinHandle};

/// The thread, once there is one. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elsewhere(Arc<Mutex<Option<Running>>>);

#[derive(Debug)]
struct Running {
    runtime: Handle,
    /// Dropped with the last clone, which ends the thread.
    _alive: oneshot::Sender<()>,
}

impl Elsewhere {
    /// Runs `work` there; it is given up when the future is dropped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let mut task = GivenUp(self.runtime()?.spawn(work));
        (&mut task.0).await.map_err(io::Error::other)?
    }

    fn runtime(&self) -> io::Result<Handle> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*running {
            return Ok(running.runtime.clone());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (alive, end) = oneshot::channel();
        thread::Builder::new().name("handshakes".into()).spawn(move || {
            // Either way there is nobody left who would want a handshake.
            let _ = runtime.block_on(end);
        })?;
        *running = Some(Running { runtime: handle.clone(), _alive: alive });
        Ok(handle)
    }
}

/// Aborts the task when nobody waits for it any more.
struct GivenUp<T>(JoinHandle<T>);

impl<T> Drop for GivenUp<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
