//! Commands about the session or the server: one file per family, each with its `ROWS`.

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
mod rows;
mod server;
mod slowlog;
mod table_rows;
mod transactions;

use session::SessionCommand;

/// The rows of all families of this crate.
pub const ALL: &[&[SessionCommand]] = &[
    client::ROWS,
    cluster::ROWS,
    command_info::ROWS,
    config::ROWS,
    connection::ROWS,
    debug::ROWS,
    info::ROWS,
    latency::ROWS,
    memory::ROWS,
    monitor::ROWS,
    persistence::ROWS,
    replication::ROWS,
    row_table::ROWS,
    server::ROWS,
    slowlog::ROWS,
    table_rows::ROWS,
    transactions::ROWS,
];

#[cfg(test)]
mod tests {
    use command::{Flags, OnRow, Run};

    use super::ALL;
    use session::Commands;

    /// What `run` says and what is said beside it.
    #[test]
    fn reads_and_writes_are_told_apart_in_one_way() {
        for (_, row) in Commands::new(ALL).specs.each_row() {
            let name = row.name;
            let has = |flag| row.flags.contains(flag);
            let is_session = matches!(row.run, Run::Session);
            assert!(!row.is_write() || !has(Flags::READONLY), "{name}");
            assert!(is_session || !has(Flags::LISTED_AS_WRITE), "{name}");
            let is_block = matches!(row.run, Run::Block(_));
            assert!(!is_block || has(Flags::BLOCKING), "{name}");
            match row.on_row {
                OnRow::Refused | OnRow::Knows => {}
                OnRow::Mixed(run) => {
                    let instead = command::Command { run, ..*row };
                    assert_eq!(instead.is_write(), row.is_write(), "{name}");
                }
                OnRow::Read(_) => assert!(!row.is_write(), "{name}"),
                OnRow::Write(_) => assert!(row.is_write(), "{name}"),
            }
        }
    }

    #[test]
    fn the_syntax_of_every_row_is_in_the_notation() {
        for (_, row) in Commands::new(ALL).specs.each_row() {
            let parsed = command::syntax::parse(row.syntax);
            assert!(parsed.is_some(), "{}: {}", row.name, row.syntax);
        }
    }

    #[test]
    fn every_session_row_has_a_run() {
        let commands = Commands::new(ALL);
        for (number, row) in commands.specs.table.rows().iter().enumerate() {
            let rows = std::iter::once(row).chain(row.subcommands);
            for row in rows.filter(|row| matches!(row.run, Run::Session)) {
                assert!(commands.runs.find(number, row).is_some(), "{}", row.name);
            }
        }
    }
}
