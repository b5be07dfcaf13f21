//! All users: one value, which a change replaces.
//!
//! Whoever keeps it (the store of a node that is alone, meta in a cluster) replaces the old one only if it is still the one the change
//! was made from. The default user is part of what is kept only once somebody has changed it by `ACL SETUSER`; before that its
//! password is the setting `requirepass` of each node.

use std::collections::BTreeMap;
use std::sync::Arc;

use command::Specs;
use prost::Message;

use crate::User;
use crate::rule::has_blanks;
use crate::user::merged;

/// The user of clients that have not said who they are.
pub const DEFAULT: &[u8] = b"default";

const FORMAT: u8 = 1;

#[derive(Debug, Clone, PartialEq)]
pub struct Users {
    /// +1 with every change; 0: nobody has changed anything.
    pub version: u64,
    pub(crate) by_name: BTreeMap<Vec<u8>, Arc<User>>,
    /// The default user is kept with the others.
    pub(crate) has_own_default: bool,
    /// What the nodes of a cluster tell each other to be trusted; empty: there is none yet.
    token: Vec<u8>,
}

impl Users {
    /// The default user alone; `password` is the setting `requirepass`.
    pub fn new(specs: &Specs, password: &[u8]) -> Users {
        let mut default = User::default_user(specs);
        default.set_only_password(password);
        Users {
            version: 0,
            by_name: BTreeMap::from([(DEFAULT.to_vec(), Arc::new(default))]),
            has_own_default: false,
            token: Vec::new(),
        }
    }

    pub fn named(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// In the order of their names.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.by_name.values()
    }

    /// Whether clients that say nothing are served.
    pub fn is_open(&self) -> bool {
        self.named(DEFAULT).is_some_and(|user| user.is_open())
    }

    /// Whether the default user needs a password, as protected mode asks.
    pub fn has_default_password(&self) -> bool {
        !self
            .named(DEFAULT)
            .is_some_and(|user| user.has_no_password())
    }

    /// Whether the default user was changed by rules: the setting `requirepass` does not count any more.
    pub fn has_own_default(&self) -> bool {
        self.has_own_default
    }

    pub fn token(&self) -> &[u8] {
        &self.token
    }

    /// As it is, with a token if it has none.
    pub fn with_token(mut self, token: &[u8]) -> Users {
        if self.token.is_empty() {
            self.token = token.to_vec();
        }
        self
    }

    /// With one user made or changed.
    pub fn set<'a>(
        &self,
        name: &'a [u8],
        rules: impl IntoIterator<Item = &'a [u8]>,
        specs: &Specs,
        all_channels: bool,
    ) -> Result<Users, String> {
        if has_blanks(name) {
            return Err("Usernames can't contain spaces or null characters".into());
        }
        let mut next = self.after();
        let mut user = match self.named(name) {
            Some(user) => User::clone(user),
            None => {
                let mut user = User::new(name, specs, all_channels);
                user.since = next.version;
                user
            }
        };
        let rules = merged(rules).map_err(|open| {
            format!(
                "Unmatched parenthesis in acl selector starting at '{}'.",
                String::from_utf8_lossy(open)
            )
        })?;
        for rule in &rules {
            user.apply(rule, specs, all_channels).map_err(|error| {
                let rule = String::from_utf8_lossy(rule);
                format!("Error in ACL SETUSER modifier '{rule}': {}", error.text())
            })?;
        }
        next.has_own_default |= name == DEFAULT;
        next.by_name.insert(name.to_vec(), Arc::new(user));
        Ok(next)
    }

    /// Without these users, and how many of them there were.
    pub fn delete<'a>(
        &self,
        names: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<(Users, usize), &'static str> {
        if names.clone().any(|name| name == DEFAULT) {
            return Err("The 'default' user cannot be removed");
        }
        let mut next = self.after();
        let deleted = names.filter(|&name| next.by_name.remove(name).is_some());
        let deleted = deleted.count();
        Ok((next, deleted))
    }

    /// Where the default user has this password, for the setting `requirepass`. Not a change that is kept.
    pub fn with_default_password(&self, password: &[u8]) -> Users {
        let mut next = self.clone();
        if let Some(default) = next.by_name.get_mut(DEFAULT) {
            Arc::make_mut(default).set_only_password(password);
        }
        next
    }

    /// With the users of another list (a file), in place of all there were. As in Redis 7.0 they are others, even if their rules are
    /// the same: the sessions of all but the default user end.
    pub fn replaced_by(&self, other: Users) -> Users {
        let mut next = Users {
            version: self.version + 1,
            token: self.token.clone(),
            ..other
        };
        for user in next
            .by_name
            .values_mut()
            .filter(|user| user.name != DEFAULT)
        {
            Arc::make_mut(user).since = next.version;
        }
        next
    }

    /// With these users in addition, or instead of those of the same name: those of the configuration.
    pub fn overlaid(&self, others: Users) -> Users {
        let mut next = self.clone();
        next.has_own_default |= others.has_own_default;
        next.by_name.extend(
            others
                .by_name
                .into_iter()
                .filter(|(name, _)| name != DEFAULT || others.has_own_default),
        );
        next
    }

    fn after(&self) -> Users {
        Users {
            version: self.version + 1,
            ..self.clone()
        }
    }

    /// As lines of a file of users.
    pub fn lines(&self, specs: &Specs) -> Vec<u8> {
        let mut text = Vec::new();
        for user in self.all() {
            text.extend_from_slice(&user.line(specs));
            text.push(b'\n');
        }
        text
    }

    pub fn encode(&self, specs: &Specs) -> Vec<u8> {
        let kept = self.by_name.values();
        let kept = kept.filter(|user| self.has_own_default || user.name != DEFAULT);
        let written = Written {
            version: self.version,
            token: self.token.clone(),
            users: kept
                .map(|user| WrittenUser {
                    name: user.name.clone(),
                    rules: user.rules(specs),
                    since: user.since,
                })
                .collect(),
        };
        let mut bytes = vec![FORMAT];
        bytes.extend_from_slice(&written.encode_to_vec());
        bytes
    }

    /// What [`Users::encode`] gave. `password` is the setting `requirepass`. Commands that this version does not know are passed over:
    /// nobody can run them here.
    pub fn decode(bytes: &[u8], specs: &Specs, password: &[u8]) -> Result<Users, String> {
        let written = match bytes.split_first() {
            Some((&FORMAT, rest)) => Written::decode(rest),
            Some(_) => return Err("the list of users was written by a newer version".into()),
            None => return Err("the list of users is empty".into()),
        };
        let written = written.map_err(|error| format!("the list of users is damaged: {error}"))?;
        let mut users = Users::new(specs, password);
        users.version = written.version;
        users.token = written.token;
        for it in written.users {
            let mut user = User::new(&it.name, specs, false);
            let words = it.rules.split(|&byte| byte == b' ');
            let rules = merged(words).map_err(|_| "the list of users is damaged".to_owned())?;
            for rule in &rules {
                match user.apply(rule, specs, false) {
                    Ok(()) | Err(crate::RuleError::UnknownCommand) => {}
                    Err(error) => {
                        let name = String::from_utf8_lossy(&it.name).into_owned();
                        return Err(format!(
                            "the list of users is damaged: user '{name}': {}",
                            error.text()
                        ));
                    }
                }
            }
            user.since = it.since;
            users.has_own_default |= it.name == DEFAULT;
            users.by_name.insert(it.name, Arc::new(user));
        }
        Ok(users)
    }
}

#[derive(Clone, PartialEq, Message)]
struct Written {
    #[prost(uint64, tag = "1")]
    version: u64,
    #[prost(bytes = "vec", tag = "2")]
    token: Vec<u8>,
    #[prost(message, repeated, tag = "3")]
    users: Vec<WrittenUser>,
}

#[derive(Clone, PartialEq, Message)]
struct WrittenUser {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    rules: Vec<u8>,
    #[prost(uint64, tag = "3")]
    since: u64,
}
