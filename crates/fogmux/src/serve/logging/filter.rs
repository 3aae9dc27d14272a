//! The filter of the log, which the audit log passes whatever it says: who administers the gateway can choose what else
//! is in the log, but not hide what they do.

use fogmux_gateway::AUDIT;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer};

/// The filter as it was written, and the audit log.
#[derive(Debug)]
pub(super) struct Filter(pub(super) Targets);

fn is_audit(metadata: &Metadata<'_>) -> bool {
    metadata.target() == AUDIT
}

impl<S: Subscriber> Layer<S> for Filter {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_audit(metadata) { Interest::always() } else { Layer::<S>::register_callsite(&self.0, metadata) }
    }

    fn enabled(&self, metadata: &Metadata<'_>, context: Context<'_, S>) -> bool {
        is_audit(metadata) || Layer::<S>::enabled(&self.0, metadata, context)
    }

    fn event_enabled(&self, event: &Event<'_>, context: Context<'_, S>) -> bool {
        is_audit(event.metadata()) || Layer::<S>::event_enabled(&self.0, event, context)
    }

    /// Of the lines of the audit log none is below `info`.
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Layer::<S>::max_level_hint(&self.0).map(|level| level.max(LevelFilter::INFO))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::reload;

    use super::*;

    /// The targets and levels of the events that reach it.
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Seen {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let metadata = event.metadata();
            self.0.lock().unwrap().push(format!("{} {}", metadata.level(), metadata.target()));
        }
    }

    #[test]
    fn no_filter_hides_the_audit_log() {
        let hiding = ["off", "error", "fogmux::audit=off", "off,fogmux::audit[{peer}]=off", "fogmux=off,h2=debug", ""];
        for text in hiding {
            let seen = Seen::default();
            let (filter, handle) = reload::Layer::new(Filter("trace".parse().unwrap()));
            let log = tracing_subscriber::registry().with(filter).with(seen.clone());
            tracing::subscriber::with_default(log, || {
                let say = || {
                    tracing::warn!(target: AUDIT, peer = "192.0.2.7", "login refused");
                    tracing::info!(target: AUDIT, "log filter changed");
                    tracing::warn!(target: "fogmux::audited", "of another");
                };
                say();
                handle.reload(Filter(text.parse().unwrap())).unwrap();
                say();
            });
            let (all, audit) = (
                ["WARN fogmux::audit", "INFO fogmux::audit", "WARN fogmux::audited"],
                &["WARN fogmux::audit", "INFO fogmux::audit"],
            );
            assert_eq!(*seen.0.lock().unwrap(), [&all[..], audit].concat(), "{text}");
        }
    }
}
