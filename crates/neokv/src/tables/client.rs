//! A Redis client of one node: a command out, its answer in as JSON. It speaks RESP3, whose maps have names.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::{Map, Number, Value};

const CONNECT: Duration = Duration::from_secs(5);
/// Longest answer between two bytes; a change of a large SQL table may take minutes.
const PATIENCE: Duration = Duration::from_secs(900);
/// No answer is longer, or deeper.
const LENGTH_MAX: usize = 256 << 20;
const DEPTH_MAX: usize = 16;

pub struct Client {
    pub address: String,
    pub password: Option<String>,
    stream: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(address: &str, password: Option<&str>) -> Result<Client, String> {
        let mut client = Client {
            address: address.into(),
            password: password.map(Into::into),
            stream: BufReader::new(open(address)?),
        };
        let hello = match password {
            Some(password) => vec!["HELLO", "3", "AUTH", "default", password],
            None => vec!["HELLO", "3"],
        };
        match client.ask(&hello) {
            Ok(_) => Ok(client),
            Err(why) if why.starts_with("NOAUTH") => Err(format!(
                "{address} asks for a password: give it with --password, or as NEOKV_PASSWORD"
            )),
            Err(why) => Err(format!("{address}: {why}")),
        }
    }

    /// `ROW.TABLE` and these words; the refusal without its code, which says nothing to people.
    pub fn table(&mut self, words: &[impl AsRef<str>]) -> Result<Value, String> {
        let words = words.iter().map(AsRef::as_ref);
        let words: Vec<&str> = std::iter::once("ROW.TABLE").chain(words).collect();
        let told = self.ask(&words);
        told.map_err(|why| match why.strip_prefix("ERR ") {
            Some(why) => why.to_owned(),
            None => why,
        })
    }

    /// An answer, or what was refused: the code first.
    pub fn ask(&mut self, words: &[&str]) -> Result<Value, String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        let sent = self.stream.get_mut().write_all(request.as_bytes());
        sent.map_err(|error| format!("{}: {error}", self.address))?;
        read(&mut self.stream, 0)
            .map_err(|told| match told {
                Told::Refused(why) => why,
                Told::Broken(why) => format!("{}: {why}", self.address),
            })?
            .map_err(|refused| refused.0)
    }
}

fn open(address: &str) -> Result<TcpStream, String> {
    let told = |why: String| {
        format!("{address} does not answer: {why}; is the node running, and --address right?")
    };
    let found = address.to_socket_addrs();
    let mut last = String::from("no such host");
    for place in found.map_err(|error| told(error.to_string()))? {
        match TcpStream::connect_timeout(&place, CONNECT) {
            Ok(stream) => {
                let _ = stream.set_nodelay(true);
                let set = stream.set_read_timeout(Some(PATIENCE));
                set.map_err(|error| told(error.to_string()))?;
                return Ok(stream);
            }
            Err(error) => last = error.to_string(),
        }
    }
    Err(told(last))
}

/// An error that was answered.
struct Refused(String);

enum Told {
    Refused(String),
    Broken(String),
}

impl From<std::io::Error> for Told {
    fn from(error: std::io::Error) -> Told {
        Told::Broken(error.to_string())
    }
}

fn broken(what: &str) -> Told {
    Told::Broken(format!("this is no Redis server: {what}"))
}

/// One answer; an error among others is their refusal.
fn read(from: &mut impl BufRead, depth: usize) -> Result<Result<Value, Refused>, Told> {
    let mut line = Vec::new();
    from.take(LENGTH_MAX as u64).read_until(b'\n', &mut line)?;
    let Some(line) = line.strip_suffix(b"\r\n") else {
        return Err(Told::Broken("the node closed the connection".into()));
    };
    let text = String::from_utf8_lossy(line).into_owned();
    let mut rest = text.chars();
    let kind = rest.next().unwrap_or_default();
    let rest = rest.as_str();
    let count = || match rest.parse::<usize>() {
        Ok(count) if count <= LENGTH_MAX && depth < DEPTH_MAX => Ok(count),
        _ => Err(broken("a length that is none")),
    };
    Ok(Ok(match kind {
        '-' => return Ok(Err(Refused(rest.into()))),
        '+' | '(' => Value::String(rest.into()),
        ':' => match rest.parse::<i64>() {
            Ok(number) => Value::Number(number.into()),
            Err(_) => return Err(broken("a number that is none")),
        },
        ',' => {
            let number = rest.parse::<f64>().ok().and_then(Number::from_f64);
            number.map_or(Value::Null, Value::Number)
        }
        '#' => Value::Bool(rest == "t"),
        '_' => Value::Null,
        '$' | '*' if rest == "-1" => Value::Null,
        '$' | '=' => {
            let mut bytes = vec![0; count()? + 2];
            from.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len().saturating_sub(2));
            let text = String::from_utf8_lossy(&bytes).into_owned();
            // `=` has the format and a colon before the text.
            Value::String(match kind {
                '=' => text.get(4..).unwrap_or_default().into(),
                _ => text,
            })
        }
        '*' | '~' | '>' => {
            let mut list = Vec::new();
            for _ in 0..count()? {
                list.push(read(from, depth + 1)?.map_err(|it| Told::Refused(it.0))?);
            }
            Value::Array(list)
        }
        '%' => {
            let mut map = Map::new();
            for _ in 0..count()? {
                let name = read(from, depth + 1)?.map_err(|it| Told::Refused(it.0))?;
                let value = read(from, depth + 1)?.map_err(|it| Told::Refused(it.0))?;
                let name = match name {
                    Value::String(name) => name,
                    other => other.to_string(),
                };
                map.insert(name, value);
            }
            Value::Object(map)
        }
        _ => return Err(broken("an answer of no kind")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(text: &str) -> Result<Value, String> {
        match read(&mut text.as_bytes(), 0) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(refused)) => Err(refused.0),
            Err(Told::Refused(why) | Told::Broken(why)) => Err(why),
        }
    }

    #[test]
    fn answers() {
        let text = "%2\r\n$1\r\na\r\n*2\r\n:-1\r\n_\r\n+b\r\n=5\r\ntxt:x\r\n";
        assert_eq!(parsed(text), Ok(json!({ "a": [-1, null], "b": "x" })));
        assert_eq!(parsed("-ERR no\r\n"), Err("ERR no".into()));
        assert_eq!(parsed("*1\r\n-ERR no\r\n"), Err("ERR no".into()));
        for bad in [
            "",
            "x",
            "$5\r\nab",
            "*99999999999999\r\n",
            ":x\r\n",
            "?\r\n",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        assert!(parsed(&"*1\r\n".repeat(100)).is_err());
    }
}
