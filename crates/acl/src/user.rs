//! One user.

use command::Specs;

use crate::password::{Hash, hash_of};
use crate::{RuleError, Selector};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub(crate) name: Vec<u8>,
    pub(crate) is_on: bool,
    /// Any password will do.
    pub(crate) has_no_password: bool,
    /// `sanitize-payload` or `skip-sanitize-payload` was given: kept and shown only, payloads are always checked.
    pub(crate) sanitizes: Option<bool>,
    pub(crate) passwords: Vec<Hash>,
    /// Its own rights; those in parentheses follow.
    pub(crate) root: Selector,
    pub(crate) selectors: Vec<Selector>,
    /// The version of [`crate::Users`] that made it: a user of the same name that is made later is another.
    pub(crate) since: u64,
}

impl User {
    /// One that may do nothing and cannot log in.
    pub fn new(name: &[u8], specs: &Specs, all_channels: bool) -> User {
        User {
            name: name.to_vec(),
            is_on: false,
            has_no_password: false,
            sanitizes: None,
            passwords: Vec::new(),
            root: Selector::new(specs, all_channels),
            selectors: Vec::new(),
            since: 0,
        }
    }

    /// The user of clients that have not said who they are: without a password, it may do everything.
    pub fn default_user(specs: &Specs) -> User {
        let mut user = User::new(crate::DEFAULT, specs, true);
        user.is_on = true;
        user.has_no_password = true;
        for rule in [b"+@all".as_slice(), b"~*"] {
            // These rules are right.
            let _ = user.root.apply(rule, specs);
        }
        user
    }

    pub fn name(&self) -> &[u8] {
        &self.name
    }

    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether any password will do.
    pub fn has_no_password(&self) -> bool {
        self.has_no_password
    }

    /// Whether a client needs to say nothing to be this user.
    pub fn is_open(&self) -> bool {
        self.is_on && self.has_no_password
    }

    pub fn passwords(&self) -> &[Hash] {
        &self.passwords
    }

    /// Its own rights.
    pub fn root(&self) -> &Selector {
        &self.root
    }

    /// Further rights, given in parentheses.
    pub fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// The version of [`crate::Users`] that made it.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Whether it may log in with this password.
    pub fn accepts(&self, password: &[u8]) -> bool {
        // The hash is made in any case: how long it takes tells nothing about the user.
        let is_right = hash_of(password).is_among(&self.passwords);
        self.is_on && (self.has_no_password || is_right)
    }

    /// The flags, as `ACL GETUSER` and `ACL LIST` show them.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        [
            (if self.is_on { "on" } else { "off" }, true),
            ("nopass", self.has_no_password),
            ("skip-sanitize-payload", self.sanitizes == Some(false)),
            ("sanitize-payload", self.sanitizes == Some(true)),
        ]
        .into_iter()
        .filter(|(_, is_set)| *is_set)
        .map(|(name, _)| name)
    }

    /// Replaces all passwords; an empty one: none is needed (the setting `requirepass`).
    pub fn set_only_password(&mut self, password: &[u8]) {
        self.passwords.clear();
        self.has_no_password = password.is_empty();
        if !password.is_empty() {
            self.passwords.push(hash_of(password));
        }
    }

    /// Applies one rule of `ACL SETUSER`.
    pub fn apply(
        &mut self,
        rule: &[u8],
        specs: &Specs,
        all_channels: bool,
    ) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        if rule.is_empty() {
            return Ok(());
        }
        if is("on") {
            self.is_on = true;
        } else if is("off") {
            self.is_on = false;
        } else if is("skip-sanitize-payload") {
            self.sanitizes = Some(false);
        } else if is("sanitize-payload") {
            self.sanitizes = Some(true);
        } else if is("nopass") {
            self.has_no_password = true;
            self.passwords.clear();
        } else if is("resetpass") {
            self.has_no_password = false;
            self.passwords.clear();
        } else if is("clearselectors") {
            self.selectors.clear();
        } else if is("reset") {
            let since = self.since;
            let name = std::mem::take(&mut self.name);
            *self = User::new(&name, specs, all_channels);
            self.sanitizes = Some(true);
            self.since = since;
        } else {
            match rule {
                [b'>', password @ ..] => self.add_password(hash_of(password)),
                [b'#', hash @ ..] => self.add_password(Hash::given(hash)?),
                [b'<', password @ ..] => self.remove_password(&hash_of(password))?,
                [b'!', hash @ ..] => self.remove_password(&Hash::given(hash)?)?,
                [b'(', rules @ .., b')'] => {
                    let mut selector = Selector::new(specs, all_channels);
                    let words = rules.split(|byte| byte.is_ascii_whitespace());
                    for rule in words.filter(|rule| !rule.is_empty()) {
                        selector.apply(rule, specs)?;
                    }
                    self.selectors.push(selector);
                }
                _ => self.root.apply(rule, specs)?,
            }
        }
        Ok(())
    }

    fn add_password(&mut self, hash: Hash) {
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.has_no_password = false;
    }

    fn remove_password(&mut self, hash: &Hash) -> Result<(), RuleError> {
        let before = self.passwords.len();
        self.passwords.retain(|known| known != hash);
        match self.passwords.len() < before {
            true => Ok(()),
            false => Err(RuleError::NoSuchPassword),
        }
    }
}

/// Joins selectors that are spread over several arguments; an open parenthesis that is not closed is given back.
pub(crate) fn merged<'a>(
    rules: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<Vec<u8>>, &'a [u8]> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for rule in rules {
        match &mut open {
            Some((_, selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(rule);
                if rule.last() == Some(&b')')
                    && let Some((_, selector)) = open.take()
                {
                    all.push(selector);
                }
            }
            None if rule.first() == Some(&b'(') && rule.last() != Some(&b')') => {
                open = Some((rule, rule.to_vec()));
            }
            None => all.push(rule.to_vec()),
        }
    }
    match open {
        Some((begin, _)) => Err(begin),
        None => Ok(all),
    }
}
