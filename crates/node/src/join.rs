//! How a process becomes a node of a cluster: who it is by its rows, and the first join of one that has
//! no id yet.
//!
//! ```text
//!   "self" row ─► Start ─► has an id ─────────────────────────────► Heartbeats
//!                      └─► none yet ─► Newcomer: asks until meta gives one ─┘
//! ```
//!
//! What a node is called is on disk before anybody else hears it: the number of this start and the token
//! before the first join, the id before the first heartbeat.

use std::collections::VecDeque;

use base::cluster::NodeId;
use keyspace::rows::RowStore;
use meta::state::{Found, Settings};
use meta::wire::{Address, Join, JoinAnswer, Profile};

use crate::{Identity, MetaRecord};

/// Between two rounds of questions.
const ASK_AGAIN_MS: u64 = 500;
const TELL_AGAIN_MS: u64 = 5_000;

/// What the node was started with.
#[derive(Debug, Clone, Copy)]
pub struct StartOptions {
    /// It is to found a cluster (`--cluster-init`).
    pub founds: bool,
    /// It was told whom to ask (`--join`).
    pub joins: bool,
}

/// Who a node is, from this start on.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// Without a node id, if no cluster has let it in yet ([`Newcomer`]).
    pub identity: Identity,
    /// It founds a cluster, and may have begun to at an earlier start.
    pub is_founder: bool,
    /// Of this start: a join that is tried again is the same join.
    pub token: u64,
}

impl Start {
    /// Reads who the node is, and counts this start; durable when it returns. `draw` gives random numbers.
    pub fn begin(
        options: StartOptions,
        rows: &dyn RowStore,
        pause: fn(),
        mut draw: impl FnMut() -> u64,
    ) -> Result<Start, String> {
        let known = Identity::read(rows)?;
        let is_new = known.is_none();
        let mut identity = known.unwrap_or_else(|| Identity {
            token: draw() | 1,
            ..Identity::default()
        });
        identity.start_count += 1;
        let mut is_founder = MetaRecord::is_founding(rows)?;
        if is_new && options.founds {
            identity.cluster = draw() | 1;
            identity.node = 1;
            is_founder = true;
            MetaRecord::of_founder().keep(rows, pause)?;
        } else if is_new && !options.joins {
            return Err("a new cluster node needs --cluster-init or --join".into());
        } else if !is_new && identity.cluster == 0 && options.founds {
            return Err(
                "the data directory is that of a node that was to join a cluster (--join); use an \
                 empty one to found a new cluster"
                    .into(),
            );
        }
        identity.keep(rows, pause)?;
        // By start and token meta knows this process again: it will register as a newcomer, or as the founder.
        // That need not be the directory's first start, if nobody let it in before.
        let token = match identity.node == 0 || is_founder {
            true => identity.token,
            false => draw() | 1,
        };
        Ok(Start {
            identity,
            is_founder,
            token,
        })
    }

    /// What a founder proposes first.
    pub fn founding(&self, settings: Settings, profile: Profile) -> Found {
        Found {
            cluster: self.identity.cluster,
            settings,
            join: Join {
                cluster: self.identity.cluster,
                node: 0,
                token: self.identity.token,
                start_count: self.identity.start_count,
                profile,
                replace: 0,
            },
        }
    }
}

/// A node that no cluster has let in yet: it asks all it knows of, again and again.
pub struct Newcomer {
    identity: Identity,
    join: Join,
    /// Whom it was told of, and whom they told it of.
    addresses: Vec<String>,
    /// Who is still to be asked in this round.
    round: VecDeque<String>,
    /// Why it is not in.
    why: String,
    /// The cluster has said so, in this round.
    is_refused: bool,
    began_ms: u64,
    told_ms: u64,
}

/// What a newcomer does next.
#[derive(Debug, PartialEq)]
pub enum NewcomerStep {
    /// Send the join to this address; then `on_answer` or `on_no_answer`, and the next step.
    Ask(String),
    /// Wait so long for the next step. If the user should hear of it: since when, and why.
    Wait {
        ms: u64,
        tell: Option<(u64, String)>,
    },
}

impl Newcomer {
    /// `replace`: the node whose place it takes, 0 for none.
    pub fn new(
        identity: Identity,
        profile: Profile,
        addresses: Vec<String>,
        replace: NodeId,
        clock_ms: u64,
    ) -> Newcomer {
        Newcomer {
            join: Join {
                cluster: 0,
                node: 0,
                token: identity.token,
                start_count: identity.start_count,
                profile,
                replace,
            },
            identity,
            round: addresses.clone().into(),
            addresses,
            why: "nobody answers".into(),
            is_refused: false,
            began_ms: clock_ms,
            told_ms: clock_ms,
        }
    }

    /// What is asked.
    pub fn join(&self) -> &Join {
        &self.join
    }

    pub fn step(&mut self, clock_ms: u64) -> NewcomerStep {
        if let Some(address) = self.round.pop_front() {
            return NewcomerStep::Ask(address);
        }
        self.round = self.addresses.clone().into();
        let is_due = clock_ms.saturating_sub(self.told_ms) > TELL_AGAIN_MS;
        let tell = is_due.then(|| {
            self.told_ms = clock_ms;
            (clock_ms.saturating_sub(self.began_ms), self.why.clone())
        });
        self.is_refused = false;
        let ms = ASK_AGAIN_MS;
        NewcomerStep::Wait { ms, tell }
    }

    /// Who the node is now, durable; none, if somebody else has to be asked. Fails if the cluster refuses it,
    /// or if it cannot be kept.
    pub fn on_answer(
        &mut self,
        answer: JoinAnswer,
        rows: &dyn RowStore,
        pause: fn(),
    ) -> Result<Option<Identity>, String> {
        if answer.node != 0 {
            let identity = &mut self.identity;
            identity.cluster = answer.cluster;
            identity.node = answer.node;
            identity.meta = answer.meta.iter().map(Address::to_string).collect();
            identity.keep(rows, pause)?;
            return Ok(Some(identity.clone()));
        }
        if !answer.refused.is_empty() {
            if !answer.retry {
                return Err(format!("the cluster refuses this node: {}", answer.refused));
            }
            self.why = answer.refused;
            self.is_refused = true;
        }
        let more = answer.leader.iter().chain(&answer.meta);
        for address in more.map(Address::to_string) {
            if !self.addresses.contains(&address) {
                self.addresses.push(address);
            }
        }
        Ok(None)
    }

    /// Somebody did not answer: worth a word unless the cluster itself has said why not.
    pub fn on_no_answer(&mut self, why: String) {
        if !self.is_refused {
            self.why = why;
        }
    }
}

#[cfg(test)]
mod tests {
    use keyspace::rows::MapStore;

    use super::*;

    const JOINS: StartOptions = StartOptions {
        founds: false,
        joins: true,
    };
    const FOUNDS: StartOptions = StartOptions {
        founds: true,
        joins: false,
    };
    const NEITHER: StartOptions = StartOptions {
        founds: false,
        joins: false,
    };

    fn begin(options: StartOptions, rows: &MapStore, drawn: &mut u64) -> Result<Start, String> {
        Start::begin(
            options,
            rows,
            || {},
            || {
                *drawn += 2;
                *drawn
            },
        )
    }

    #[test]
    fn a_founder_keeps_its_token_until_it_has_founded() {
        let (rows, mut drawn) = (MapStore::new(), 0);
        assert!(begin(NEITHER, &rows, &mut drawn).is_err());
        let first = begin(FOUNDS, &rows, &mut drawn).unwrap();
        assert!(first.is_founder);
        assert_eq!((first.identity.node, first.identity.start_count), (1, 1));
        assert_ne!(first.identity.cluster, 0);
        let again = begin(FOUNDS, &rows, &mut drawn).unwrap();
        assert!(again.is_founder);
        assert_eq!(again.identity.start_count, 2);
        assert_eq!(again.token, first.identity.token);
        let found = again.founding(Settings::default(), Profile::default());
        assert_eq!(found.cluster, first.identity.cluster);
        assert_eq!((found.join.token, found.join.start_count), (first.token, 2));
        let founded = MetaRecord {
            state: vec![1].into(),
            ..MetaRecord::of_founder()
        };
        founded.keep(&rows, || {}).unwrap();
        let later = begin(NEITHER, &rows, &mut drawn).unwrap();
        assert!(!later.is_founder);
        assert_ne!(later.token, first.token);
    }

    #[test]
    fn a_newcomer_keeps_its_token_until_it_is_let_in() {
        let (rows, mut drawn) = (MapStore::new(), 0);
        let first = begin(JOINS, &rows, &mut drawn).unwrap();
        assert_eq!(first.identity.node, 0);
        assert!(begin(FOUNDS, &rows, &mut drawn).is_err());
        let second = begin(NEITHER, &rows, &mut drawn).unwrap();
        assert_eq!(second.token, first.token);
        assert_eq!(second.identity.start_count, 2);

        let mut newcomer = Newcomer::new(
            second.identity,
            Profile::default(),
            vec!["a:1".into(), "b:1".into()],
            0,
            1000,
        );
        let ask = |address: &str| NewcomerStep::Ask(address.into());
        let wait = NewcomerStep::Wait {
            ms: ASK_AGAIN_MS,
            tell: None,
        };
        assert_eq!(newcomer.step(1000), ask("a:1"));
        let elsewhere = JoinAnswer {
            retry: true,
            leader: Some(Address::new("c", 1)),
            meta: vec![Address::new("b", 1), Address::new("c", 1)],
            ..JoinAnswer::default()
        };
        let on_answer = |newcomer: &mut Newcomer, answer| newcomer.on_answer(answer, &rows, || {});
        assert_eq!(on_answer(&mut newcomer, elsewhere), Ok(None));
        assert_eq!(newcomer.step(1001), ask("b:1"));
        newcomer.on_no_answer("nothing there".into());
        assert_eq!(newcomer.step(2000), wait);
        let round = [0; 3].map(|_| newcomer.step(2500));
        assert_eq!(round, ["a:1", "b:1", "c:1"].map(ask));
        let told = Some((5001, "nothing there".into()));
        let telling = NewcomerStep::Wait {
            ms: ASK_AGAIN_MS,
            tell: told,
        };
        assert_eq!(newcomer.step(6001), telling);

        let refused = |retry| JoinAnswer {
            refused: "no room".into(),
            retry,
            ..JoinAnswer::default()
        };
        assert_eq!(on_answer(&mut newcomer, refused(true)), Ok(None));
        assert!(on_answer(&mut newcomer, refused(false)).is_err());
        assert_eq!(newcomer.join().token, first.token);
        let accepted = JoinAnswer {
            node: 7,
            cluster: 5,
            meta: vec![Address::new("c", 1)],
            ..JoinAnswer::default()
        };
        let identity = on_answer(&mut newcomer, accepted).unwrap();
        assert_eq!(identity, Identity::read(&rows).unwrap());
        let identity = identity.unwrap();
        assert_eq!((identity.cluster, identity.node), (5, 7));
        assert_eq!(identity.meta, ["c:1"]);
        let later = begin(NEITHER, &rows, &mut drawn).unwrap();
        assert_ne!(later.token, first.token);
    }
}
