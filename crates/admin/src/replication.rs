//! WAIT and WAITAOF: how many replicas have what this session wrote. ROLE and REPLICAOF, for tools that ask.
//!
//! A cluster acknowledges a write when a majority has it, so WAIT answers at once unless more are asked for. It counts, for
//! every region the session wrote to, the followers whose log the leader knows to reach the index up to which writes were
//! acknowledged when WAIT came, and answers the smallest count. Elsewhere led regions are asked for by the session's connection to their leader (a
//! node that forwards), else their majority is what is known. A node alone has no replica and answers 0.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use base::{Refusal, Slot};
use command::{Arity, Categories, CommandSpec, Flags, Group, Traits};
use resp::{Args, Reply};
use runtime::cores::{Followers, FollowersStanding, NOWHERE, Place};
use session::Later;
use session::Session;
use session::SessionCommand;
use session::SessionRun;
use session::forward::encode;
use settings::LogSync;

use super::specs::{ANYTIME, SERVER};

/// How often followers and the disk are looked at while WAIT waits: soon at first, then less often.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// Another node that says nothing for so long is not counted.
const SILENCE: Duration = Duration::from_secs(1);

const REPLICA_FLAGS: Flags = Flags::ADMIN
    .union(Flags::NOSCRIPT)
    .union(Flags::STALE)
    .union(Flags::NO_ASYNC_LOADING);

/// Where Redis documents WAIT.
const GENERIC: CommandSpec = CommandSpec {
    group: Group::Generic,
    ..SERVER
};

pub const SPECS: &[SessionCommand] = &[
    SessionCommand {
        spec: CommandSpec {
            name: "wait",
            syntax: "numreplicas timeout:integer",
            arity: Arity::Exactly(3),
            flags: Flags::NOSCRIPT,
            since: "3.0.0",
            summary: "Waits until so many replicas have the session's writes, and returns how many do.",
            traits: Traits::ENDS_WITH_CLIENT,
            categories: Some(Categories::CONNECTION),
            tips: &["request_policy:all_shards", "response_policy:agg_min"],
            ..GENERIC
        },
        run: SessionRun::Later(wait),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "waitaof",
            syntax: "numlocal numreplicas timeout:integer",
            arity: Arity::Exactly(4),
            flags: Flags::NOSCRIPT,
            since: "7.2.0",
            summary: "Waits until the session's writes are on disk, here and at so many replicas; returns where they are.",
            traits: Traits::ENDS_WITH_CLIENT,
            categories: Some(Categories::CONNECTION),
            tips: &["request_policy:all_shards", "response_policy:agg_min"],
            ..GENERIC
        },
        run: SessionRun::Later(wait_aof),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "role",
            arity: Arity::Exactly(1),
            flags: ANYTIME
                .union(Flags::NOSCRIPT)
                .union(Flags::FAST)
                .union(Flags::ADMIN_CATEGORY),
            since: "2.8.12",
            summary: "Returns the role in replication: master, without replicas of the Redis kind.",
            ..SERVER
        },
        run: SessionRun::Now(role),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "replicaof",
            syntax: "<<host port>|<NO ONE>>",
            arity: Arity::Exactly(3),
            flags: REPLICA_FLAGS,
            since: "5.0.0",
            summary: "REPLICAOF NO ONE leaves the server the master it is.",
            ..SERVER
        },
        run: SessionRun::Now(replicaof),
    },
    SessionCommand {
        spec: CommandSpec {
            name: "slaveof",
            syntax: "<<host port>|<NO ONE>>",
            arity: Arity::Exactly(3),
            flags: REPLICA_FLAGS,
            summary: "As REPLICAOF.",
            ..SERVER
        },
        run: SessionRun::Now(replicaof),
    },
];

fn wait<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let replicas = args.int(1)?;
        let timeout_ms = timeout_ms(args, 2)?;
        let wanted = Wanted {
            replicas: usize::try_from(replicas).unwrap_or(0),
            local: false,
        };
        let have = wait_for(session, wanted, timeout_ms).await?;
        reply.int(have.replicas as i64);
        Ok(())
    })
}

fn wait_aof<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let local = args.int(1)?;
        if !(0..=1).contains(&local) {
            return Err(Refusal::new(
                "ERR value is out of range, value must between 0 and 1",
            ));
        }
        let replicas = args.int(2).ok().and_then(|it| usize::try_from(it).ok());
        let replicas =
            replicas.ok_or(Refusal::new("ERR value is out of range, must be positive"))?;
        let timeout_ms = timeout_ms(args, 3)?;
        if local > 0 && session.shared().durable.is_none() {
            return Err(Refusal::new(
                "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
            ));
        }
        let counts_replicas = acknowledges_synced(session);
        let wanted = Wanted {
            replicas: if counts_replicas { replicas } else { 0 },
            local: local > 0,
        };
        let have = wait_for(session, wanted, timeout_ms).await?;
        reply.array(2);
        reply.int(i64::from(have.local));
        reply.int(if counts_replicas {
            have.replicas as i64
        } else {
            0
        });
        Ok(())
    })
}

/// Whether what a follower acknowledges is on its disk, going by this node's own setting.
fn acknowledges_synced(session: &Session) -> bool {
    session.shared().settings.current().log_sync == LogSync::Always
}

fn timeout_ms(args: &Args<'_>, at: usize) -> Result<u64, Refusal> {
    let timeout_ms = args
        .int(at)
        .map_err(|_| Refusal::new("ERR timeout is not an integer or out of range"))?;
    u64::try_from(timeout_ms).map_err(|_| Refusal::new("ERR timeout is negative"))
}

/// What a session waits for.
struct Wanted {
    replicas: usize,
    /// The log of this node is on disk.
    local: bool,
}

/// Where a session's writes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Have {
    replicas: usize,
    /// More replicas than this there are not.
    replicas_max: usize,
    local: bool,
}

/// Looks where the session's writes are until it is enough, nothing more can come, or the time is up (0: no limit).
async fn wait_for(session: &mut Session, wanted: Wanted, timeout_ms: u64) -> Result<Have, Refusal> {
    let shared = session.shared().clone();
    let writer = shared.durable.as_ref().map(|it| &it.writer);
    let position = writer.map_or(0, |it| it.position());
    let is_synced = || writer.map_or(Some(false), |it| it.is_synced(position));
    let mut regions = written_regions(session);
    let until = match timeout_ms {
        0 => None,
        ms => Instant::now().checked_add(Duration::from_millis(ms)),
    };
    let client = session.client.clone();
    let mut pause = FIRST_PAUSE;
    client.take_unblock();
    let end = loop {
        let (replicas, replicas_max) = count(session, &mut regions).await;
        let synced = is_synced();
        let have = Have {
            replicas,
            replicas_max,
            local: synced.unwrap_or(false),
        };
        // Who waits for a sync that will not come is told so.
        let is_enough = have.replicas >= wanted.replicas.min(have.replicas_max)
            && (have.local || !wanted.local || synced.is_none());
        let is_over = until.is_some_and(|until| Instant::now() >= until);
        if is_enough || is_over || session.in_exec() || client.is_killed() {
            break Ok(have);
        }
        client.blocked.store(true, Ordering::Release);
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if sleep(session, left.map_or(pause, |left| pause.min(left))).await {
            break match client.take_unblock() {
                Some(stats::clients::Unblock::Error) => Err(Refusal::new(
                    "UNBLOCKED client unblocked via CLIENT UNBLOCK",
                )),
                _ => Ok(have),
            };
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    };
    client.blocked.store(false, Ordering::Release);
    end
}

/// Sleeps; true if CLIENT UNBLOCK ends the wait or the session ends.
async fn sleep(session: &Session, time: Duration) -> bool {
    let client = &session.client;
    let mut sleep = pin!(tokio::time::sleep(time));
    poll_fn(|context| {
        if client.is_killed() || client.is_unblocked() {
            return Poll::Ready(true);
        }
        sleep.as_mut().poll(context).map(|()| false)
    })
    .await
}

/// A region that the session wrote to, as the routes know it.
struct Written {
    /// Where it is on this node.
    place: Place,
    slot: Slot,
    /// Voters beside the leader, and how many of them a majority needs.
    followers: usize,
    majority: usize,
    /// The index that counts, once it is known; on the leader's node only.
    index: u64,
}

fn written_regions(session: &Session) -> Vec<Written> {
    let Some(cluster) = session.shared().cluster.as_deref() else {
        return Vec::new();
    };
    let routes = cluster.routes();
    let regions = routes.regions().filter_map(|region| {
        let segments = &region.descriptor.segments;
        let slot = *segments.first()?.slots().start();
        let wrote = &session.wrote;
        // Who wrote nothing is told what any write would have.
        let counts = wrote.is_empty() || segments.iter().any(|it| wrote.is_in(&it.slots()));
        let voters = region.descriptor.voters().count();
        counts.then(|| Written {
            place: cluster.places.of_slot(slot),
            slot,
            followers: voters.saturating_sub(1),
            majority: voters / 2,
            index: 0,
        })
    });
    regions.collect()
}

/// How many followers have the session's writes, and how many there are: the smallest number of all regions.
async fn count(session: &mut Session, regions: &mut [Written]) -> (usize, usize) {
    if regions.is_empty() {
        return (0, 0);
    }
    let asked = regions.iter().filter(|it| it.place != NOWHERE);
    let asked = asked.map(|it| Followers {
        index: it.index,
        ..Followers::of(it.place)
    });
    let core = session.core.clone();
    let told = core.followers(asked.collect()).await;
    core.begin_batch();
    let (mut have, mut all) = (usize::MAX, usize::MAX);
    // By address of the leader: what a majority has at least.
    let mut elsewhere: BTreeMap<String, usize> = BTreeMap::new();
    for region in regions {
        let told = told.iter().find(|it| it.region == region.place);
        match told.map(|it| (it.standing, it.index)) {
            Some((
                FollowersStanding::Led {
                    have: some,
                    all: of,
                },
                index,
            )) => {
                region.index = index;
                (have, all) = (have.min(some), all.min(of));
            }
            // Lent for a moment, or held by the transaction that asks: a majority has what was acknowledged.
            Some((FollowersStanding::Unknown, _)) => {
                (have, all) = (have.min(region.majority), all.min(region.followers));
            }
            _ => match leader_to_ask(session, region.slot) {
                Some(address) => {
                    all = all.min(region.followers);
                    let least = elsewhere.entry(address).or_insert(region.majority);
                    *least = region.majority.min(*least);
                }
                // Nobody to ask about more: what is known is all that counts.
                None => (have, all) = (have.min(region.majority), all.min(region.majority)),
            },
        }
    }
    for (address, majority) in elsewhere {
        have = have.min(ask(session, &address).await.unwrap_or(majority));
    }
    (have.min(all), all)
}

/// The node to ask about a slot that is led elsewhere: if this session's writes went there on a connection of its own.
fn leader_to_ask(session: &Session, slot: Slot) -> Option<String> {
    if !session.forwards() || session.in_exec() {
        return None;
    }
    let cluster = session.shared().cluster.as_deref()?;
    let routes = cluster.routes();
    let leader = routes.leader_of(slot).filter(|it| it.node != cluster.node);
    leader.map(|it| it.redis.to_string())
}

/// What WAIT counts at another node, without waiting.
async fn ask(session: &mut Session, address: &str) -> Option<usize> {
    let mut request = Vec::new();
    encode([&b"WAIT"[..], b"0", b"0"].into_iter(), &mut request);
    let introduction = session.introduction();
    let gave_up = |silent| silent > SILENCE;
    let upstreams = session.upstreams();
    let asked = upstreams.ask(address, &introduction, &request, 1, gave_up);
    let reply = asked.await.replies.pop()?;
    let digits = reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
    base::number::parse_u64(digits)?.try_into().ok()
}

fn role(_: &mut Session, _: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.array(3);
    reply.bulk(b"master");
    reply.int(0);
    reply.array(0);
    Ok(())
}

fn replicaof(_: &mut Session, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    if args.is(1, "NO") && args.is(2, "ONE") {
        reply.ok();
        return Ok(());
    }
    if args.int(2).is_err() {
        return Err(Refusal::new("ERR Invalid master port"));
    }
    Err(Refusal::new(
        "ERR this server does not replicate from a Redis master. To copy its data, start with `neokv server --import \
         dump.rdb` on an empty data directory; to have replicas, start the nodes of a cluster with `--cluster-init` and \
         `--join`",
    ))
}
