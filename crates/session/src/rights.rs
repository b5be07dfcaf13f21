//! Who a session is, and what that user may do.
//!
//! A session keeps its user and the version of the users by which it looked it up. For a user that may do everything
//! `Session::rights` is that version, so that a command costs one comparison; for others it is 0, and every command is checked.

use std::sync::Arc;

use acl::{DEFAULT, Denied, User};
use base::Refusal;
use command::CommandSpec;
use resp::Args;
use runtime::now_ms;
use stats::acl_log::AclEntry;

use crate::Session;

/// The session's user and how far it was looked at.
pub(crate) struct Who {
    pub user: Arc<User>,
    /// The version of the users by which it was looked up.
    seen: u64,
    /// A session of this node itself, or of another node of the cluster, which has checked what it asks for.
    is_trusted: bool,
}

impl Who {
    pub(crate) fn new(user: Arc<User>, is_trusted: bool) -> Who {
        Who {
            user,
            seen: 0,
            is_trusted,
        }
    }
}

/// What is to be said before a command runs.
pub(crate) enum Verdict {
    Fine,
    /// The users have changed: look again.
    Stale,
    Denied(Refusal),
}

impl Session {
    /// Whether its user may run a command. Called unless `rights` says that it may run any.
    pub(crate) fn check_rights(&self, stat: usize, spec: &CommandSpec, args: &Args<'_>) -> Verdict {
        let version = self.core.shared.users.version();
        if self.who.seen != version {
            return Verdict::Stale;
        }
        if !self.authenticated || self.rights == version {
            return Verdict::Fine;
        }
        match self.denies(stat, spec, args) {
            None => Verdict::Fine,
            Some(Refused::Right(denied)) => {
                self.log_denied(denied, spec, args, self.multi.is_some());
                Verdict::Denied(denied.refusal(spec))
            }
            Some(Refused::Sort(refusal)) => Verdict::Denied(refusal),
        }
    }

    #[inline]
    fn denies(&self, stat: usize, spec: &CommandSpec, args: &Args<'_>) -> Option<Refused> {
        let user = &self.who.user;
        if let Err(denied) = user.check(stat, spec, args) {
            return Some(Refused::Right(denied));
        }
        match spec.keys {
            command::Keys::Sort { .. } => {
                user.check_sort(stat, spec, args).err().map(Refused::Sort)
            }
            _ => None,
        }
    }

    /// What EXEC says instead of running a queued command.
    pub(crate) fn refuses_queued(
        &self,
        stat: usize,
        spec: &CommandSpec,
        args: &Args<'_>,
    ) -> Option<Refusal> {
        if self.rights == self.core.shared.users.version() {
            return None;
        }
        match self.denies(stat, spec, args)? {
            Refused::Right(denied) => {
                self.log_denied(denied, spec, args, true);
                Some(denied.refusal_in_exec())
            }
            Refused::Sort(refusal) => Some(refusal),
        }
    }

    /// Looks its user up again.
    pub(crate) fn look_again(&mut self) {
        let shared = self.core.shared.clone();
        // The version first: if it moves meanwhile, the user is looked up once more.
        let version = shared.users.version();
        let users = shared.users.load();
        self.who.seen = version;
        if self.who.is_trusted {
            self.rights = version;
            return;
        }
        let known = users.named(self.who.user.name());
        match known.filter(|user| user.since() == self.who.user.since()) {
            Some(user) => {
                self.who.user = user.clone();
                self.authenticated |= user.name() == DEFAULT && users.is_open();
            }
            // It was deleted; whoever did that ends its sessions.
            None => {
                self.authenticated = false;
                self.client.kill();
            }
        }
        self.rights = match self.authenticated && self.who.user.may_do_everything() {
            true => version,
            false => 0,
        };
    }

    /// The user it runs as.
    pub fn user(&self) -> &Arc<User> {
        &self.who.user
    }

    /// From now on it is this user (AUTH, a certificate).
    pub fn log_in(&mut self, user: Arc<User>) {
        self.client.set_user(user.name());
        self.who = Who::new(user, false);
        self.authenticated = true;
        self.look_again();
    }

    /// From now on it is this user, which somebody else has made sure of: a certificate names it. False: there is no such
    /// user, or it is off.
    pub fn log_in_by_name(&mut self, name: &[u8]) -> bool {
        let users = self.core.shared.users.load();
        match users.named(name).filter(|user| user.is_on()) {
            Some(user) => {
                self.log_in(user.clone());
                true
            }
            None => false,
        }
    }

    /// From now on it is nobody in particular: the default user, which may need a password (RESET).
    pub fn log_out(&mut self) {
        let users = self.core.shared.users.load();
        if let Some(user) = users.named(DEFAULT) {
            self.log_in(user.clone());
            self.authenticated = users.is_open();
            self.look_again();
        }
    }

    /// Another node of the cluster, if it shows the token that only nodes know: it has checked what it asks for.
    pub fn trust_by_token(&mut self, token: &[u8]) -> Result<(), Refusal> {
        let shared = self.core.shared.clone();
        shared.check_token(token, &self.client.addr)?;
        self.who.is_trusted = true;
        self.authenticated = true;
        self.look_again();
        Ok(())
    }

    /// AUTH and HELLO.
    pub fn authenticate(
        &mut self,
        name: &[u8],
        password: &[u8],
        command: &[u8],
    ) -> Result<(), Refusal> {
        let shared = self.core.shared.clone();
        match shared.log_in(name, password, &self.client.addr) {
            Ok(user) => {
                self.log_in(user);
                Ok(())
            }
            Err(refusal) => {
                let in_multi = self.multi.is_some();
                self.log_entry("auth", command.to_vec(), name.to_vec(), in_multi);
                Err(refusal)
            }
        }
    }

    fn log_denied(&self, denied: Denied, spec: &CommandSpec, args: &Args<'_>, in_multi: bool) {
        let (reason, object) = match denied {
            Denied::Command => ("command", spec.name.as_bytes()),
            Denied::Key(at) => ("key", args.at(at)),
        };
        let user = self.who.user.name().to_vec();
        self.log_entry(reason, object.to_vec(), user, in_multi);
    }

    fn log_entry(&self, reason: &'static str, object: Vec<u8>, user: Vec<u8>, in_multi: bool) {
        let shared = &self.core.shared;
        let now_ms = now_ms();
        let entry = AclEntry {
            count: 0,
            reason,
            in_multi,
            object,
            user,
            at_ms: now_ms,
            client: self.client.line(&shared.commands, now_ms, 0),
        };
        let max_len = shared.settings.current().acllog_max_len;
        shared.acl_log.add(entry, max_len);
    }
}

/// Why a command may not run.
enum Refused {
    Right(Denied),
    Sort(Refusal),
}
