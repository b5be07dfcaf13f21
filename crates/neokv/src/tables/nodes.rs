//! All nodes of a cluster that lead slots; or the one node there is.

use serde_json::Value;

use super::client::Client;

pub struct Nodes(Vec<Client>);

/// How often a row is looked for at another node.
const MOVES_MAX: usize = 5;

impl Nodes {
    /// Those that the node knows of, itself first if it leads any.
    pub fn of(mut client: Client) -> Result<Nodes, String> {
        let Ok(slots) = client.ask(&["CLUSTER", "SLOTS"]) else {
            return Ok(Nodes(vec![client])); // alone
        };
        let mut addresses: Vec<String> = Vec::new();
        for range in slots.as_array().into_iter().flatten() {
            let leader = range.get(2);
            let host = leader.and_then(|it| it.get(0)?.as_str());
            let port = leader.and_then(|it| it.get(1)?.as_u64());
            if let (Some(host), Some(port)) = (host, port) {
                let address = format!("{host}:{port}");
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        if addresses.is_empty() {
            return Err(
                "no node of the cluster leads any slot yet; see `neokv ctl regions`".into(),
            );
        }
        addresses.sort();
        let password = client.password.clone();
        let connect = |address: &String| Client::connect(address, password.as_deref());
        let clients: Result<Vec<Client>, String> = addresses.iter().map(connect).collect();
        Ok(Nodes(clients?))
    }

    pub fn is_cluster(&self) -> bool {
        self.0.len() > 1
    }

    /// There is one.
    pub fn first(&mut self) -> &mut Client {
        #[allow(clippy::indexing_slicing)] // never made empty
        &mut self.0[0]
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Client> {
        self.0.iter_mut()
    }

    pub fn addresses(&self) -> Vec<(String, Option<String>)> {
        let clients = self.0.iter();
        clients
            .map(|it| (it.address.clone(), it.password.clone()))
            .collect()
    }

    /// What each node answers.
    pub fn ask_all(&mut self, words: &[&str]) -> Result<Vec<(String, Value)>, String> {
        let many = self.is_cluster();
        let mut answers = Vec::new();
        for client in self.iter_mut() {
            let told = client.table(words);
            let address = client.address.clone();
            let answer = told.map_err(|why| match many {
                true => format!("{address}: {why}"),
                false => why,
            })?;
            answers.push((address, answer));
        }
        Ok(answers)
    }
}

/// Asks for a row, at the node that leads its slot.
pub fn follow(mut client: Client, words: &[String]) -> Result<Value, String> {
    for _ in 0..MOVES_MAX {
        let why = match client.table(words) {
            Ok(answer) => return Ok(answer),
            Err(why) => why,
        };
        let Some(address) = why
            .strip_prefix("MOVED ")
            .and_then(|it| it.split(' ').nth(1))
        else {
            return Err(why);
        };
        client = Client::connect(address, client.password.clone().as_deref())?;
    }
    Err("the row is moving from node to node; try again".into())
}
