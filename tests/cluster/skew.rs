//! Clocks minutes apart: nothing is lost, keys live as long as they should whoever leads, and it is said.

use std::time::Duration;

use crate::client::{Fate, text};
use crate::kill::RESUMED;
use crate::nodes::{Cluster, Plan};
use crate::seed;
use crate::traffic::Traffic;
use crate::wire::Value;

const MINUTES: &str = "300000";

fn answer(cluster: &Cluster, key: &str, words: &[&str]) -> Value {
    let mut found = Value::Nil;
    cluster.until("it is answered", |cluster| {
        match cluster.client().ask(key, words) {
            Fate::Done(mut replies) => {
                found = replies.remove(0);
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    });
    found
}

#[test]
fn clocks_that_differ_lose_nothing() {
    let mut cluster = Cluster::empty(None, Plan::default());
    for (number, skew) in [(1, "0"), (2, MINUTES), (3, "-300000")] {
        cluster.add_down(number);
        cluster.set_environment(number, "NEOKV_TEST_SKEW_MS", skew);
        cluster.restart(number);
    }
    cluster.until_healthy();
    if cfg!(debug_assertions) {
        cluster.until_logged(2, "s ahead of that of the meta");
        cluster.until_logged(3, "s behind that of the meta");
    }
    let traffic = Traffic::start(&cluster, "skew", 3, seed());
    // Shorter than the clocks are apart.
    let keys: Vec<String> = (0..20).map(|n| format!("lives{n}")).collect();
    for number in [2, 3] {
        for key in &keys {
            answer(&cluster, key, &["SET", key, "alive", "EX", "280"]);
        }
        cluster.kill(number);
        traffic.until_written(RESUMED);
        for key in &keys {
            let found = answer(&cluster, key, &["GET", key]);
            assert_eq!(
                text(&found).as_deref(),
                Some("alive"),
                "{key} without {number}"
            );
            let left = answer(&cluster, key, &["PTTL", key]);
            assert!(
                matches!(left, Value::Int(100_000..=285_000)),
                "{key} without {number}: {left:?} of 280 s"
            );
        }
        cluster.restart(number);
        cluster.until_healthy();
    }
    traffic.run(Duration::from_millis(300));
    traffic.finish(&cluster);
}
