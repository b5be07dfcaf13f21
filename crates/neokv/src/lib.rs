//! The `neokv` program: reads the command line and the configuration, and starts what they ask for.
//!
//! All of it is in this library, and `main.rs` only calls it: a library can be compiled before RocksDB is there to be linked, so both
//! are compiled at the same time (`scripts/build`).

mod accept;
mod cli;
mod client;
mod config;
mod console;
mod ctl;
mod engine;
mod feed;
mod generate;
mod greeting;
mod import;
mod milestones;
mod pages;
mod playground;
mod table;
mod tables;

use std::io::Write;
use std::process::ExitCode;

use server::log;

/// Does what the command line asks for.
pub fn run() -> ExitCode {
    match cli::parse(std::env::args_os()) {
        cli::Asked::Server(flags) => start(&flags),
        cli::Asked::Playground(options) => ended(playground::run(options)),
        cli::Asked::Ctl(options) => ended(ctl::run(options)),
        cli::Asked::Tables(options) => ended(tables::run(options)),
        cli::Asked::Console(options) => console::run(options),
        cli::Asked::AcceptLostLog(dir) => ended(accept::run(&dir)),
        cli::Asked::Feed(wanted) => ended(feed::print(&wanted)),
        cli::Asked::Generate(files, folder) => {
            ended(generate::write(files, cli::command(), &folder))
        }
        cli::Asked::Page(page) => {
            print!("{}", page.text());
            ExitCode::SUCCESS
        }
        cli::Asked::Text(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        cli::Asked::Wrong(line) => complain(&line),
    }
}

fn start(flags: &config::Given) -> ExitCode {
    milestones::observe_if_asked();
    let settings = match config::load(flags, |name| std::env::var(name).ok()) {
        Ok(settings) => settings,
        Err(error) => return complain(&error.to_string()),
    };
    if flags.is_of_cluster && !settings.cluster.is_asked_for() && !has_data(&settings) {
        return complain(
            "a new node of a cluster needs --join host:peer-port, or --cluster-init yes to found one",
        );
    }
    let _log = match log::open(&settings) {
        Ok(log) => log,
        Err(line) => return complain(&line),
    };
    // Otherwise it would stand twice on a terminal.
    let is_apart = settings.logfile.is_some() || settings.log_format == log::Format::Json;
    match serve(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            if is_apart {
                tracing::error!("{line}");
            }
            complain(&line)
        }
    }
}

/// Until the node is asked to stop. In one line why it did not start.
fn serve(mut settings: server::Settings) -> Result<(), String> {
    greeting::before(&settings);
    settings.fit_descriptors()?;
    let node = engine::start(settings)?;
    server::on_signals(node.server.shared().clone())
        .map_err(|error| format!("cannot listen to signals: {error}"))?;
    greeting::serving(&node.server);
    node.wait();
    tracing::info!("stopped");
    Ok(())
}

/// Then the data says which cluster it is of.
fn has_data(settings: &server::Settings) -> bool {
    settings.dir.join("FORMAT").exists()
}

fn ended(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => complain(&line),
    }
}

/// One line, and the exit status of a wrong start.
fn complain(line: &str) -> ExitCode {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "neokv: {line}");
    ExitCode::FAILURE
}
