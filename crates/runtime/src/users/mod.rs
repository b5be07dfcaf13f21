//! The users of a node: which there are, where they are kept, and how a change becomes known.
//!
//! ```text
//!   change(&old) -> new ──► kept (a row on disk; in a cluster: meta) ──► published in `Shared` ──► answered
//!                                                          with `aclfile`: nowhere, until ACL SAVE
//! ```
//!
//! Sessions compare [`UsersCell::version`] with what they saw last, and look their user up again when it has moved. Kept before
//! it is published: what a client was told survives a crash. A node of a cluster that has started does not know the users before meta
//! has told it ([`UsersCell::is_known`]): sessions wait for that.

mod failures;
mod file;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use acl::{User, Users};
use arc_swap::ArcSwap;
use base::Refusal;
use command::Specs;

pub use failures::AuthFailures;
pub use file::{load_file, save_file};

use crate::Shared;
use crate::tables::catalogue_change;

/// Where a node keeps its users (in a cluster, what it last heard of them), in the family of states.
const ROW: &[u8] = b"users";
/// A cluster node that has never heard of any users goes on without after this time.
const HEAR_OF_FIRST: Duration = Duration::from_secs(3);
/// One that has, and cannot know whether they are still the same, lets nobody in.
const HEAR_OF_CHANGES: Duration = Duration::from_secs(10);
const LISTEN: Duration = Duration::from_millis(10);

pub const UNHEARD: Refusal = Refusal::new(
    "TRYAGAIN this node has not heard since its start which users there are; is the meta service reachable?",
);

/// The users, shared by all cores.
pub struct UsersCell {
    /// Moves with every publication; 0: they are not known yet.
    version: AtomicU64,
    current: ArcSwap<Users>,
    /// Held by who publishes.
    publishing: Mutex<()>,
    /// Held by who changes them.
    change: tokio::sync::Mutex<()>,
    /// What meta said last could not be taken over.
    is_refused: AtomicBool,
    pub failures: AuthFailures,
}

impl UsersCell {
    pub fn new(specs: &Specs, password: &[u8]) -> UsersCell {
        UsersCell {
            version: AtomicU64::new(0),
            current: ArcSwap::from_pointee(Users::new(specs, password)),
            publishing: Mutex::default(),
            change: tokio::sync::Mutex::default(),
            is_refused: AtomicBool::new(false),
            failures: AuthFailures::default(),
        }
    }

    /// Moves with every change; 0: they are not known yet.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub fn load(&self) -> Arc<Users> {
        self.current.load_full()
    }

    /// Whether clients that say nothing are served.
    pub fn is_open(&self) -> bool {
        self.current.load().is_open()
    }

    pub fn has_default_password(&self) -> bool {
        self.current.load().has_default_password()
    }

    pub fn is_known(&self) -> bool {
        self.version() != 0
    }

    /// What is there is what there is.
    pub(crate) fn now_known(&self) {
        if !self.is_refused.load(Ordering::Acquire) {
            let first = self
                .version
                .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
            let _ = first;
        }
    }
}

impl Shared {
    /// Waits until this node knows its users; false: it does not in time.
    pub async fn users_known(&self) -> bool {
        while !self.users.is_known() {
            let since_start = self.started.elapsed();
            let has_never_had_any = self.users.current.load().version == 0;
            if has_never_had_any && since_start > HEAR_OF_FIRST {
                self.users.now_known();
            } else if since_start > HEAR_OF_CHANGES {
                return false;
            }
            tokio::time::sleep(LISTEN).await;
        }
        true
    }

    /// The user of this name, if this is its password; with what the client is told else. `address` is where it comes from.
    pub fn log_in(
        &self,
        name: &[u8],
        password: &[u8],
        address: &str,
    ) -> Result<Arc<User>, Refusal> {
        const WRONG: Refusal =
            Refusal::new("WRONGPASS invalid username-password pair or user is disabled.");
        if !self.users.is_known() {
            return Err(UNHEARD);
        }
        self.may_try(address)?;
        let users = self.users.current.load();
        let user = users.named(name).filter(|user| user.accepts(password));
        match user {
            Some(user) => Ok(user.clone()),
            None => {
                self.note_failure(address);
                Err(WRONG)
            }
        }
    }

    /// Whether somebody knows the token that nodes of the cluster show each other.
    pub fn check_token(&self, token: &[u8], address: &str) -> Result<(), Refusal> {
        self.may_try(address)?;
        let users = self.users.current.load();
        let (given, known) = (acl::hash_of(token), acl::hash_of(users.token()));
        if users.token().is_empty() || !given.is_among(&[known]) {
            self.note_failure(address);
            return Err(Refusal::new(
                "NOAUTH this is not the token of this cluster's nodes",
            ));
        }
        Ok(())
    }

    /// Whether a login from this address is looked at.
    fn may_try(&self, address: &str) -> Result<(), Refusal> {
        let per_minute = self.settings.current().auth_failures_per_minute;
        let host = host_of(address);
        match self
            .users
            .failures
            .may_try(host, per_minute, Instant::now())
        {
            true => Ok(()),
            false => Err(Refusal::text_of(format!(
                "ERR too many failed logins from {host}: at most {per_minute} per minute (auth-failures-per-minute); \
                 try again in a moment"
            ))),
        }
    }

    fn note_failure(&self, address: &str) {
        let per_minute = self.settings.current().auth_failures_per_minute;
        let failures = &self.users.failures;
        failures.note(host_of(address), per_minute, Instant::now());
    }

    /// Makes users known to all sessions, unless they know newer ones. Sessions of users that are gone end.
    pub fn publish_users(&self, users: Users) {
        let _one_at_a_time = self.users.publishing.lock();
        let _one_at_a_time = _one_at_a_time.unwrap_or_else(PoisonError::into_inner);
        let before = self.users.load();
        if users.version < before.version {
            return;
        }
        let is_same = |user: &User| {
            let now = users.named(user.name());
            now.is_some_and(|now| now.since() == user.since())
        };
        let gone: Vec<Vec<u8>> = before
            .all()
            .filter(|user| !is_same(user))
            .map(|user| user.name().to_vec())
            .collect();
        self.users.current.store(Arc::new(users));
        self.users.version.fetch_add(1, Ordering::AcqRel);
        if gone.is_empty() {
            return;
        }
        for client in self.clients.all().values() {
            let user = client.user();
            if gone.iter().any(|name| *name == *user) {
                client.kill();
            }
        }
    }

    /// Whether a change of users is kept by itself.
    pub fn keeps_users(&self) -> bool {
        self.durable.is_some() && self.settings.current().aclfile.is_empty()
    }

    /// The default user's password is what the setting `requirepass` says now.
    pub fn take_requirepass(&self) {
        let users = self.users.load();
        let password = self.settings.current().requirepass.clone();
        self.publish_users(users.with_default_password(&password));
    }
}

/// An address without its port.
fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// What a node starts with: the file of users, or what it had when it stopped and the users of its configuration.
pub fn open(shared: &Shared) -> Result<(), String> {
    let settings = shared.settings.current();
    let (specs, all_channels) = (&shared.commands, settings.acl_all_channels);
    let configured = acl::file::read_configured(&settings.user, specs, all_channels)
        .map_err(|why| format!("user: {why}"))?;
    let has_configured = configured.all().len() > 0;
    if shared.cluster.is_some() && (has_configured || !settings.aclfile.is_empty()) {
        return Err(
            "aclfile and user are for a node that is alone: in a cluster all nodes share their users, see ACL SETUSER"
                .into(),
        );
    }
    let users = if !settings.aclfile.is_empty() {
        if has_configured {
            return Err(
                "aclfile and user exclude each other: define users in the file, or in the configuration"
                    .into(),
            );
        }
        file::read(shared)?
    } else {
        let kept = match &shared.durable {
            Some(durable) => catalogue_change::kept_row(&*durable.stores.rows, ROW)
                .map_err(|error| error.to_string())?,
            None => None,
        };
        let users = match kept {
            Some(bytes) => Users::decode(&bytes, specs, &settings.requirepass)?,
            None => Users::new(specs, &settings.requirepass),
        };
        users.overlaid(configured)
    };
    if users.has_own_default() && !settings.requirepass.is_empty() {
        tracing::warn!(
            "the setting requirepass does not count: the default user was set by ACL rules; see ACL GETUSER default"
        );
    }
    shared.users.current.store(Arc::new(users));
    if shared.cluster.is_none() {
        shared.users.now_known();
    }
    Ok(())
}

/// Replaces the users by what `change` makes of them. Returns when it is kept and this node knows it; in a cluster, when all nodes that
/// live do.
pub async fn change_users(
    shared: &Arc<Shared>,
    change: impl Fn(&Users) -> Result<Users, Refusal>,
) -> Result<(), Refusal> {
    let _one_at_a_time = shared.users.change.lock().await;
    if let Some(cluster) = &shared.cluster {
        return crate::cluster::change_users(shared, cluster, change).await;
    }
    let next = change(&shared.users.load())?;
    if let Some(durable) = shared.durable.as_ref().filter(|_| shared.keeps_users()) {
        if let Some(refusal) = durable.refusal() {
            return Err(refusal);
        }
        let (rows, bytes) = (durable.stores.rows.clone(), next.encode(&shared.commands));
        let kept = catalogue_change::off_core(move || keep(&*rows, &bytes)).await;
        if let Err(why) = kept {
            return Err(Refusal::text_of(format!(
                "ERR the users could not be written: {why}"
            )));
        }
    }
    shared.publish_users(next);
    Ok(())
}

/// Writes them and waits for the disk: not for cores.
fn keep(rows: &dyn keyspace::rows::RowStore, bytes: &[u8]) -> Result<(), String> {
    catalogue_change::keep_row(rows, ROW, bytes)
}

/// Keeps users that came from meta and makes them known to this node's sessions.
pub fn take_users(shared: &Shared, told: &meta::wire::Catalogue) -> Result<(), String> {
    let taken = take(shared, told);
    let is_refused = &shared.users.is_refused;
    is_refused.store(taken.is_err(), Ordering::Release);
    taken
}

fn take(shared: &Shared, told: &meta::wire::Catalogue) -> Result<(), String> {
    let password = shared.settings.current().requirepass.clone();
    let users = Users::decode(&told.bytes, &shared.commands, &password)?;
    if users.version != told.version {
        return Err(format!(
            "version {} of the users says that it is version {}",
            told.version, users.version
        ));
    }
    if let Some(durable) = &shared.durable {
        keep(&*durable.stores.rows, &told.bytes)?;
    }
    shared.publish_users(users);
    Ok(())
}
