//! `cluster up` and `cluster start`.
//!
//! ```text
//!   nodes that were part of it ─► all at once, with their data
//!   new nodes                  ─► one after the other, so that meta numbers them as we do;
//!                                 the very first founds the cluster
//!   then wait until every slot is served
//! ```

use std::path::Path;

use server::settings::Engine;

use super::book::{Book, Node, no_playground};
use super::launch::{Launch, wait_for_join, wait_for_service};
use super::{Shape, probe, status};

const NODES: u32 = 3;
const REPLICAS: u32 = 3;
const PORT: u16 = 7000;
const PEER_PORT_ABOVE: u16 = 10_000;

pub fn up(dir: &Path, shape: Shape) -> Result<(), String> {
    if let Some(flags) = &shape.flags {
        check_flags(flags)?;
    }
    let opened = Book::open(dir)?;
    let is_new = opened.is_none();
    let mut book = match opened {
        Some(mut book) => {
            extend(&mut book, &shape)?;
            book
        }
        None => {
            let mut book = Book::found(dir)?;
            lay_out(&mut book, &shape)?;
            book
        }
    };
    let idle = |node: &&Node| book.running(node).is_none();
    let idle: Vec<Node> = book.nodes.iter().filter(idle).cloned().collect();
    check_ports(&idle)?;
    book.make_secret()?;
    book.save()?;
    let mut launch = Launch::new()?;
    if let Err(why) = launch_all(&mut launch, &mut book, &idle) {
        launch.undo(&book);
        if is_new && !book.is_founded() {
            // As if nothing had been: other flags may be tried.
            book.forget()?;
        }
        return Err(why);
    }
    wait_for_service(&mut launch, &book)?;
    launch.say("all slots are served");
    println!();
    status::print(&book)?;
    let (dir, port) = (
        book.dir_flag(),
        book.nodes.first().map_or(PORT, |it| it.redis_port),
    );
    println!("\nuse it:   neokv cli -c -p {port}");
    println!("end it:   neokv cluster down{dir}   (--wipe to remove the data as well)");
    Ok(())
}

/// Starts one node again.
pub fn start(dir: &Path, number: u32) -> Result<(), String> {
    let mut book = Book::open(dir)?.ok_or_else(|| no_playground(dir))?;
    let node = book.node(number)?.clone();
    if let Some(process) = book.running(&node) {
        return Err(format!("node {number} runs already (pid {})", process.pid));
    }
    let view = probe::View::patient(&probe::line(&book)?);
    let data = book.data(number);
    if view.is_some_and(|view| view.was_removed(node.peer_port)) && data.exists() {
        return Err(format!(
            "node {number} was removed from the cluster. To have it join as a new node, remove its \
             data first: rm -r {}",
            data.display()
        ));
    }
    check_ports(std::slice::from_ref(&node))?;
    let mut launch = Launch::new()?;
    let mut started = launch.start(&mut book, number);
    if started.is_ok() {
        started = wait_for_join(&mut launch, &book, number);
    }
    if let Err(why) = started {
        launch.undo(&book);
        return Err(why);
    }
    set_joined(&mut book, number)?;
    wait_for_service(&mut launch, &book)?;
    let pid = book.node(number)?.process.as_ref().map_or(0, |it| it.pid);
    println!("node {number} is up again (pid {pid}, {})", node.redis());
    Ok(())
}

fn launch_all(launch: &mut Launch, book: &mut Book, idle: &[Node]) -> Result<(), String> {
    let (known, new): (Vec<&Node>, Vec<&Node>) = idle.iter().partition(|it| it.has_joined);
    if idle.is_empty() {
        launch.say("all nodes run already");
    }
    for node in &known {
        launch.say(&format!(
            "starting node {} on {}",
            node.number,
            node.redis()
        ));
        launch.start(book, node.number)?;
    }
    for node in &new {
        launch.say(&format!(
            "starting node {} on {}",
            node.number,
            node.redis()
        ));
        launch.start(book, node.number)?;
        wait_for_join(launch, book, node.number)?;
        set_joined(book, node.number)?;
    }
    Ok(())
}

fn set_joined(book: &mut Book, number: u32) -> Result<(), String> {
    if let Some(node) = book.node_mut(number) {
        node.has_joined = true;
    }
    book.save()
}

/// A new playground.
fn lay_out(book: &mut Book, shape: &Shape) -> Result<(), String> {
    let nodes = shape.nodes.unwrap_or(NODES);
    book.replicas = shape.replicas.unwrap_or(REPLICAS.min(nodes));
    book.regions = shape.regions.unwrap_or(0);
    if book.replicas > nodes {
        return Err(format!(
            "--replicas {}: every replica needs a node of its own, and --nodes is {nodes}",
            book.replicas
        ));
    }
    apply(book, shape);
    add_nodes(book, nodes, shape.port.unwrap_or(PORT))
}

/// One that is there: what was decided when it was founded stays.
fn extend(book: &mut Book, shape: &Shape) -> Result<(), String> {
    let fixed = |name: &str, given: Option<u32>, is: u32| match given {
        Some(given) if given != is => Err(format!(
            "--{name} {given}: the playground in {} was made with {is}, which stays. \
             `neokv cluster down --wipe{}` removes it",
            book.folder.display(),
            book.dir_flag()
        )),
        _ => Ok(()),
    };
    let first = book.nodes.first().map_or(PORT, |node| node.redis_port);
    fixed("replicas", shape.replicas, book.replicas)?;
    fixed("regions", shape.regions, book.regions)?;
    fixed("port", shape.port.map(u32::from), u32::from(first))?;
    let have = book.nodes.len() as u32;
    let nodes = shape.nodes.unwrap_or(have);
    if nodes < have {
        return Err(format!(
            "--nodes {nodes}: there are {have}. `neokv cluster kill {have}{}` takes one away for \
             a while, `neokv ctl remove-node` for good",
            book.dir_flag()
        ));
    }
    apply(book, shape);
    add_nodes(book, nodes, first)
}

/// What may change from start to start.
fn apply(book: &mut Book, shape: &Shape) {
    book.shards = shape.shards.unwrap_or(book.shards);
    if let Some(flags) = &shape.flags {
        book.flags = flags.clone();
    }
}

fn add_nodes(book: &mut Book, nodes: u32, first_port: u16) -> Result<(), String> {
    for number in book.nodes.len() as u32 + 1..=nodes {
        let port = u16::try_from(number - 1)
            .ok()
            .and_then(|above| first_port.checked_add(above));
        let peer_port = port.and_then(|port| port.checked_add(PEER_PORT_ABOVE));
        let (Some(redis_port), Some(peer_port)) = (port, peer_port) else {
            return Err(format!(
                "--port {first_port}: there are not enough ports above it; the highest that works \
                 is {}",
                u32::from(u16::MAX - PEER_PORT_ABOVE) + 1 - nodes
            ));
        };
        book.nodes.push(Node {
            number,
            redis_port,
            peer_port,
            has_joined: false,
            process: None,
        });
    }
    Ok(())
}

fn check_ports(nodes: &[Node]) -> Result<(), String> {
    for node in nodes {
        for port in [node.redis_port, node.peer_port] {
            if probe::is_taken(port) {
                return Err(format!(
                    "node {} cannot start: port {port} is in use by another program. Give another \
                     --port (and --dir), or end that program",
                    node.number
                ));
            }
        }
    }
    Ok(())
}

/// Flags of every node: right, and none of those that are decided here.
fn check_flags(flags: &[String]) -> Result<(), String> {
    let ours = [
        ("port", "--port"),
        ("peer-port", "--port"),
        ("http-port", "--port"),
        ("dir", "--dir"),
        ("num-shards", "--shards"),
        ("replicas", "--replicas"),
        ("regions", "--regions"),
        ("cluster-init", "--nodes"),
        ("join", "--nodes"),
        ("cluster-secret-file", "--dir"),
    ];
    for (name, written) in crate::cli::settings_of(flags)? {
        if let Some((_, instead)) = ours.iter().find(|(it, _)| *it == name) {
            return Err(format!(
                "{written}: each node has its own; `neokv cluster up` has {instead} for it, before \
                 the `--`"
            ));
        }
    }
    // Wrong values are found before anything is started.
    match crate::cli::settings_with(flags)?.engine {
        Engine::Rocksdb => Ok(()),
        Engine::Memory => Err("--engine memory: a cluster has the engine rocksdb".into()),
    }
}
