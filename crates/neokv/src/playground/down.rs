//! `cluster down` and `cluster kill`.

use std::path::Path;
use std::time::Duration;

use super::book::{Book, Node, no_playground};
use super::process;

/// A node writes out what it has; longer than this it has never taken.
const GRACE: Duration = Duration::from_secs(20);

pub fn down(dir: &Path, wipe: bool) -> Result<(), String> {
    let mut book = Book::open(dir)?.ok_or_else(|| no_playground(dir))?;
    let running = |node: &&Node| book.running(node).is_some();
    let running: Vec<&Node> = book.nodes.iter().filter(running).collect();
    let (count, all) = (running.len(), book.nodes.len());
    let killed = end(&book, &running);
    for node in &mut book.nodes {
        node.process = None;
    }
    let rest = match (all - count, killed) {
        (0, 0) => String::new(),
        (0, n) => format!(", {n} of them killed because they did not end"),
        (idle, _) => format!(", {idle} did not run"),
    };
    println!("{count} nodes ended{rest}");
    let folder = book.folder.display().to_string();
    if wipe {
        book.wipe()?;
        println!("{folder} is removed");
    } else {
        book.save()?;
        println!(
            "the data stays in {folder}: `neokv cluster up{}` goes on with it",
            book.dir_flag()
        );
    }
    Ok(())
}

/// Ends these nodes if they run; how many had to be killed.
pub fn end(book: &Book, nodes: &[&Node]) -> usize {
    let of = |node: &&Node| Some((node.process.clone()?, book.data(node.number)));
    let processes: Vec<_> = nodes.iter().filter_map(of).collect();
    process::end(&processes, GRACE)
}

pub fn kill(dir: &Path, number: u32) -> Result<(), String> {
    let book = Book::open(dir)?.ok_or_else(|| no_playground(dir))?;
    let node = book.node(number)?;
    let Some(process) = book.running(node) else {
        return Err(format!("node {number} does not run"));
    };
    process::kill(process, &book.data(number));
    println!(
        "node {number} (pid {}) is killed; `neokv cluster start {number}{}` starts it again",
        process.pid,
        book.dir_flag()
    );
    Ok(())
}
