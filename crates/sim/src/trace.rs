//! What happened, as one number: two runs with the same trace hash did the same.
//!
//! Words go into the hash always; the text of an event is made only in a run that is going to be
//! read.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::FixedState;

const SEED: u64 = 0x6e65_6f6b_7600;

/// The same bytes give the same number, in every run.
pub fn hash_of(parts: &[&[u8]]) -> u64 {
    let mut hasher = FixedState::with_seed(SEED).build_hasher();
    for part in parts {
        hasher.write_usize(part.len());
        hasher.write(part);
    }
    hasher.finish()
}

#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    events: u64,
    /// Texts of events, if wanted.
    texts: Option<Vec<String>>,
}

impl Trace {
    pub fn new(with_texts: bool) -> Trace {
        Trace {
            hash: 0,
            events: 0,
            texts: with_texts.then(Vec::new),
        }
    }

    /// Something happened: what tells it from everything else, and how to say it.
    pub fn note(&mut self, at_us: u64, words: &[u64], text: impl FnOnce() -> String) {
        let mut hasher = FixedState::with_seed(self.hash).build_hasher();
        hasher.write_u64(at_us);
        words.iter().for_each(|&word| hasher.write_u64(word));
        self.hash = hasher.finish();
        self.events += 1;
        if let Some(texts) = &mut self.texts {
            let (seconds, micros) = (at_us / 1_000_000, at_us % 1_000_000);
            texts.push(format!("{seconds:3}.{micros:06} {}", text()));
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn events(&self) -> u64 {
        self.events
    }

    pub fn into_texts(self) -> Vec<String> {
        self.texts.unwrap_or_default()
    }
}
