//! The users of a cluster: meta has them, every node keeps a copy. As with the catalogue of tables ([`super::tables`]), a change is made
//! by whoever knows the newest, and is answered when all nodes that live have published it.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Instant;

use acl::Users;
use base::Refusal;
use meta::state::SetUsers;
use meta::wire::Ask;

use super::Cluster;
use super::tables::{PAUSE, TIMEOUT, named};
use crate::Shared;

/// Bytes of the token by which nodes know each other at the Redis port, before they are written as digits.
const TOKEN_BYTES: usize = 32;

/// Replaces the users by what `change` makes of the newest.
pub async fn change_users(
    shared: &Arc<Shared>,
    cluster: &Cluster,
    change: impl Fn(&Users) -> Result<Users, Refusal>,
) -> Result<(), Refusal> {
    let until = Instant::now() + TIMEOUT;
    let token = new_token().map_err(|why| {
        Refusal::text_of(format!(
            "ERR nothing was changed: the system gives no random numbers: {why}"
        ))
    })?;
    let version = loop {
        let known = shared.users.load();
        let newest = cluster.ask_catalogue(Ask::Users(known.version), until);
        let newest = newest.await.map_err(not_made)?.version;
        if newest > known.version {
            hear_of(shared, cluster, newest, until).await?;
            continue;
        }
        let next = change(&known)?.with_token(&token);
        let ask = Ask::SetUsers(SetUsers {
            expected_version: known.version,
            bytes: next.encode(&shared.commands),
        });
        let answer = cluster.ask_catalogue(ask, until).await.map_err(in_doubt)?;
        match answer.was_set {
            true => break answer.version,
            // Somebody else was quicker.
            false => hear_of(shared, cluster, answer.version, until).await?,
        }
    };
    hear_of(shared, cluster, version, until).await?;
    loop {
        match cluster.ask_catalogue(Ask::Users(version), until).await {
            Ok(answer) if answer.behind.is_empty() => return Ok(()),
            Ok(_) if Instant::now() < until => tokio::time::sleep(PAUSE).await,
            Ok(answer) => {
                return Err(Refusal::text_of(format!(
                    "ERR the users are changed, but not all nodes know it after {} s: {} will learn it when they can",
                    TIMEOUT.as_secs(),
                    named(&answer.behind)
                )));
            }
            Err(why) => {
                return Err(Refusal::text_of(format!(
                    "ERR the users are changed, but it is not known whether all nodes know it yet: {why}"
                )));
            }
        }
    }
}

/// Waits until this node itself has published a version.
async fn hear_of(
    shared: &Shared,
    cluster: &Cluster,
    version: u64,
    until: Instant,
) -> Result<(), Refusal> {
    if shared.users_version() < version {
        cluster.trigger_heartbeat();
    }
    while shared.users_version() < version {
        if Instant::now() >= until {
            return Err(Refusal::text_of(format!(
                "ERR this node did not hear of version {version} of the users in time; is the meta service reachable?"
            )));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

fn not_made(why: String) -> Refusal {
    Refusal::text_of(format!("ERR nothing was changed: {why}"))
}

fn in_doubt(why: String) -> Refusal {
    Refusal::text_of(format!(
        "ERR it is not known whether the users were changed, see ACL LIST: {why}"
    ))
}

fn new_token() -> std::io::Result<Vec<u8>> {
    let mut random = [0; TOKEN_BYTES];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    let digits = random.iter().map(|byte| format!("{byte:02x}"));
    Ok(digits.collect::<String>().into_bytes())
}
