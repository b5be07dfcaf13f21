//! What the machine gives this process: memory, as far as a control group allows, and file descriptors.
//!
//! Descriptors are shared out at start: some for the store, some for everything else a node opens (log files, peers, SQL, HTTP,
//! its threads), the rest for clients. A node that runs out refuses clients; its log and its store never find none.

use std::path::Path;
use std::sync::OnceLock;

use super::{Engine, Settings, list};

/// Descriptors that any node needs besides those of clients.
const PROCESS: u64 = 32;
/// Of the poller and the listeners of a core.
const PER_CORE: u64 = 4;
/// Log files, peers and SQL connections of a node that keeps its data.
const DURABLE: u64 = 128;
/// Fewest files a store begins with.
const LEAST_STORE: u64 = 64;
/// With fewer descriptors than this an operator of a durable node is told: RocksDB keeps all its files open (its change feed asks
/// for that), and each has about 32 MiB.
const ENOUGH: u64 = 8192;
/// Nobody needs more; the kernel's tables grow with the number.
const MOST: u64 = 1 << 20;
/// No client gets one of the last descriptors, whatever took the others. (On a durable node more: the store still grows.)
const LAST: u64 = 24;
/// Most connections of HTTP.
const MOST_HTTP: u64 = 1024;

/// How the descriptors of the process are shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// A client whose descriptor is not below this one is refused.
    pub clients_below: u64,
    /// Most `maxclients` may be.
    pub clients: usize,
    /// Most connections of HTTP at a time.
    pub http: usize,
    /// For files of the store.
    pub store: u64,
}

impl Default for Descriptors {
    /// Nobody has looked.
    fn default() -> Self {
        Descriptors {
            clients_below: u64::MAX,
            clients: usize::MAX,
            http: MOST_HTTP as usize,
            store: 0,
        }
    }
}

impl Descriptors {
    /// `limit` descriptors in all; an error says how many it takes to start.
    fn share(limit: u64, is_durable: bool, has_http: bool, cores: usize) -> Result<Self, u64> {
        let http = (limit / 16).min(MOST_HTTP);
        let mut others = PROCESS + PER_CORE * cores as u64;
        others += if is_durable { DURABLE } else { 0 };
        others += if has_http { http } else { 0 };
        let store = match is_durable {
            true => (limit / 4).max(LEAST_STORE),
            false => 0,
        };
        let clients = limit.saturating_sub(others + store);
        if clients == 0 {
            let least_store = if is_durable { LEAST_STORE } else { 0 };
            return Err(others + least_store + 1);
        }
        Ok(Descriptors {
            clients_below: limit - LAST.max(store / 2),
            clients: clients as usize,
            http: http.max(1) as usize,
            store,
        })
    }
}

impl Settings {
    /// Raises the limit on descriptors as far as the system allows and shares them out; `maxclients` is lowered to what is left
    /// for clients. In one line why the node cannot start.
    pub fn fit_descriptors(&mut self) -> Result<(), String> {
        let (before, limit) = raise_descriptor_limit();
        let is_durable = self.engine == Engine::Rocksdb;
        let (has_http, cores) = (self.http_port != 0, self.num_shards);
        let shared = Descriptors::share(limit, is_durable, has_http, cores);
        self.descriptors = shared.map_err(|least| {
            format!(
                "Your current 'ulimit -n' of {limit} is not enough for the server to start. Please increase your open file \
                 limit to at least {least}. Exiting."
            )
        })?;
        if limit > before {
            tracing::info!(
                "Increased maximum number of open files to {limit} (it was originally set to {before})."
            );
        }
        if is_durable && limit < ENOUGH {
            tracing::warn!(
                "With {limit} open files the data may grow to about {} GiB. For more, increase 'ulimit -n'.",
                (self.descriptors.store * 32).div_ceil(1024)
            );
        }
        let (asked, most) = (self.maxclients, self.descriptors.clients);
        if asked > most {
            let needed = limit - most as u64 + asked as u64;
            tracing::warn!(
                "You requested maxclients of {asked} requiring at least {needed} max file descriptors."
            );
            tracing::warn!(
                "Current maximum open files is {limit}. maxclients has been reduced to {most} to compensate for low ulimit. If \
                 you need higher maxclients increase 'ulimit -n'."
            );
            if let Some(row) = list::find("maxclients") {
                self.set(row, &most.to_string())?;
            }
            self.refresh();
        }
        Ok(())
    }
}

/// The limit on descriptors before and now: the most the system allows.
fn raise_descriptor_limit() -> (u64, u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the system writes one `rlimit` into a place of that type.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return (1024, 1024);
    }
    let before = limit.rlim_cur;
    let wanted = libc::rlimit {
        rlim_cur: limit.rlim_max.min(MOST).max(before),
        rlim_max: limit.rlim_max,
    };
    // SAFETY: the system reads one `rlimit`.
    let is_raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &wanted) } == 0;
    match is_raised {
        true => (before, wanted.rlim_cur),
        false => (before, before),
    }
}

/// Memory this process may have: of the machine, or of its control group if that has less. One gigabyte if nobody tells.
pub fn memory_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let machine = machine_bytes(&read(Path::new("/proc/meminfo")));
        let groups = read(Path::new("/proc/self/cgroup"));
        let group = group_files(&groups)
            .iter()
            .filter_map(|file| read(Path::new(file)).trim().parse::<usize>().ok())
            .min();
        group.map_or(machine, |group| group.clamp(1 << 20, machine))
    })
}

fn machine_bytes(meminfo: &str) -> usize {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    kib.unwrap_or(1024 * 1024usize) * 1024
}

/// Files that tell how much memory the control groups of `/proc/self/cgroup` may have: those of the groups themselves (version 2:
/// and of all around them), and of the root as a container sees it. What says `max` is no number.
fn group_files(groups: &str) -> Vec<String> {
    let mut files = vec![
        "/sys/fs/cgroup/memory.max".to_owned(),
        "/sys/fs/cgroup/memory/memory.limit_in_bytes".to_owned(),
    ];
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let path = path.trim_matches('/');
        if controllers.split(',').any(|it| it == "memory") {
            files.push(format!(
                "/sys/fs/cgroup/memory/{path}/memory.limit_in_bytes"
            ));
        } else if controllers.is_empty() {
            let mut folder = path;
            while !folder.is_empty() {
                files.push(format!("/sys/fs/cgroup/{folder}/memory.max"));
                folder = folder.rsplit_once('/').map_or("", |(parent, _)| parent);
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_the_node_does_not_need() {
        let memory = Descriptors::share(1024, false, false, 1).unwrap();
        assert_eq!((memory.clients, memory.store), (1024 - 36, 0));
        let durable = Descriptors::share(1024, true, true, 2).unwrap();
        assert_eq!(durable.store, 256);
        assert_eq!(durable.clients, 1024 - 256 - 32 - 8 - 128 - 64);
        assert!((durable.clients_below as usize) > durable.clients);
        let least = Descriptors::share(20, true, false, 1).unwrap_err();
        assert_eq!(
            Descriptors::share(least, true, false, 1).unwrap().clients,
            1
        );
        assert!(Descriptors::share(least - 1, true, false, 1).is_err());
    }

    #[test]
    fn memory_is_that_of_the_groups_around() {
        assert_eq!(
            machine_bytes("MemTotal:  2048 kB\nMemFree: 1 kB\n"),
            2 << 20
        );
        let files = group_files("0::/a.slice/b.service\n");
        assert!(files.contains(&"/sys/fs/cgroup/a.slice/b.service/memory.max".to_owned()));
        assert!(files.contains(&"/sys/fs/cgroup/a.slice/memory.max".to_owned()));
        let files = group_files("4:cpu,memory:/docker/1\n2:cpu:/x\n");
        let version_1 = "/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes";
        assert!(files.iter().any(|file| file == version_1));
        assert_eq!(files.len(), 3);
        assert!(memory_bytes() >= 1 << 20);
    }
}
