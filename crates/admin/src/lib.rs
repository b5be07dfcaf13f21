//! Commands about the session or the server: one file per family, each with its `ROWS`.

mod acl;
mod client;
mod cluster;
mod command_info;
mod config;
mod connection;
mod debug;
pub(crate) mod info;
mod latency;
mod memory;
mod monitor;
mod persistence;
mod replication;
mod row_table;
mod server;
mod slowlog;
mod specs;
mod table_rows;
mod transactions;

use session::SessionCommand;

/// The specifications of all families of this crate.
pub const ALL: &[&[SessionCommand]] = &[
    acl::SPECS,
    client::SPECS,
    cluster::SPECS,
    command_info::SPECS,
    config::SPECS,
    connection::SPECS,
    debug::SPECS,
    info::SPECS,
    latency::SPECS,
    memory::SPECS,
    monitor::SPECS,
    persistence::SPECS,
    replication::SPECS,
    row_table::SPECS,
    server::SPECS,
    slowlog::SPECS,
    table_rows::SPECS,
    transactions::SPECS,
];

#[cfg(test)]
mod tests {
    use command::{Flags, OnRow, Run};

    use super::ALL;
    use session::Commands;

    /// What `run` says and what is said beside it.
    #[test]
    fn reads_and_writes_are_told_apart_in_one_way() {
        for (_, spec) in Commands::new(ALL).specs.each_row() {
            let name = spec.name;
            let has = |flag| spec.flags.contains(flag);
            let is_session = matches!(spec.run, Run::Session);
            assert!(!spec.is_write() || !has(Flags::READONLY), "{name}");
            assert!(is_session || !has(Flags::LISTED_AS_WRITE), "{name}");
            let is_block = matches!(spec.run, Run::Block(_));
            assert!(!is_block || has(Flags::BLOCKING), "{name}");
            match spec.on_row {
                OnRow::Refused | OnRow::Knows => {}
                OnRow::Mixed(run) => {
                    let instead = command::CommandSpec { run, ..*spec };
                    assert_eq!(instead.is_write(), spec.is_write(), "{name}");
                }
                OnRow::Read(_) => assert!(!spec.is_write(), "{name}"),
                OnRow::Write(_) => assert!(spec.is_write(), "{name}"),
            }
        }
    }

    #[test]
    fn the_syntax_of_every_row_is_in_the_notation() {
        for (_, spec) in Commands::new(ALL).specs.each_row() {
            let parsed = command::syntax::parse(spec.syntax);
            assert!(parsed.is_some(), "{}: {}", spec.name, spec.syntax);
        }
    }

    #[test]
    fn every_session_row_has_a_run() {
        let commands = Commands::new(ALL);
        for (number, spec) in commands.specs.table.specs().iter().enumerate() {
            let specs = std::iter::once(spec).chain(spec.subcommands);
            for spec in specs.filter(|spec| matches!(spec.run, Run::Session)) {
                assert!(commands.runs.find(number, spec).is_some(), "{}", spec.name);
            }
        }
    }
}
