//! Connections that have not shaken hands: few, for a short time, and never in the way of others.
//!
//! A node or `ctl` says its first message together with the connection, so it is a stranger for moments. Whoever says
//! nothing stays until the deadline, or until somebody new needs the place: then the oldest of them goes, of the
//! same source if that has too many. Those whose first message was right go last: it may be a replay, but it is
//! not easy to come by. So a thousand silent connections shut nobody out, and take the memory of a few hundred.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

#[derive(Default)]
pub struct Strangers {
    /// The oldest first.
    list: Mutex<Vec<Arc<Stranger>>>,
}

pub struct Stranger {
    source: IpAddr,
    /// Its first message was right.
    proved: Mutex<bool>,
    stop: CancellationToken,
}

/// A place among the strangers, until it is dropped.
pub struct Place<'a> {
    strangers: &'a Strangers,
    stranger: Arc<Stranger>,
}

impl Strangers {
    fn list(&self) -> MutexGuard<'_, Vec<Arc<Stranger>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection; another one may lose its own: then `true`.
    pub fn enter(&self, source: IpAddr, max: usize, of_source_max: usize) -> (Place<'_>, bool) {
        let mut list = self.list();
        let of_source = list.iter().filter(|it| it.source == source).count();
        let from_here = of_source >= of_source_max;
        let ended = (from_here || list.len() >= max)
            .then(|| victim(&list, from_here.then_some(source)))
            .flatten();
        if let Some(at) = ended {
            list.remove(at).stop.cancel();
        }
        let stranger = Arc::new(Stranger {
            source,
            proved: Mutex::new(false),
            stop: CancellationToken::new(),
        });
        list.push(stranger.clone());
        let place = Place {
            strangers: self,
            stranger,
        };
        (place, ended.is_some())
    }
}

/// The oldest that has proved nothing, or else the oldest.
fn victim(list: &[Arc<Stranger>], source: Option<IpAddr>) -> Option<usize> {
    let of_source = |it: &Stranger| source.is_none_or(|source| it.source == source);
    let is_silent = |it: &Arc<Stranger>| of_source(it) && !it.has_proved();
    let silent = list.iter().position(is_silent);
    silent.or_else(|| list.iter().position(|it| of_source(it)))
}

impl Stranger {
    fn has_proved(&self) -> bool {
        *self.proved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    pub fn prove(&self) {
        let proved = self.stranger.proved.lock();
        *proved.unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Returns when somebody else got the place.
    pub async fn lost(&self) {
        self.stranger.stop.cancelled().await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut list = self.strangers.list();
        list.retain(|it| !Arc::ptr_eq(it, &self.stranger));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_silent_one_of_a_crowded_source_goes() {
        let strangers = Strangers::default();
        let ip = |n: u8| IpAddr::from([10, 0, 0, n]);
        let enter = |n| strangers.enter(ip(n), 4, 2);
        let (first, _) = enter(1);
        let (second, ended) = enter(1);
        assert!(!ended);
        first.prove();
        let (third, ended) = enter(1);
        assert!(ended, "the second: the first has proved something");
        assert!(second.stranger.stop.is_cancelled());
        assert!(!first.stranger.stop.is_cancelled());
        let (_other, ended) = enter(2);
        assert!(!ended, "another source has its own places");
        let (_last, ended) = enter(3);
        assert!(!ended);
        let (_one_more, ended) = enter(4);
        assert!(ended, "all places are taken");
        assert!(third.stranger.stop.is_cancelled());
        drop((first, second));
        assert_eq!(strangers.list().len(), 3);
    }
}
