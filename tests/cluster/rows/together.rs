//! All nodes die at once under load, and again when they have hardly begun: soon after they are back every row can be read and
//! written, and nothing is lost.

use std::time::{Duration, Instant};

use databases::Engine;

use super::watch::Watch;
use super::{RESUMED, Rig, TABLE, Traffic, keys};
use crate::client::Fate;
use crate::{Dice, given, seed};

/// One read, when all nodes have been back for so long that rows are written again.
const READ: Duration = Duration::from_secs(10);

#[test]
fn all_nodes_die_at_once_and_every_row_is_there_again() {
    let seconds = given("NEOKV_SECONDS");
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(1));
    let mut dice = Dice::new(seed());
    let settings = "--log-size 64kb --log-keep-entries 50";
    let settings: Vec<&str> = settings.split(' ').collect();
    let Some(mut rig) = Rig::start(Engine::Postgres, &settings) else {
        return;
    };
    let mut round = 0;
    while round == 0 || Instant::now() < until {
        round += 1;
        let keys = keys(round);
        let watch = Watch::start(&rig.url, TABLE, keys.clone());
        let (floors, dice_seed) = (watch.floors.clone(), dice.roll(1 << 30));
        let traffic = Traffic::start(&rig.cluster, keys.clone(), floors, dice_seed);
        traffic.until_written(RESUMED);
        for _ in 0..1 + dice.roll(3) {
            rig.rest(Duration::from_millis(dice.roll(1500)));
            (1..=3).for_each(|number| rig.cluster.kill(number));
            let first = dice.roll(3) as usize;
            for n in 0..3 {
                rig.cluster.spawn((first + n) % 3 + 1);
                std::thread::sleep(Duration::from_millis(dice.roll(400)));
            }
        }
        let pause = traffic.until_written(RESUMED);
        let mut client = rig.cluster.client();
        client.timeout = READ;
        let began = Instant::now();
        let mut slowest = Duration::ZERO;
        for key in keys.iter() {
            let asked = Instant::now();
            // Whoever was told to go elsewhere, or that nobody leads, asks again; silence is what must not be.
            loop {
                let why = match client.ask(key, &["HGETALL", key]) {
                    Fate::Done(_) => break,
                    Fate::Unknown(why) | Fate::Refused(why) | Fate::Surprise(why) => why,
                };
                assert!(asked.elapsed() < 2 * READ, "{key} cannot be read: {why}");
                std::thread::sleep(Duration::from_millis(20));
            }
            slowest = slowest.max(asked.elapsed());
        }
        eprintln!(
            "round {round}: written after {pause:?}, all read in {:?}, the slowest in {slowest:?}",
            began.elapsed()
        );
        rig.verify(&keys, traffic, watch);
    }
}
