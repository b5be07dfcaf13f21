//! One life of a server: verify what the last one left, let the clients write, die.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::client::Client;
use crate::node::{Folder, Node, Settings};
use crate::queue::Queue;
use crate::verify::{Questions, open_shared, verify, verify_shared};

/// All clients, and what the test adds up for its last line.
pub struct Histories {
    pub clients: Vec<Client>,
    pub queue: Queue,
    pub kept: usize,
    pub in_doubt: usize,
    started: bool,
}

impl Histories {
    pub fn new(clients: u64, seed: u64) -> Histories {
        Histories {
            clients: (0..clients).map(|id| Client::new(id, seed)).collect(),
            queue: Queue::default(),
            kept: 0,
            in_doubt: 0,
            started: false,
        }
    }

    /// Starts a server on the folder and verifies everything.
    pub fn restart(&mut self, folder: &Folder, settings: &Settings) -> Result<Node, String> {
        let node = Node::start(folder, settings)?;
        let verified = self.verify(&node);
        verified.map_err(|wrong| format!("{wrong}\n{}", node.tail()))?;
        Ok(node)
    }

    pub fn verify(&mut self, node: &Node) -> Result<(), String> {
        let mut questions = Questions::new(node.port).map_err(|error| error.to_string())?;
        if !self.started {
            open_shared(&mut questions);
            self.started = true;
            return Ok(());
        }
        verify_shared(&mut questions)?;
        self.queue.verify(&mut questions)?;
        for client in &mut self.clients {
            self.in_doubt += client.doubtful.len();
            self.kept += verify(client, &mut questions)?;
        }
        Ok(())
    }

    /// The clients write while `meanwhile` runs; it ends the server, or `stop` is set behind it and the clients end.
    pub fn write<T>(&mut self, port: u16, meanwhile: impl FnOnce() -> T) -> Result<T, String> {
        let stop = AtomicBool::new(false);
        let queue = &self.queue;
        thread::scope(|scope| {
            let stop = &stop;
            let clients = &mut self.clients;
            let writing: Vec<_> = clients
                .iter_mut()
                .enumerate()
                .map(|(n, client)| {
                    // From one command at a time to deep pipelines.
                    let depth = [1, 4, 16, 40][n % 4];
                    scope.spawn(move || client.run(port, depth, stop))
                })
                .collect();
            scope.spawn(move || queue.produce(port, stop));
            scope.spawn(move || queue.consume(port, stop));
            let result = meanwhile();
            stop.store(true, Ordering::Relaxed);
            for writer in writing {
                writer
                    .join()
                    .map_err(|_| "a client panicked".to_string())??;
            }
            Ok(result)
        })
    }

    pub fn acknowledged(&self) -> u64 {
        self.clients.iter().map(|client| client.acknowledged).sum()
    }

    pub fn summary(&self) -> String {
        format!(
            "{} writes acknowledged, all there; {} in doubt, {} of them surely there",
            self.acknowledged(),
            self.in_doubt,
            self.kept
        )
    }
}
