//! `neokv table`: declares tables over SQL, changes them, and looks at how their rows fare.
//!
//! ```text
//!   flags    what may be asked          client   a Redis client of one node
//!   nodes    all nodes of a cluster     drain    waiting until SQL has everything
//!   show     answers for people; for programs they are JSON as they come
//! ```
//!
//! One node is asked (`--address`). What each node knows only of the regions it leads (status, drain, dead letters) is asked of all nodes of a
//! cluster. What is refused ends with exit status 1.

mod client;
mod drain;
mod flags;
mod nodes;
mod show;

use serde_json::{Value, json};

pub use flags::{command, options};

use client::Client;
use nodes::Nodes;

/// What is asked of whom.
pub struct Options {
    pub address: String,
    pub password: Option<String>,
    pub json: bool,
    pub what: What,
}

pub enum What {
    /// These words behind `ROW.TABLE`, and what is said when it is done.
    Change(Vec<String>, String),
    /// As `Change`, after SQL has everything.
    DropKeepingSql(String),
    List,
    Show(String),
    Backends,
    Status,
    Drain {
        table: Option<String>,
        seconds: u64,
    },
    DeadList,
    /// RETRY or DROP, the key, and further words; and what is said then.
    DeadSettle(Vec<String>, String),
}

/// Asks, and prints the answer; in one line why there is none.
pub fn run(options: Options) -> Result<(), String> {
    let mut client = Client::connect(&options.address, options.password.as_deref())?;
    let (answer, text) = match options.what {
        What::Change(words, said) => {
            client.table(&words)?;
            (json!({ "done": said }), format!("{said}\n"))
        }
        What::DropKeepingSql(name) => {
            let mut nodes = Nodes::of(client)?;
            drain::run(&mut nodes, Some(&name), drain::SECONDS, true)?;
            nodes.first().table(&["DROP", &name, "KEEPSQL"])?;
            let said = format!("dropped {name}; its SQL table is left as it is");
            (json!({ "done": said }), format!("{said}\n"))
        }
        What::List => {
            let list = client.table(&["LIST"])?;
            let text = show::list(&list);
            (json!({ "tables": list }), text)
        }
        What::Show(name) => {
            let table = client.table(&["SHOW", &name])?;
            let text = show::table(&table);
            (table, text)
        }
        What::Backends => {
            let backends = Nodes::of(client)?.ask_all(&["BACKENDS"])?;
            let text = show::backends(&backends);
            (by_node(backends, "backends"), text)
        }
        What::Status => {
            let status = Nodes::of(client)?.ask_all(&["STATUS"])?;
            let text = show::status(&status);
            (by_node(status, "status"), text)
        }
        What::Drain { table, seconds } => {
            let mut nodes = Nodes::of(client)?;
            let said = drain::run(&mut nodes, table.as_deref(), seconds, options.json)?;
            (json!({ "done": said }), format!("{said}\n"))
        }
        What::DeadList => {
            let letters = Nodes::of(client)?.ask_all(&["DEAD", "LIST"])?;
            let text = show::letters(&letters);
            (by_node(letters, "dead"), text)
        }
        What::DeadSettle(words, said) => {
            nodes::follow(client, &words)?;
            (json!({ "done": said }), format!("{said}\n"))
        }
    };
    match options.json {
        true => println!("{answer:#}"),
        false => print!("{text}"),
    }
    Ok(())
}

fn by_node(answers: Vec<(String, Value)>, name: &str) -> Value {
    let node = |(address, answer): (String, Value)| json!({ "node": address, (name): answer });
    json!({ "nodes": answers.into_iter().map(node).collect::<Vec<_>>() })
}
