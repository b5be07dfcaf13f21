//! What commands see of a sorted set, and its changes.

use base::{IntText, Refusal};

use super::Zset;
use crate::{Edit, Txn, View};

impl View<'_> {
    /// The sorted set at `key`; as [`View::string`].
    pub fn zset(&self, key: &[u8]) -> Result<Option<&Zset>, Refusal> {
        self.collection(key)
    }
}

impl Txn<'_> {
    /// The sorted set at `key` to be changed; `None` if there is none.
    pub fn zset_mut(&mut self, key: &[u8]) -> Result<Option<Edit<'_, Zset>>, Refusal> {
        self.collection_mut(key)
    }

    /// As [`Txn::zset_mut`], an empty one being made if there is none.
    pub fn zset_or_new(&mut self, key: &[u8]) -> Result<Edit<'_, Zset>, Refusal> {
        self.collection_or_new(key)
    }
}

impl Edit<'_, Zset> {
    /// Sets the score of a member, adding it if new; its former score.
    pub fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let (zset, tuning) = self.parts();
        let former = zset.insert(member, score, tuning);
        self.note_score(member, former, Some(score));
        former
    }

    /// Notes that a member has another score, unless it has the former one still.
    #[inline]
    fn note_score(&mut self, member: &[u8], former: Option<f64>, score: Option<f64>) {
        let Some(score) = score.filter(|_| former != score) else {
            return;
        };
        if let Some((mut rows, _)) = self.recorder() {
            rows.put_score(member, former, score);
        }
        self.mark(1);
    }

    /// Changes the score of a member to what `decide` makes of the former one; see [`Zset::update`].
    pub fn update(
        &mut self,
        member: &[u8],
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> (Option<f64>, Option<f64>) {
        let (zset, tuning) = self.parts();
        let (former, score) = zset.update(member, tuning, decide);
        self.note_score(member, former, score);
        (former, score)
    }

    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let former = self.parts().0.remove(member);
        if let Some(former) = former
            && let Some((mut rows, _)) = self.recorder()
        {
            rows.delete_score(member, former);
        }
        self.mark(usize::from(former.is_some()));
        former
    }

    pub fn remove_range(&mut self, ranks: std::ops::Range<usize>) {
        let n = ranks.len();
        if let Some((mut rows, zset)) = self.recorder() {
            let mut text = IntText::default();
            for (member, score) in zset.iter_from(ranks.start).take(n) {
                rows.delete_score(member.bytes(&mut text), score);
            }
        }
        self.parts().0.remove_range(ranks);
        self.mark(n);
    }
}
