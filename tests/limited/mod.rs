//! A server with `maxmemory`, and keys of 1000 bytes written to it while its memory is looked at.

use std::thread;
use std::time::{Duration, Instant};

use redis::{Commands, Connection, RedisResult};

use crate::process::Server;

/// Keys written between two looks.
pub const BATCH: usize = 100;
pub const OOM: &str = "command not allowed when used memory > 'maxmemory'";

pub struct Limited {
    pub server: Server,
    pub client: Connection,
    /// The field of INFO that is limited, to how many bytes, and what may be above that for a moment.
    pub field: &'static str,
    pub limit: u64,
    pub slack: u64,
    /// Upkeep brings it below the limit. (In memory the next write does.)
    pub falls_by_itself: bool,
}

impl Limited {
    /// Writes `group:0`, `group:1`, … until `count` are written or one is refused; how many were written.
    pub fn write(&mut self, group: &str, count: usize, ttl_seconds: Option<u64>) -> usize {
        self.write_and(group, count, ttl_seconds, |_| {})
    }

    pub fn write_and(
        &mut self,
        group: &str,
        count: usize,
        ttl_seconds: Option<u64>,
        mut between: impl FnMut(&mut Connection),
    ) -> usize {
        let value = "v".repeat(1000);
        for start in (0..count).step_by(BATCH) {
            let mut pipe = redis::pipe();
            for i in start..count.min(start + BATCH) {
                let key = format!("{group}:{i}");
                match ttl_seconds {
                    Some(ttl) => pipe.set_ex(key, &value, ttl + i as u64).ignore(),
                    None => pipe.set(key, &value).ignore(),
                };
            }
            if let Err(error) = pipe.query::<()>(&mut self.client) {
                assert!(error.to_string().contains(OOM), "{error}");
                return self.stay(group, count);
            }
            let (bytes, limit) = (self.bytes(), self.limit);
            assert!(
                bytes < limit + self.slack,
                "{bytes} bytes, the limit is {limit}"
            );
            between(&mut self.client);
        }
        count
    }

    /// What is limited, now.
    pub fn bytes(&mut self) -> u64 {
        info(&mut self.client, "memory", self.field)
    }

    /// How many of a group's keys are there.
    pub fn stay(&mut self, group: &str, count: usize) -> usize {
        let keys: Vec<String> = (0..count).map(|i| format!("{group}:{i}")).collect();
        let mut exists = redis::cmd("EXISTS");
        exists.arg(&keys).query(&mut self.client).unwrap()
    }

    pub fn size(&mut self) -> u64 {
        redis::cmd("DBSIZE").query(&mut self.client).unwrap()
    }

    pub fn evicted(&mut self) -> u64 {
        info(&mut self.client, "stats", "evicted_keys")
    }

    /// Every key written is there or counted as evicted.
    pub fn check_count(&mut self, written: u64) {
        if self.falls_by_itself {
            self.until_below();
        }
        eventually("each key is there or counted", || {
            let (there, evicted) = (self.size(), self.evicted());
            assert!(evicted > 0);
            (there + evicted == written).then_some(())
        });
    }

    pub fn until_below(&mut self) {
        eventually("the data set is below the limit", || {
            (self.bytes() <= self.limit).then_some(())
        });
    }

    /// Nothing is left to give up: writes are refused, reads and removals are not.
    pub fn check_full(&mut self) {
        let refused: RedisResult<()> = self.client.set("one-more", "v".repeat(1000));
        assert!(refused.unwrap_err().to_string().contains(OOM));
        let size: usize = self.client.strlen("keep:0").unwrap();
        assert_eq!(size, 1000);
        let keys: Vec<String> = (0..1000).map(|i| format!("keep:{i}")).collect();
        let removed: usize = self.client.del(keys).unwrap();
        assert_eq!(removed, 1000);
        let _: () = self.client.set("one-more", "v").unwrap();
    }
}

pub fn connect(server: &Server) -> Connection {
    let url = format!("redis://127.0.0.1:{}/", server.port);
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

pub fn config_set(client: &mut Connection, name: &str, value: &str) {
    let mut command = redis::cmd("CONFIG");
    let command = command.arg("SET").arg(name).arg(value);
    command.query::<()>(client).unwrap();
}

pub fn info(client: &mut Connection, section: &str, field: &str) -> u64 {
    let text: String = redis::cmd("INFO").arg(section).query(client).unwrap();
    number(&text, field)
}

pub fn number(info: &str, field: &str) -> u64 {
    let mut lines = info.lines();
    let line = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap().parse().unwrap()
}

pub fn read(client: &mut Connection, group: &str, count: usize) {
    let keys: Vec<String> = (0..count).map(|i| format!("{group}:{i}")).collect();
    let _: Vec<Option<String>> = client.mget(keys).unwrap();
}

pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: never");
        thread::sleep(Duration::from_millis(20));
    }
}

/// What each policy keeps: the same on both engines.
impl Limited {
    pub fn check_hot_keys_stay(&mut self, cold: usize) {
        self.write("hot", 400, None);
        self.write("cold", cold, None);
        thread::sleep(Duration::from_millis(1100)); // the clock of accesses counts seconds
        read(&mut self.client, "hot", 400);
        self.write_and("new", 4000, None, |client| read(client, "hot", 400));
        self.check_count(4400 + cold as u64);
        let (hot, left) = (self.stay("hot", 400), self.stay("cold", cold));
        assert!(hot >= 380, "{hot} of 400 hot keys stay");
        assert!(left < cold * 62 / 100, "{left} of {cold} cold keys stay");
    }

    pub fn check_keys_used_often_stay(&mut self) {
        self.write("hot", 400, None);
        for _ in 0..10 {
            read(&mut self.client, "hot", 400);
        }
        self.write("new", 12_000, None);
        self.check_count(12_400);
        let hot = self.stay("hot", 400);
        assert!(hot >= 380, "{hot} of 400 hot keys stay");
    }

    pub fn check_any_key_goes(&mut self) {
        self.write("old", 4000, None);
        self.write("new", 8000, Some(1000));
        self.check_count(12_000);
        let (old, new) = (self.stay("old", 4000), self.stay("new", 8000));
        assert!((100..3500).contains(&old), "{old}");
        assert!((1000..7000).contains(&new), "{new}");
    }

    pub fn check_only_volatile_keys_go(&mut self) {
        self.write("keep", 2000, None);
        self.write("short", 6000, Some(1000));
        self.check_count(8000);
        assert_eq!(self.stay("keep", 2000), 2000);
        // More and more stay, until there is nothing else.
        let more = self.write("more", 20_000, None);
        assert!((2000..6000).contains(&more), "{more}");
        assert_eq!(self.stay("short", 6000), 0);
        assert_eq!(self.stay("keep", 2000), 2000);
        self.check_full();
    }
}
