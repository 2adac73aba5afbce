//! What is logged on the test's thread.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use tokio::sync::Notify;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// The messages of events with their errors, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>, Arc<Notify>);

impl Log {
    /// Whether something was logged that has this text; forgets all.
    pub(crate) fn has(&self, text: &str) -> bool {
        let lines = std::mem::take(&mut *self.0.lock().unwrap());
        lines.iter().any(|line| line.contains(text))
    }

    /// Waits until one line has all of these texts.
    pub(crate) async fn until(&self, texts: &[&str]) {
        loop {
            let logged = self.1.notified();
            let found = self
                .0
                .lock()
                .unwrap()
                .iter()
                .any(|line| texts.iter().all(|text| line.contains(text)));
            if found {
                return;
            }
            logged.await;
        }
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            fmt::Write::write_fmt(&mut self.0, format_args!("{value:?} ")).unwrap();
        }
    }

    fn record_error(&mut self, _field: &Field, error: &(dyn std::error::Error + 'static)) {
        self.0.push_str(&consul_watch::error_chain(error));
    }
}

impl Subscriber for Log {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().unwrap().push(message.0);
        self.1.notify_waiters();
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}
