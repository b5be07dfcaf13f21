//! The settings as typed fields, read by the rest of the server.

use std::path::PathBuf;

use keyspace::{EvictionPolicy, Tuning};

use super::cluster::ClusterSettings;
use super::kind::{OutputLimit, SavePoint, Value};
use super::list;
use super::machine::{Descriptors, memory_bytes};
use super::tables::TableSettings;
use super::tls::TlsSettings;
use crate::log::{Format, Levels};

/// The value of every row, and whether the user gave it, at start or since.
#[derive(Debug, Clone)]
pub struct Rows {
    values: Vec<Value>,
    given: Vec<bool>,
}

/// When an entry counts as kept (`log-sync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogSync {
    /// When it is on disk.
    Always,
    /// When it is written; it is on disk a second later.
    EverySecond,
    /// When it is written; the system decides when it is on disk.
    No,
}

/// Every setting, parsed. The fields repeat in their own types what `rows` holds.
#[derive(Debug, Clone)]
pub struct Settings {
    pub rows: Rows,
    /// The file we were started with.
    pub config_file: Option<PathBuf>,
    /// `DEBUG SET-ACTIVE-EXPIRE`.
    pub active_expire: bool,

    pub engine: Engine,
    pub log_sync: LogSync,
    /// Microseconds.
    pub group_commit_delay: u64,
    /// `log-stall-timeout`.
    pub log_stall_ms: u64,
    pub cache_bytes: usize,
    pub block_cache_bytes: usize,
    pub log_bytes: u64,
    pub disk_reserve: u64,
    /// Whether entries are kept in the feed, too.
    pub binlog: bool,
    pub binlog_bytes: u64,
    /// What is set about being a cluster node.
    pub cluster: ClusterSettings,
    pub tables: TableSettings,
    /// What is set about TLS for clients.
    pub tls: TlsSettings,
    /// The dump that a new data directory begins with.
    pub import: Option<PathBuf>,
    pub num_shards: usize,
    /// 0: none, there is one for TLS.
    pub redis_port: u16,
    /// 0: none.
    pub http_port: u16,
    /// Addresses listened on; a leading `-` makes a failure to bind harmless.
    pub bind: Vec<String>,
    pub tcp_backlog: u32,
    pub requirepass: Vec<u8>,
    /// Users of the configuration, one per line.
    pub user: String,
    /// The file of users; empty: there is none.
    pub aclfile: String,
    /// New users may use all channels.
    pub acl_all_channels: bool,
    pub acllog_max_len: usize,
    /// Failed logins per minute and address; 0: any number.
    pub auth_failures_per_minute: u32,
    /// `/metrics` and `/healthz` ask for no password.
    pub http_open_pages: bool,
    pub protected_mode: bool,
    pub maxclients: usize,
    /// How descriptors are shared out ([`Settings::fit_descriptors`]).
    pub descriptors: Descriptors,
    pub timeout_seconds: u64,
    pub tcp_keepalive_seconds: u64,
    pub client_query_buffer_limit: usize,
    pub output_limit_normal: OutputLimit,
    pub proto_max_bulk_bytes: usize,
    pub enable_debug_command: Permit,
    pub enable_protected_configs: Permit,
    pub maxmemory: usize,
    pub maxmemory_samples: usize,
    pub active_expire_effort: u32,
    pub hz: u32,
    pub tuning: Tuning,
    pub dir: PathBuf,
    pub dbfilename: String,
    pub save: Vec<SavePoint>,
    pub rdbcompression: bool,
    pub rdbchecksum: bool,
    pub rdb_key_save_delay_us: i64,
    pub stop_writes_on_bgsave_error: bool,
    pub shutdown_on_sigterm: SaveAtExit,
    pub shutdown_on_sigint: SaveAtExit,
    /// Negative: never.
    pub slowlog_slower_than_us: i64,
    pub slowlog_max_len: usize,
    pub latency_monitor_threshold_ms: u64,
    pub latency_tracking: bool,
    pub latency_percentiles: Vec<f64>,
    pub log_levels: Levels,
    pub log_format: Format,
    /// `None`: standard output.
    pub logfile: Option<PathBuf>,
}

/// Where data lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Memory,
    Rocksdb,
}

impl Engine {
    pub fn name(self) -> &'static str {
        match self {
            Engine::Memory => "memory",
            Engine::Rocksdb => "rocksdb",
        }
    }
}

/// Who may do something dangerous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    Nobody,
    Local,
    Everybody,
}

impl Permit {
    /// `local`: the client is on this machine.
    pub fn allows(self, local: bool) -> bool {
        match self {
            Permit::Nobody => false,
            Permit::Local => local,
            Permit::Everybody => true,
        }
    }
}

/// Whether a signal that ends the server saves first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveAtExit {
    /// If `save` is set.
    Default,
    Save,
    NoSave,
}

impl Default for Settings {
    /// All defaults.
    fn default() -> Self {
        let values = list::ALL
            .iter()
            .map(|setting| {
                // A default that does not parse is found by the tests; the text is kept then.
                setting
                    .kind
                    .parse(setting.default, None)
                    .unwrap_or_else(|_| Value::Text(setting.default.into()))
            })
            .collect();
        let mut settings = Settings {
            rows: Rows {
                values,
                given: vec![false; list::ALL.len()],
            },
            config_file: None,
            active_expire: true,
            engine: Engine::Rocksdb,
            log_sync: LogSync::Always,
            group_commit_delay: 0,
            log_stall_ms: 0,
            cache_bytes: 0,
            block_cache_bytes: 0,
            log_bytes: 0,
            disk_reserve: 0,
            binlog: false,
            binlog_bytes: 0,
            cluster: ClusterSettings::default(),
            tables: TableSettings::default(),
            tls: TlsSettings::default(),
            import: None,
            num_shards: 0,
            redis_port: 0,
            http_port: 0,
            bind: Vec::new(),
            tcp_backlog: 0,
            requirepass: Vec::new(),
            user: String::new(),
            aclfile: String::new(),
            acl_all_channels: false,
            acllog_max_len: 0,
            auth_failures_per_minute: 0,
            http_open_pages: false,
            protected_mode: true,
            maxclients: 0,
            descriptors: Descriptors::default(),
            timeout_seconds: 0,
            tcp_keepalive_seconds: 0,
            client_query_buffer_limit: 0,
            output_limit_normal: OutputLimit::default(),
            proto_max_bulk_bytes: 0,
            enable_debug_command: Permit::Nobody,
            enable_protected_configs: Permit::Nobody,
            maxmemory: 0,
            maxmemory_samples: 0,
            active_expire_effort: 0,
            hz: 0,
            tuning: Tuning::default(),
            dir: PathBuf::new(),
            dbfilename: String::new(),
            save: Vec::new(),
            rdbcompression: true,
            rdbchecksum: true,
            rdb_key_save_delay_us: 0,
            stop_writes_on_bgsave_error: true,
            shutdown_on_sigterm: SaveAtExit::Default,
            shutdown_on_sigint: SaveAtExit::Default,
            slowlog_slower_than_us: 0,
            slowlog_max_len: 0,
            latency_monitor_threshold_ms: 0,
            latency_tracking: true,
            latency_percentiles: Vec::new(),
            log_levels: Levels::default(),
            log_format: Format::Text,
            logfile: None,
        };
        settings.refresh();
        settings
    }
}

impl Settings {
    /// Parses and sets one setting by its row; [`Settings::refresh`] must follow. Used at start, for
    /// any setting, and by `CONFIG SET`.
    pub fn set(&mut self, row: usize, text: &str) -> Result<(), String> {
        let (Some(setting), Some(place)) = (list::ALL.get(row), self.rows.values.get_mut(row))
        else {
            return Err("no such setting".into());
        };
        *place = setting.kind.parse(text, Some(place))?;
        if let Some(given) = self.rows.given.get_mut(row) {
            *given = true;
        }
        Ok(())
    }

    /// The text of a setting as `CONFIG GET` shows it.
    pub fn shown(&self, row: usize) -> String {
        self.rows
            .values
            .get(row)
            .map(Value::to_string)
            .unwrap_or_default()
    }

    /// Whether the user gave the value.
    pub fn is_given(&self, row: usize) -> bool {
        self.rows.given.get(row).copied().unwrap_or(false)
    }

    /// Brings the typed fields up to date with the rows.
    pub fn refresh(&mut self) {
        self.engine = match self.text("engine").as_str() {
            "memory" => Engine::Memory,
            _ => Engine::Rocksdb,
        };
        self.log_sync = match self.text("log-sync").as_str() {
            "everysec" => LogSync::EverySecond,
            "no" => LogSync::No,
            _ => LogSync::Always,
        };
        self.group_commit_delay = self.int("group-commit-delay") as u64;
        self.log_stall_ms = self.int("log-stall-timeout") as u64;
        self.cache_bytes = match self.bytes("cache-size") {
            0 => memory_bytes() / 3,
            given => given as usize,
        };
        self.block_cache_bytes = match self.bytes("block-cache-size") {
            0 => memory_bytes() / 12,
            given => given as usize,
        };
        self.log_bytes = self.bytes("log-size");
        self.disk_reserve = self.bytes("disk-reserve");
        self.binlog = self.flag("binlog");
        self.binlog_bytes = self.bytes("binlog-size");
        self.take_tls();
        self.take_cluster();
        self.take_tables(memory_bytes());
        self.import = Some(self.text("import"))
            .filter(|file| !file.is_empty())
            .map(PathBuf::from);
        self.num_shards = match self.int("num-shards") {
            0 => cores_for(std::thread::available_parallelism().map_or(1, |n| n.get())),
            n => n as usize,
        };
        self.redis_port = self.int("port") as u16;
        self.http_port = self.int("http-port") as u16;
        self.bind = self.words("bind");
        self.tcp_backlog = self.int("tcp-backlog") as u32;
        self.requirepass = self.text("requirepass").into_bytes();
        self.user = self.text("user");
        self.aclfile = self.text("aclfile");
        self.acl_all_channels = self.text("acl-pubsub-default") == "allchannels";
        self.acllog_max_len = self.int("acllog-max-len") as usize;
        self.auth_failures_per_minute = self.int("auth-failures-per-minute") as u32;
        self.http_open_pages = self.flag("http-open-pages");
        self.protected_mode = self.flag("protected-mode");
        self.maxclients = self.int("maxclients") as usize;
        self.timeout_seconds = self.int("timeout") as u64;
        self.tcp_keepalive_seconds = self.int("tcp-keepalive") as u64;
        self.client_query_buffer_limit = self.bytes("client-query-buffer-limit") as usize;
        if let Value::OutputLimits(limits) = self.value("client-output-buffer-limit") {
            self.output_limit_normal = limits.normal;
        }
        self.proto_max_bulk_bytes = self.bytes("proto-max-bulk-len") as usize;
        self.enable_debug_command = self.permit("enable-debug-command");
        self.enable_protected_configs = self.permit("enable-protected-configs");
        self.maxmemory = self.bytes("maxmemory") as usize;
        self.maxmemory_samples = self.int("maxmemory-samples") as usize;
        self.active_expire_effort = self.int("active-expire-effort") as u32;
        self.hz = self.int("hz") as u32;
        let policy = policy(&self.text("maxmemory-policy"));
        self.tuning = Tuning {
            hash_max_packed_entries: self.int("hash-max-listpack-entries") as usize,
            hash_max_packed_value: self.bytes("hash-max-listpack-value") as usize,
            set_max_intset_entries: self.int("set-max-intset-entries") as usize,
            zset_max_packed_entries: self.int("zset-max-listpack-entries") as usize,
            zset_max_packed_value: self.bytes("zset-max-listpack-value") as usize,
            list_max_packed_size: self.int("list-max-listpack-size"),
            policy,
            shares_integers: self.maxmemory == 0 || !policy.looks_at_accesses(),
            maxmemory_samples: self.maxmemory_samples,
            lfu_log_factor: self.int("lfu-log-factor") as u32,
            lfu_decay_minutes: self.int("lfu-decay-time") as u32,
            hash_seed: self.tuning.hash_seed,
            rows_from_elements: self.tuning.rows_from_elements,
        };
        self.dir = self.text("dir").into();
        self.dbfilename = self.text("dbfilename");
        if let Value::Save(points) = self.value("save") {
            self.save = points.clone();
        }
        let save_given = list::find("save").is_some_and(|row| self.is_given(row));
        if self.engine == Engine::Rocksdb && !save_given {
            self.save.clear(); // the log keeps everything
        }
        self.rdbcompression = self.flag("rdbcompression");
        self.rdbchecksum = self.flag("rdbchecksum");
        self.rdb_key_save_delay_us = self.int("rdb-key-save-delay");
        self.stop_writes_on_bgsave_error = self.flag("stop-writes-on-bgsave-error");
        self.shutdown_on_sigterm = self.at_exit("shutdown-on-sigterm");
        self.shutdown_on_sigint = self.at_exit("shutdown-on-sigint");
        self.slowlog_slower_than_us = self.int("slowlog-log-slower-than");
        self.slowlog_max_len = self.int("slowlog-max-len") as usize;
        self.latency_monitor_threshold_ms = self.int("latency-monitor-threshold") as u64;
        self.latency_tracking = self.flag("latency-tracking");
        if let Value::Percentiles(list) = self.value("latency-tracking-info-percentiles") {
            self.latency_percentiles = list.clone();
        }
        self.log_levels = Levels::parse(&self.text("loglevel")).unwrap_or_default();
        self.log_format = match self.text("log-format").as_str() {
            "json" => Format::Json,
            _ => Format::Text,
        };
        self.logfile = Some(self.text("logfile"))
            .filter(|file| !file.is_empty())
            .map(PathBuf::from);
    }

    fn value(&self, name: &str) -> &Value {
        const ABSENT: &Value = &Value::Int(0);
        let row = list::find(name);
        debug_assert!(row.is_some(), "no setting {name}");
        row.and_then(|row| self.rows.values.get(row))
            .unwrap_or(ABSENT)
    }

    pub(super) fn int(&self, name: &str) -> i64 {
        match self.value(name) {
            Value::Int(value) => *value,
            other => unexpected(name, other),
        }
    }

    pub(super) fn bytes(&self, name: &str) -> u64 {
        match self.value(name) {
            Value::Bytes(value) => *value,
            other => unexpected(name, other),
        }
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        match self.value(name) {
            Value::Bool(value) => *value,
            other => unexpected(name, other),
        }
    }

    pub(super) fn text(&self, name: &str) -> String {
        match self.value(name) {
            Value::Text(text) => text.clone(),
            other => unexpected(name, other),
        }
    }

    pub(super) fn words(&self, name: &str) -> Vec<String> {
        self.text(name)
            .split_ascii_whitespace()
            .map(Into::into)
            .collect()
    }

    fn permit(&self, name: &str) -> Permit {
        match self.text(name).as_str() {
            "yes" => Permit::Everybody,
            "local" => Permit::Local,
            _ => Permit::Nobody,
        }
    }

    fn at_exit(&self, name: &str) -> SaveAtExit {
        match self.text(name).as_str() {
            "save" => SaveAtExit::Save,
            "nosave" => SaveAtExit::NoSave,
            _ => SaveAtExit::Default,
        }
    }
}

/// A row whose kind does not fit the field read from it: a mistake in this file, found by any test
/// that makes [`Settings`].
fn unexpected<T: Default>(name: &str, value: &Value) -> T {
    debug_assert!(false, "setting {name} is {value:?}");
    T::default()
}

/// How many cores a node starts on so many CPUs. One CPU in eight, at least one where there are two, is left to the log writer, to
/// the threads that write rows, and to clients on the same machine (decision 31).
fn cores_for(cpus: usize) -> usize {
    cpus.saturating_sub(cpus.div_ceil(8)).max(1)
}

fn policy(text: &str) -> EvictionPolicy {
    match text {
        "volatile-lru" => EvictionPolicy::VolatileLru,
        "volatile-lfu" => EvictionPolicy::VolatileLfu,
        "volatile-random" => EvictionPolicy::VolatileRandom,
        "volatile-ttl" => EvictionPolicy::VolatileTtl,
        "allkeys-lru" => EvictionPolicy::AllKeysLru,
        "allkeys-lfu" => EvictionPolicy::AllKeysLfu,
        "allkeys-random" => EvictionPolicy::AllKeysRandom,
        _ => EvictionPolicy::NoEviction,
    }
}

#[cfg(test)]
mod tests {
    use super::cores_for;

    #[test]
    fn cores_leave_cpus_to_others() {
        let cores = [1, 2, 3, 4, 8, 9, 16, 64].map(cores_for);
        assert_eq!(cores, [1, 1, 2, 3, 7, 7, 14, 56]);
    }
}
