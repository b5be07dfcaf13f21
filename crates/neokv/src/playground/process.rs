//! Nodes in the background: how they are begun, known again, and ended.
//!
//! A number of a process is used again after its end. What makes one ours: the time it was started
//! at (in ticks since the machine was), and the data folder among its arguments.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    /// Ticks between the start of the machine and that of the process.
    pub started: u64,
    /// Which start of the machine.
    pub boot: String,
}

const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Process {
    /// Of a child that was just started.
    pub fn of(child: &Child) -> Process {
        let pid = child.id();
        Process {
            pid,
            started: stat(pid).map_or(0, |stat| stat.started),
            boot: boot(),
        }
    }

    /// Whether this very process runs, as the node with this data.
    pub fn is_running(&self, data: &Path) -> bool {
        let Some(stat) = stat(self.pid) else {
            return false;
        };
        stat.started == self.started
            && !matches!(stat.state, 'Z' | 'X')
            && self.boot == boot()
            && mentions(self.pid, data)
    }

    /// It has been stopped (SIGSTOP) and may be let go on.
    pub fn is_paused(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.state == 'T')
    }

    fn signal(&self, signal: i32) {
        let Ok(pid) = i32::try_from(self.pid) else {
            return;
        };
        // SAFETY: a call without memory. The caller has looked that the process is ours.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Kills at once, and waits for the end.
pub fn kill(process: &Process, data: &Path) {
    while process.is_running(data) {
        process.signal(libc::SIGKILL);
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Asks all to end; those that have not after `grace` are killed. How many had to be.
pub fn end(processes: &[(Process, std::path::PathBuf)], grace: Duration) -> usize {
    let running = || {
        processes
            .iter()
            .filter(|(process, data)| process.is_running(data))
    };
    for (process, _) in running() {
        process.signal(libc::SIGTERM);
        // One that was paused hears it then.
        process.signal(libc::SIGCONT);
    }
    let deadline = Instant::now() + grace;
    while running().next().is_some() && Instant::now() < deadline {
        std::thread::sleep(LOOK_AGAIN);
    }
    let mut killed = 0;
    for (process, data) in running() {
        kill(process, data);
        killed += 1;
    }
    killed
}

/// Starts a program that goes on when this one has ended, and does not hear the terminal's signals.
pub fn spawn(program: &Path, args: &[String], log: &Path) -> io::Result<Child> {
    let log = File::options().create(true).append(true).open(log)?;
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    // SAFETY: between fork and exec only setsid is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| match libc::setsid() {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    command.spawn()
}

struct Stat {
    state: char,
    started: u64,
}

/// Of `/proc/PID/stat`: the third and the twenty-second field. The second is a name in brackets,
/// with whatever characters.
fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    let started = fields.nth(18)?.parse().ok()?;
    Some(Stat { state, started })
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

fn mentions(pid: u32, data: &Path) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = line.split(|&byte| byte == 0);
    words.any(|word| word == data.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_process_counts() {
        let folder = std::env::temp_dir();
        let log = folder.join(format!("neokv-process-{}.log", std::process::id()));
        let words = ["-f", "/dev/null", "/some/data"].map(String::from);
        let mut child = spawn(Path::new("tail"), &words, &log).unwrap();
        let process = Process::of(&child);
        let data = Path::new("/some/data");
        assert!(process.is_running(data));
        assert!(!process.is_running(Path::new("/other/data")));
        let later = Process {
            started: process.started + 1,
            ..process.clone()
        };
        assert!(!later.is_running(data));
        let elsewhere = Process {
            boot: "other".into(),
            ..process.clone()
        };
        assert!(!elsewhere.is_running(data));
        kill(&process, data);
        // It counts as ended although nobody has asked how.
        assert!(!process.is_running(data));
        assert!(!child.wait().unwrap().success());
        fs::remove_file(&log).unwrap();
    }
}
