//! One thread that frees what is too big to be freed between two commands.

use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use keyspace::Garbage;

static REAPER: OnceLock<Sender<Vec<Garbage>>> = OnceLock::new();

/// Hands over values to be dropped. If the thread cannot be started they are dropped here.
pub fn send(garbage: Vec<Garbage>) {
    if garbage.is_empty() {
        return;
    }
    let reaper = REAPER.get_or_init(|| {
        let (sender, receiver) = channel::<Vec<Garbage>>();
        let started = std::thread::Builder::new()
            .name("reaper".into())
            .spawn(move || {
                for garbage in receiver {
                    for value in garbage {
                        drop(value);
                        crate::memory::publish();
                    }
                }
            });
        if let Err(error) = started {
            tracing::warn!("no reaper thread ({error}): big values are freed in place");
        }
        sender
    });
    let _ = reaper.send(garbage);
}
