//! A Redis client of one node: a command out, its answer in as JSON. It speaks RESP3, whose maps have names.

use std::time::Duration;

use serde_json::{Map, Number, Value};

use crate::client::{Answer, Connection};

/// Longest wait between two bytes of an answer; a change of a large SQL table may take minutes.
const TIMEOUT: Duration = Duration::from_secs(900);

pub struct Client {
    pub address: String,
    pub password: Option<String>,
    connection: Connection,
}

impl Client {
    pub fn connect(address: &str, password: Option<&str>) -> Result<Client, String> {
        let connection = Connection::open(address, Some(TIMEOUT)).map_err(|why| {
            format!("{address} does not answer: {why}; is the node running, and --address right?")
        })?;
        let mut client = Client {
            address: address.into(),
            password: password.map(Into::into),
            connection,
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
        let answer = self.connection.ask(words);
        let answer = answer.map_err(|why| format!("{}: {why}", self.address))?;
        json(answer)
    }
}

/// An error among other answers is the refusal of all.
fn json(answer: Answer) -> Result<Value, String> {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(match answer {
        Answer::Error(why) => return Err(text(why)),
        Answer::Null => Value::Null,
        Answer::Bool(value) => Value::Bool(value),
        Answer::Int(number) => Value::Number(number.into()),
        Answer::Double(number) => {
            let number = text(number).parse::<f64>().ok();
            let number = number.and_then(Number::from_f64);
            number.map_or(Value::Null, Value::Number)
        }
        Answer::Status(bytes)
        | Answer::BigNumber(bytes)
        | Answer::Bulk(bytes)
        | Answer::Verbatim(bytes) => Value::String(text(bytes)),
        Answer::Array(list) | Answer::Set(list) | Answer::Push(list) => {
            let list: Result<Vec<Value>, String> = list.into_iter().map(json).collect();
            Value::Array(list?)
        }
        Answer::Map(pairs) => {
            let mut map = Map::new();
            for (name, value) in pairs {
                let name = match json(name)? {
                    Value::String(name) => name,
                    other => other.to_string(),
                };
                map.insert(name, json(value)?);
            }
            Value::Object(map)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as expected;

    #[test]
    fn answers_as_json() {
        let pairs = vec![
            (
                Answer::Bulk(b"a".into()),
                Answer::Array(vec![Answer::Int(-1), Answer::Null]),
            ),
            (Answer::Int(1), Answer::Verbatim(b"x".into())),
            (Answer::Status(b"n".into()), Answer::Double(b"1.5".to_vec())),
        ];
        let told = json(Answer::Map(pairs));
        assert_eq!(told, Ok(expected!({ "a": [-1, null], "1": "x", "n": 1.5 })));
        let refused = Answer::Array(vec![Answer::Error(b"ERR no".into())]);
        assert_eq!(json(refused), Err("ERR no".into()));
    }
}
