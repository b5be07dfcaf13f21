//! How long a slot cannot be written after the node that leads it was killed.

use std::time::{Duration, Instant};

use crate::client::Fate;
use crate::given;
use crate::nodes::{Cluster, Plan};

/// What is promised, on a machine that has time for it: `make chaos` insists.
const PROMISED: Duration = Duration::from_secs(3);

#[test]
fn writes_go_on_after_the_leader_was_killed() {
    let (kills, is_long) = match given("NEOKV_FAILOVERS") {
        Some(kills) => (kills, true),
        None => (3, false),
    };
    let mut cluster = Cluster::start(Plan::default());
    let mut times = Vec::new();
    for kill in 0..kills {
        // Another slot each time.
        let key = format!("probe{kill}");
        let mut client = cluster.client();
        client.timeout = Duration::from_secs(1);
        cluster.until("the key is written", |_| {
            match client.ask(&key, &["SET", &key, "before"]) {
                Fate::Done(_) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        let leader = client.answered_by(&key).expect("it was answered");
        let leader = cluster.number_of(leader);
        cluster.kill(leader);
        let killed = Instant::now();
        while !matches!(client.ask(&key, &["SET", &key, "after"]), Fate::Done(_)) {
            assert!(
                killed.elapsed() < Duration::from_secs(30),
                "nobody leads {key}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        times.push(killed.elapsed());
        cluster.restart(leader);
        cluster.until_healthy();
    }
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_millis();
    let slow = times.iter().filter(|&&it| it > PROMISED).count();
    eprintln!(
        "SUMMARY failover over {kills} kills: min {} ms, median {} ms, p90 {} ms, max {} ms; {slow} above {PROMISED:?}",
        at(0),
        at(50),
        at(90),
        at(100)
    );
    assert!(
        !is_long || slow == 0,
        "{slow} of {kills} took longer: {times:?}"
    );
}
