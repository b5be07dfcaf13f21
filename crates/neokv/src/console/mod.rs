//! `neokv cli`: a small Redis client for people and scripts.
//!
//! ```text
//!   flags     what may be asked for; the commonest flags of redis-cli, with their names
//!   session   one connection that is made again when needed, and follows redirects with `-c`
//!   show      answers as text: for people, or raw for programs
//! ```
//!
//! One command stands on the command line, or commands come as lines from a pipe or from a terminal. Exit status 1 if
//! an answer was an error; redis-cli needs `-e` for that. There is no editing of lines beyond what the terminal does.

mod flags;
mod session;
mod show;

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::process::ExitCode;

pub use flags::{command, options};

use crate::client::Answer;
use session::Session;

/// What is asked of which node.
pub struct Options {
    pub host: String,
    pub port: u16,
    pub user: Option<String>,
    pub password: Option<String>,
    pub db: u32,
    /// Redirects are followed.
    pub cluster: bool,
    pub resp3: bool,
    /// Decided by whether standard output is a terminal, if not said.
    pub raw: Option<bool>,
    /// Standard input is the last argument.
    pub last_from_stdin: bool,
    /// One command; lines of standard input if there is none.
    pub words: Vec<Vec<u8>>,
}

/// Commands after which the node goes on sending.
const ENDLESS: &[&str] = &["monitor", "subscribe", "psubscribe", "ssubscribe"];
const HELP: &str = "Type a command (`set greeting hello`, `get greeting`), `quit` to leave. Blanks, quotes and other\n\
                    bytes stand in \"…\" with \\n, \\\" and \\xHH, or in '…' as they are. docs/commands.md lists the commands.\n";

pub fn run(options: Options) -> ExitCode {
    let out = io::stdout();
    let raw = options.raw.unwrap_or(!out.is_terminal());
    let is_prompt = options.words.is_empty() && io::stdin().is_terminal();
    let mut console = Console {
        session: Session::new(&options, !raw || is_prompt),
        raw,
        out,
        refused: false,
    };
    let done = match is_prompt {
        true => console.prompt(),
        false if options.words.is_empty() => console.pipe(),
        false => console.one(options.words, options.last_from_stdin),
    };
    match done {
        Ok(()) | Err(Stop::Gone) if !console.refused => ExitCode::SUCCESS,
        Ok(()) | Err(Stop::Gone) => ExitCode::FAILURE,
        Err(Stop::Failed(why)) => {
            eprintln!("neokv: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Why the console ends before its commands do.
enum Stop {
    /// Nobody reads what is written.
    Gone,
    Failed(String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Stop::Gone,
            _ => Stop::Failed(error.to_string()),
        }
    }
}

struct Console {
    session: Session,
    raw: bool,
    out: io::Stdout,
    /// An answer was an error.
    refused: bool,
}

impl Console {
    fn one(&mut self, mut words: Vec<Vec<u8>>, last_from_stdin: bool) -> Result<(), Stop> {
        if last_from_stdin {
            let mut last = Vec::new();
            io::stdin().read_to_end(&mut last)?;
            words.push(last);
        }
        self.command(&words)
    }

    fn pipe(&mut self) -> Result<(), Stop> {
        let mut lines = io::stdin().lock();
        while let Some(line) = next_line(&mut lines)? {
            if self.line(&line)? {
                break;
            }
        }
        Ok(())
    }

    fn prompt(&mut self) -> Result<(), Stop> {
        if let Err(why) = self.session.connect() {
            println!("{why}");
        }
        let mut lines = io::stdin().lock();
        loop {
            write!(self.out, "{}", self.session.prompt())?;
            self.out.flush()?;
            let Some(line) = next_line(&mut lines)? else {
                writeln!(self.out)?;
                break;
            };
            match self.line(&line) {
                Ok(true) => break,
                Ok(false) => {}
                Err(Stop::Failed(why)) => writeln!(self.out, "{why}")?,
                Err(gone) => return Err(gone),
            }
        }
        // Nobody asks a person's session how it went.
        self.refused = false;
        Ok(())
    }

    /// Whether it was the last.
    fn line(&mut self, line: &[u8]) -> Result<bool, Stop> {
        let Some(words) = resp::words(line) else {
            self.refused = true;
            writeln!(self.out, "Invalid argument(s)")?;
            return Ok(false);
        };
        let Some(first) = words.first() else {
            return Ok(false);
        };
        if is(first, "quit") || is(first, "exit") {
            return Ok(true);
        }
        match words.len() {
            1 if is(first, "help") || first == b"?" => self.out.write_all(HELP.as_bytes())?,
            1 if is(first, "clear") => self.out.write_all(b"\x1b[H\x1b[2J")?,
            _ => self.command(&words)?,
        }
        Ok(false)
    }

    fn command(&mut self, words: &[Vec<u8>]) -> Result<(), Stop> {
        let first = words.first().map(Vec::as_slice).unwrap_or_default();
        let endless = ENDLESS.iter().any(|name| is(first, name));
        let mut on_way = Vec::new();
        let answer = self.session.ask(words, endless, |event| on_way.push(event));
        for event in on_way {
            self.show(&event)?;
        }
        let mut answer = match answer {
            Ok(answer) => answer,
            // It does not answer when it obeys.
            Err(_) if is(first, "shutdown") => return Ok(()),
            Err(why) => return Err(Stop::Failed(why)),
        };
        self.show(&answer)?;
        while endless && !is_over(&answer) {
            answer = self.session.next().map_err(Stop::Failed)?;
            self.show(&answer)?;
        }
        Ok(())
    }

    fn show(&mut self, answer: &Answer) -> Result<(), Stop> {
        self.refused |= matches!(answer, Answer::Error(_));
        let mut text = match self.raw {
            true => show::raw(answer),
            false => show::for_people(answer),
        };
        if self.raw || !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        self.out.write_all(&text)?;
        Ok(self.out.flush()?)
    }
}

/// Whether nothing follows this answer to a command that is endless: it was refused, or waits for EXEC.
fn is_over(answer: &Answer) -> bool {
    match answer {
        Answer::Error(_) => true,
        Answer::Status(text) => text == b"QUEUED",
        _ => false,
    }
}

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

fn next_line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    match from.read_until(b'\n', &mut line)? {
        0 => Ok(None),
        _ => Ok(Some(line)),
    }
}
