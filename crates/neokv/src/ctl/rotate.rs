//! `neokv ctl rotate-secret`: another cluster secret, on all nodes, while they serve.
//!
//! ```text
//!   1  every node accepts the new one, too        a node is missing: nothing is taken away, try again
//!   2  every node dials with the new one
//!   3  every node accepts the new one only        connections under the old one are closed, and made again
//! ```
//!
//! The new secret is in `FILE.next` before any node hears of it, and stays there until the last step is done: a
//! rotation that was interrupted is taken up again by the same command. Every step may be repeated.

use std::path::{Path, PathBuf};

use meta::wire::Ask;
use server::cluster::{METHOD_SECRET, SecretOrder};
use transport::{Secret, read_secrets, write_secrets};

use super::access::{Access, present};
use super::{Line, TIMEOUT};

type Step = fn(Secret) -> SecretOrder;

pub fn run(peers: &[String], files: &[PathBuf]) -> Result<(), String> {
    let file = match present(files)?.as_slice() {
        [file] => (*file).clone(),
        several => {
            let names: Vec<String> = several.iter().map(|it| it.display().to_string()).collect();
            return Err(format!(
                "which one? give --cluster-secret-file: {}",
                names.join(", ")
            ));
        }
    };
    let text = |error: std::io::Error| error.to_string();
    let next = next_of(&file);
    let new = match next.exists() {
        true => {
            println!("going on with the secret in {}", next.display());
            let list = read_secrets(&next).map_err(text)?;
            list.into_iter().next().ok_or("an empty file")?
        }
        false => {
            let new = Secret::generate().map_err(text)?;
            write_secrets(&next, std::slice::from_ref(&new)).map_err(text)?;
            new
        }
    };
    let old = read_secrets(&file).map_err(text)?;
    let steps: [(&str, Step); 3] = [
        ("accepts the new secret, too", SecretOrder::Add),
        ("uses the new secret", SecretOrder::Prefer),
        ("accepts the new secret only", SecretOrder::KeepOnly),
    ];
    for (what, order) in steps {
        // Under the new secret as soon as it works: the last step closes connections under the old one.
        let line = line_with(peers, &old, &new)?;
        // Asked before each step: another one may have joined meanwhile, with the old secret.
        let nodes = all_nodes(&line)?;
        let body = order(new.clone()).encode();
        for (node, address) in &nodes {
            let answer = line.call_at(address, METHOD_SECRET, body.clone(), TIMEOUT);
            answer.map_err(|error| {
                format!(
                    "node {node} at {address}: {error}. Nothing is lost: both secrets work. When the node answers again, \
                     the same command goes on"
                )
            })?;
            println!("node {node} {what}");
        }
    }
    // The file may be that of a node, which has written it.
    if read_secrets(&file).map_err(text)? != [new.clone()] {
        write_secrets(&file, &[new]).map_err(text)?;
    }
    std::fs::remove_file(&next).map_err(text)?;
    println!(
        "done. The new secret is in {}; other copies of the old one, as for nodes that are to join, are worth nothing now",
        file.display()
    );
    Ok(())
}

fn next_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".next");
    name.into()
}

fn line_with(peers: &[String], old: &[Secret], new: &Secret) -> Result<Line, String> {
    let others = old.iter().filter(|it| *it != new).cloned();
    let access = Access {
        tls: None,
        secrets: Some([new.clone()].into_iter().chain(others).collect()),
    };
    Line::new(peers.to_vec(), access).map_err(|why| why.to_string())
}

/// Number and address of every node. All have to be there: one that is away would be shut out.
fn all_nodes(line: &Line) -> Result<Vec<(u64, String)>, String> {
    let rows = line.patient_tables(Ask::Nodes(true), TIMEOUT);
    let rows = rows.map_err(|why| why.to_string())?.nodes;
    let mut nodes = Vec::new();
    for row in rows {
        match row.state.as_str() {
            "removed" | "replaced" => {}
            "up" => nodes.push((row.node, row.peer.to_string())),
            state => {
                return Err(format!(
                    "node {} is {state}: it would not hear of the new secret, and not get in again. Start it, or remove it \
                     with `neokv ctl remove-node {}`; then try again",
                    row.node, row.node
                ));
            }
        }
    }
    Ok(nodes)
}
