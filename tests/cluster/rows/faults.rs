//! What can happen to the database, and to a leader that has just sent it something.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use databases::Engine;

use super::traffic::Traffic;
use super::{RESUMED, Rig, TABLE};
use crate::client::Fate;
use crate::{Dice, storm};

/// A transaction of somebody else, open until this is dropped.
pub struct Lock(Child);

impl Lock {
    fn take(engine: Engine, url: &str, statement: &str) -> Lock {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        match engine {
            Engine::Postgres => command.args(["psql", "-q", url]),
            Engine::Mariadb => {
                let socket = url.rsplit_once("socket=").map_or("", |(_, path)| path);
                command.args([
                    "mariadb",
                    "-u",
                    "root",
                    "--database",
                    "test",
                    "--socket",
                    socket,
                ])
            }
        };
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.expect("psql, mariadb");
        // Nobody waits for it: it may have to wait itself, or the database may be away.
        if let Some(stdin) = &mut child.stdin {
            let _ = writeln!(stdin, "BEGIN; {statement};");
            let _ = stdin.flush();
        }
        Lock(child)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Rig {
    /// One more fault of the database.
    pub fn strike_database(&mut self, dice: &mut Dice) {
        self.calm_database();
        let what = match dice.roll(6) {
            0 => {
                self.database.kill();
                "killed"
            }
            1 => {
                self.database.restart();
                "killed and started again at once"
            }
            2 => {
                self.database.pause();
                "stands still"
            }
            3 => {
                self.is_slow = true;
                "slow"
            }
            4 => {
                self.lock("SELECT * FROM things FOR UPDATE");
                "its rows are locked"
            }
            _ => {
                self.lock(match self.engine {
                    Engine::Postgres => "LOCK TABLE things IN ACCESS EXCLUSIVE MODE",
                    Engine::Mariadb => "LOCK TABLES things WRITE",
                });
                "its table is locked"
            }
        };
        eprintln!("  database: {what}");
    }

    fn lock(&mut self, statement: &str) {
        let statement = statement.replace("things", TABLE);
        self.lock = Some(Lock::take(self.engine, &self.url, &statement));
    }

    /// Lets it go on for a while.
    pub fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        while self.is_slow && Instant::now() < until {
            self.database.pause();
            std::thread::sleep(Duration::from_millis(120));
            self.database.resume();
            std::thread::sleep(Duration::from_millis(40));
        }
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }

    fn calm_database(&mut self) {
        self.lock = None;
        self.is_slow = false;
        match self.database.is_running() {
            true => self.database.resume(),
            false => self.database.restart(),
        }
    }

    /// Everything works again.
    pub fn calm(&mut self) {
        self.calm_database();
        storm::calm(&mut self.cluster);
    }

    /// A leader stands still with statements on their way to SQL, until its successor has written there; then it goes on
    /// where it was.
    pub fn depose(&mut self, traffic: &Traffic, round: usize) {
        traffic.until_written(RESUMED);
        let key = format!("{TABLE}:deposed{round}");
        let mut client = self.cluster.client();
        let put = ["HSET", &key, "n", "1"];
        let wait = ["ROW.WAITSQL", &key, "TIMEOUT", "1500"];
        let mut ask = |words: [&str; 4]| client.ask(&key, &words);
        let leader = self.cluster.leader_of(&key);
        self.database.pause();
        // Time enough for a flush to be sent.
        self.rest(Duration::from_millis(200));
        self.cluster.pause(leader);
        self.database.resume();
        eprintln!("  node {leader}: stands still with statements under way");
        let began = Instant::now();
        traffic.until_written(RESUMED);
        self.cluster
            .until("its successor changes a row", |_| match ask(put) {
                Fate::Done(_) => Ok(()),
                why => Err(format!("{why:?}")),
            });
        self.cluster
            .until("its successor has written to SQL", |_| match ask(wait) {
                Fate::Done(_) => Ok(()),
                why => Err(format!("{why:?}")),
            });
        eprintln!("  its successor wrote to SQL after {:?}", began.elapsed());
        self.cluster.resume(leader);
        self.rest(Duration::from_millis(300));
        traffic.until_written(RESUMED);
    }
}
