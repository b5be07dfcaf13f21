//! MONITOR: the session is sent every command the server runs.

use std::sync::atomic::Ordering;

use base::Refusal;
use command::{Arity, CommandSpec};
use resp::{Args, Reply};
use session::Session;
use session::SessionCommand;
use session::SessionRun;

use super::specs::{ADMIN, SERVER};

pub const SPECS: &[SessionCommand] = &[SessionCommand {
    spec: CommandSpec {
        name: "monitor",
        arity: Arity::Exactly(1),
        flags: ADMIN,
        summary: "Sends every command the server runs, until the session ends or is reset.",
        ..SERVER
    },
    run: SessionRun::Now(monitor),
}];

fn monitor(session: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    if !session.monitor {
        session.monitor = true;
        session.client.monitor.store(true, Ordering::Relaxed);
        session.shared().clients.add_monitors(1);
    }
    reply.ok();
    Ok(())
}
