//! A node in this process and a bare client for it: commands out, values back.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use server::{Server, Settings};

/// A reply as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Nil,
    Int(i64),
    Text(String),
    Error(String),
    List(Vec<Value>),
}

#[allow(dead_code)] // not every test uses every method
impl Value {
    pub fn text(&self) -> &str {
        match self {
            Value::Text(text) | Value::Error(text) => text,
            other => panic!("not a text: {other:?}"),
        }
    }

    pub fn int(&self) -> i64 {
        match self {
            Value::Int(value) => *value,
            Value::Text(text) => text.parse().expect("a number"),
            other => panic!("not a number: {other:?}"),
        }
    }

    pub fn list(&self) -> &[Value] {
        match self {
            Value::List(list) => list,
            other => panic!("not a list: {other:?}"),
        }
    }
}

/// Settings of a node with so many cores, on a port that is free at this moment.
#[allow(dead_code)]
pub fn settings(shards: usize) -> Settings {
    let probe = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = probe.local_addr().expect("its address").port();
    let mut settings = Settings::default();
    let row = server::settings::list::find("port").expect("the setting");
    settings.set(row, &port.to_string()).expect("a port");
    Settings {
        num_shards: shards,
        redis_port: port,
        http_port: 0,
        bind: vec!["127.0.0.1".into()],
        ..settings
    }
}

/// A node on a free port.
#[allow(dead_code)]
pub fn node(shards: usize, change: impl FnOnce(&mut Settings)) -> Server {
    let mut settings = settings(shards);
    change(&mut settings);
    server::start(settings).unwrap_or_else(|error| panic!("{error}"))
}

pub struct Client {
    reader: BufReader<TcpStream>,
}

#[allow(dead_code)]
impl Client {
    pub fn new(node: &Server) -> Client {
        Client::at(node.port())
    }

    pub fn at(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("timeout");
        stream.set_nodelay(true).expect("nodelay");
        Client {
            reader: BufReader::new(stream),
        }
    }

    pub fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    /// One command, words separated by spaces.
    pub fn run(&mut self, line: &str) -> Value {
        self.send(&line.split(' ').collect::<Vec<_>>());
        self.read()
    }

    pub fn send(&mut self, words: &[&str]) {
        let bytes = encode(words);
        self.reader.get_mut().write_all(&bytes).expect("write");
    }

    /// Many commands in one write, then all replies.
    pub fn pipeline(&mut self, lines: &[String]) -> Vec<Value> {
        let mut bytes = Vec::new();
        for line in lines {
            bytes.extend(encode(&line.split(' ').collect::<Vec<_>>()));
        }
        self.reader.get_mut().write_all(&bytes).expect("write");
        lines.iter().map(|_| self.read()).collect()
    }

    pub fn read(&mut self) -> Value {
        self.try_read().expect("a reply")
    }

    /// The next reply; `None` when the server has closed.
    pub fn try_read(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("no reply: {error}"),
        }
        let rest = line[1..].trim_end().to_string();
        Some(match line.as_bytes()[0] {
            b'+' => Value::Text(rest),
            b'-' => Value::Error(rest),
            b':' => Value::Int(rest.parse().expect("a number")),
            b'$' => {
                let Ok(len) = rest.parse::<usize>() else {
                    return Some(Value::Nil);
                };
                let mut bytes = vec![0; len + 2];
                self.reader.read_exact(&mut bytes).expect("a bulk string");
                bytes.truncate(len);
                Value::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
            b'*' => match rest.parse::<usize>() {
                Ok(len) => Value::List((0..len).map(|_| self.read()).collect()),
                Err(_) => Value::Nil,
            },
            other => panic!("unknown reply {:?}", char::from(other)),
        })
    }
}

fn encode(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    bytes
}
