//! Rows of a table of neokv over gRPC, by the client that ships with it: puts set one field of `bench:key`, gets read it.

use std::rc::Rc;

use crate::Settings;
use crate::phase::{Client, Failed};

pub struct Shared {
    /// Each has connections of its own; clients are spread over them.
    clients: Vec<rowclient::Client>,
}

pub struct Rows {
    table: rowclient::Table,
}

impl Client for Rows {
    type Shared = Shared;

    async fn share(settings: &Settings, clients: usize) -> Result<Shared, Failed> {
        let connections = clients.div_ceil(settings.streams());
        let made = (0..connections).map(|_| rowclient::Client::new(settings.addresses.clone()));
        let clients: Result<Vec<_>, _> = made.collect();
        Ok(Shared {
            clients: clients.map_err(|error| error.to_string())?,
        })
    }

    async fn connect(shared: &Rc<Shared>, n: usize) -> Result<Rows, Failed> {
        let client = &shared.clients[n % shared.clients.len()];
        Ok(Rows {
            table: client.table("bench"),
        })
    }

    async fn put(&mut self, key: &[u8], _value: &[u8]) -> Result<(), Failed> {
        let key = String::from_utf8_lossy(key);
        let set = self.table.set(&key, [("n", 7i64)]).await;
        set.map(|_| ()).map_err(|error| error.to_string())
    }

    async fn get(&mut self, key: &[u8]) -> Result<(), Failed> {
        let key = String::from_utf8_lossy(key);
        let got = self.table.get_fields(&key, &["n"]).await;
        got.map(|_| ()).map_err(|error| error.to_string())
    }
}
