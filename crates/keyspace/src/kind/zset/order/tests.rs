//! The tree against a sorted vector, with its invariants looked at on the way.

use super::*;

impl Bytes for &'static [u8] {
    fn bytes(&self) -> &[u8] {
        self
    }
    fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(*self, *other)
    }
}

fn check(node: &Node<&'static [u8]>) -> usize {
    assert!(node.width().0 > 0);
    if let Node::Inner(inner) = node {
        let depths: Vec<usize> = (0..inner.least.len())
            .map(|at| {
                let child = inner.children[at].as_ref().unwrap();
                assert_eq!(inner.counts[at], child.count());
                let (least, below) = (inner.least.get(at), child.least());
                assert_eq!((least.score, least.member), (below.score, below.member));
                check(child)
            })
            .collect();
        assert!(inner.children[depths.len()..].iter().all(Option::is_none));
        assert!(depths.iter().all(|&depth| depth == depths[0]));
        return depths[0] + 1;
    }
    0
}

fn all(order: &Order<&'static [u8]>) -> Vec<(i64, &'static [u8])> {
    let up: Vec<_> = order
        .iter_from(0)
        .map(|(score, member)| (score as i64, *member))
        .collect();
    let mut down: Vec<_> = order
        .iter_rev_from(order.len().wrapping_sub(1))
        .map(|(score, member)| (score as i64, *member))
        .collect();
    down.reverse();
    assert_eq!(up, down);
    up
}

#[test]
fn agrees_with_a_sorted_vector() {
    let members: Vec<&'static [u8]> = (0..40)
        .map(|n| &*Vec::leak(format!("m{n}").into_bytes()))
        .collect();
    let mut rng = fastrand::Rng::with_seed(7);
    for round in 0..6 {
        let mut order = Order::new();
        let mut model = std::collections::BTreeSet::new();
        for step in 0..20_000 {
            // In order, at random over few scores, or at random over many.
            let score = [step, rng.i64(0..100), rng.i64(0..1_000_000)][round % 3];
            let member = members[rng.usize(0..40)];
            if model.insert((score, member)) {
                order.insert(Entry {
                    score: score as f64,
                    member,
                });
            }
            if rng.u8(0..4) == 0 {
                // Moves: some within a leaf, some far.
                let &(score, member) = model.iter().nth(rng.usize(0..model.len())).unwrap();
                let by = [1, 2, 5_000][rng.usize(0..3)];
                let to = score + rng.i64(-by..=by);
                if model.insert((to, member)) {
                    model.remove(&(score, member));
                    let entry = Entry {
                        score: score as f64,
                        member,
                    };
                    order.set_score(&entry, to as f64);
                }
            }
            if rng.u8(0..4) == 0 {
                let at = rng.usize(0..model.len());
                let Some(&(score, member)) = model.iter().nth(at.min(50)) else {
                    continue;
                };
                model.remove(&(score, member));
                assert!(order.remove(&Entry {
                    score: score as f64,
                    member,
                }));
            }
        }
        order.root.as_ref().map(check);
        assert_eq!(all(&order), model.iter().copied().collect::<Vec<_>>());
        let mut sorted: Vec<_> = model.into_iter().collect();
        while !sorted.is_empty() {
            let start = rng.usize(0..sorted.len());
            let most = (sorted.len() - start).min(sorted.len() / 3 + 2);
            let end = start + rng.usize(0..=most);
            let mut gone = 0;
            order.remove_range(start..end, &mut |_| gone += 1);
            assert_eq!(gone, end - start);
            sorted.drain(start..end);
            order.root.as_ref().map(check);
            assert_eq!(all(&order), sorted);
            if let Some(&(score, member)) = sorted.get(start) {
                let entry = Entry {
                    score: score as f64,
                    member,
                };
                assert_eq!(order.rank(&entry), start);
                for (equal, end) in [(false, 0), (true, 1)] {
                    assert_eq!(
                        order.count_scores(entry.score, equal),
                        sorted.partition_point(|&(other, _)| other < score + end)
                    );
                }
            }
        }
    }
}

#[test]
fn arrivals_in_order_fill_the_leaves() {
    let mut order = Order::new();
    for n in 0..10_000 {
        order.insert(Entry {
            score: f64::from(n),
            member: &b"m"[..],
        });
    }
    assert!(order.memory_usage().0 < 10_000 * 26);
}
