//! A producer and a blocked consumer: RPUSH into one list, BLMOVE from there to another.
//!
//! The move is made by whoever pushes, on behalf of the client that waits. Whatever dies: both lists together hold all
//! numbers, each once, in order.

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::verify::Questions;
use crate::wire::{self, Value};

#[derive(Default)]
pub struct Queue {
    sent: AtomicU64,
    pushed: AtomicU64,
    moved: AtomicU64,
}

impl Queue {
    /// Pushes numbers one at a time until the connection breaks or an error comes back.
    pub fn produce(&self, port: u16, stop: &AtomicBool) {
        talk(port, stop, || {
            let n = self.sent.fetch_add(1, Ordering::SeqCst);
            (format!("RPUSH queue {n}"), &self.pushed)
        });
    }

    pub fn consume(&self, port: u16, stop: &AtomicBool) {
        talk(port, stop, || {
            ("BLMOVE queue done LEFT RIGHT 0.2".to_string(), &self.moved)
        });
    }

    pub fn verify(&self, questions: &mut Questions) -> Result<(), String> {
        let mut all = questions.numbers(&["LRANGE", "done", "0", "-1"])?;
        let done = all.len() as u64;
        all.extend(questions.numbers(&["LRANGE", "queue", "0", "-1"])?);
        let [sent, pushed, moved] =
            [&self.sent, &self.pushed, &self.moved].map(|n| n.load(Ordering::SeqCst));
        let right = all.iter().enumerate().all(|(n, found)| n as u64 == *found);
        let total = all.len() as u64;
        if !right || total < pushed || total > sent || done < moved {
            let odd = all
                .iter()
                .enumerate()
                .find(|(n, found)| *n as u64 != **found);
            return Err(format!(
                "queue: {pushed} pushes acknowledged of {sent}, {moved} moves; found {total}, {done} of them moved; \
                 first out of place: {odd:?}"
            ));
        }
        for counter in [&self.sent, &self.pushed] {
            counter.store(total, Ordering::SeqCst);
        }
        self.moved.store(done, Ordering::SeqCst);
        Ok(())
    }
}

/// One command at a time; each good reply counts in the counter that belongs to it.
fn talk<'a>(port: u16, stop: &AtomicBool, next: impl Fn() -> (String, &'a AtomicU64)) {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return;
    };
    let _ = stream.set_nodelay(true);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
    let Ok(reading) = stream.try_clone() else {
        return;
    };
    let mut reader = BufReader::new(reading);
    while !stop.load(Ordering::Relaxed) {
        let (line, counter) = next();
        let argv: Vec<Vec<u8>> = line
            .split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect();
        if stream.write_all(&wire::encode(&argv)).is_err() {
            return;
        }
        match wire::decode(&mut reader) {
            Ok(Value::Int(_) | Value::Bulk(_)) => counter.fetch_add(1, Ordering::SeqCst),
            Ok(Value::Nil | Value::NilArray) => continue,
            _ => return,
        };
    }
}
