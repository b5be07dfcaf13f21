//! Calls as `ROW.*` commands.

use std::collections::{BTreeMap, BTreeSet};

use base::Refusal;
use rowapi::{
    CompareAndSetRequest, DelRequest, GetRequest, IncrByRequest, KickRequest, ScanRequest,
    SetRequest, Value, WaitSqlRequest, WriteOptions,
};
use table::Table;

use super::values::{amount_of, text_of};
use super::words::Words;

type Made = Result<Words, Refusal>;

/// Rows of one page of a scan, however many were asked for.
const PAGE_MAX: u32 = 10_000;

pub fn get(_: &Table, request: &GetRequest) -> Made {
    let mut words = Words::new("ROW.GET");
    words.key(&request.table, &request.key);
    if let Some(have) = request.have_version {
        words.add(b"VERSION").number(have);
    }
    words.fields(&request.fields);
    Ok(words)
}

/// `ROW.SET` or `ROW.SETNX`.
pub fn set(name: &str, table: &Table, request: &SetRequest) -> Made {
    let mut words = Words::new(name);
    words.key(&request.table, &request.key);
    let options = request.options.as_ref();
    write_options(&mut words, options, &[&request.fields])?;
    pairs(&mut words, "FIELDS", table, &request.fields)?;
    Ok(words)
}

/// `ROW.CAS` or `ROW.CASNX`.
pub fn compare_and_set(name: &str, table: &Table, request: &CompareAndSetRequest) -> Made {
    let mut words = Words::new(name);
    words.key(&request.table, &request.key);
    let options = request.options.as_ref();
    write_options(&mut words, options, &[&request.when, &request.fields])?;
    pairs(&mut words, "WHEN", table, &request.when)?;
    pairs(&mut words, "FIELDS", table, &request.fields)?;
    Ok(words)
}

/// `ROW.INCRBY` or `ROW.DECRBY`.
pub fn incr(name: &str, table: &Table, request: &IncrByRequest) -> Made {
    let mut words = Words::new(name);
    words.key(&request.table, &request.key);
    let amount = amount_of(table, &request.field, request.amount.as_ref())?;
    words.add(request.field.as_bytes()).add(&amount);
    write_options(&mut words, request.options.as_ref(), &[])?;
    Ok(words)
}

pub fn del(_: &Table, request: &DelRequest) -> Made {
    let mut words = Words::new("ROW.DEL");
    words.key(&request.table, &request.key);
    write_options(&mut words, request.options.as_ref(), &[])?;
    Ok(words)
}

pub fn kick(_: &Table, request: &KickRequest) -> Made {
    let mut words = Words::new("ROW.KICK");
    words.key(&request.table, &request.key);
    Ok(words)
}

pub fn mget(table: &str, keys: &[&str], fields: &[String]) -> Words {
    let mut words = Words::new("ROW.MGET");
    words.number(keys.len());
    for key in keys {
        words.key(table, key);
    }
    words.fields(fields);
    words
}

pub fn scan(request: &ScanRequest) -> Made {
    let mut words = Words::new("ROW.SCAN");
    words.add(request.table.as_bytes());
    match request.cursor.as_str() {
        "" => words.add(b"0"),
        cursor => words.add(cursor.as_bytes()),
    };
    if request.count > 0 {
        words.add(b"COUNT").number(request.count.min(PAGE_MAX));
    }
    words.fields(&request.fields);
    Ok(words)
}

pub fn wait_sql(request: &WaitSqlRequest, timeout_ms: u128) -> Made {
    let mut words = Words::new("ROW.WAITSQL");
    words.key(&request.table, &request.key);
    if let Some(version) = request.version {
        words.add(b"VERSION").number(version);
    }
    words.add(b"TIMEOUT").number(timeout_ms.max(1));
    Ok(words)
}

fn pairs(
    words: &mut Words,
    title: &str,
    table: &Table,
    fields: &BTreeMap<String, Value>,
) -> Result<(), Refusal> {
    words.add(title.as_bytes()).number(fields.len());
    for (name, value) in fields {
        words
            .add(name.as_bytes())
            .add(&text_of(table, name, value)?);
    }
    Ok(())
}

/// The options of a write. What the answer shows, unless the call says: the fields it names, so that one that is refused tells what
/// they are.
fn write_options(
    words: &mut Words,
    options: Option<&WriteOptions>,
    named: &[&BTreeMap<String, Value>],
) -> Result<(), Refusal> {
    let show = options.and_then(|options| options.show.as_ref());
    if let Some(options) = options {
        if let Some(version) = options.expected_version {
            words.add(b"VERSION").number(version);
        }
        if options.must_exist {
            words.add(b"XX");
        }
        if let Some(request) = &options.request {
            if request.client.len() != 16 {
                return Err(Refusal::new(
                    "ERR options.request.client is not 16 bytes long",
                ));
            }
            let client: String = request
                .client
                .iter()
                .map(|it| format!("{it:02x}"))
                .collect();
            words
                .add(b"REQUEST")
                .add(client.as_bytes())
                .number(request.number);
        }
        if options.schema_epoch > 0 {
            words.add(b"EPOCH").number(options.schema_epoch);
        }
    }
    match show {
        Some(show) if show.all => {
            words.add(b"RETURN").add(b"ALL");
        }
        Some(show) if show.fields.is_empty() => {
            words.add(b"RETURN").add(b"NONE");
        }
        Some(show) => {
            words.add(b"RETURN").names(&show.fields);
        }
        None => {
            let names: BTreeSet<&String> = named.iter().flat_map(|it| it.keys()).collect();
            let names: Vec<String> = names.into_iter().cloned().collect();
            if !names.is_empty() {
                words.add(b"RETURN").names(&names);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rowapi::{RequestId, Show};

    use super::super::values::tests::table;
    use super::*;

    fn fields(pairs: &[(&str, Value)]) -> BTreeMap<String, Value> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect()
    }

    #[test]
    fn reads() {
        let request = GetRequest {
            table: "users".into(),
            key: "alice: x".into(),
            fields: vec!["age".into(), "name".into()],
            have_version: Some(4),
            schema_epoch: 0,
        };
        let words = get(&table(), &request).unwrap();
        assert_eq!(
            words.shown(),
            "ROW.GET users:alice: x VERSION 4 FIELDS 2 age name"
        );
        let words = mget("users", &["a", "b"], &[]);
        assert_eq!(words.shown(), "ROW.MGET 2 users:a users:b");
        let mut request = ScanRequest {
            table: "users".into(),
            ..ScanRequest::default()
        };
        assert_eq!(scan(&request).unwrap().shown(), "ROW.SCAN users 0");
        request.cursor = "bob".into();
        request.count = u32::MAX;
        let words = scan(&request).unwrap();
        assert_eq!(words.shown(), "ROW.SCAN users bob COUNT 10000");
    }

    #[test]
    fn writes() {
        let options = WriteOptions {
            expected_version: Some(0),
            must_exist: true,
            request: Some(RequestId {
                client: vec![0xab; 16],
                number: 7,
            }),
            schema_epoch: 3,
            show: Some(Show {
                all: true,
                fields: vec![],
            }),
        };
        let request = SetRequest {
            table: "users".into(),
            key: "a".into(),
            fields: fields(&[("age", 5i64.into()), ("name", "x y".into())]),
            options: Some(options.clone()),
        };
        let client = "ab".repeat(16);
        let words = set("ROW.SET", &table(), &request).unwrap();
        assert_eq!(
            words.shown(),
            format!(
                "ROW.SET users:a VERSION 0 XX REQUEST {client} 7 EPOCH 3 RETURN ALL FIELDS 2 age 5 name x y"
            )
        );
        let request = CompareAndSetRequest {
            table: "users".into(),
            key: "a".into(),
            when: fields(&[("age", 5i64.into())]),
            fields: fields(&[("gold", 1u64.into())]),
            options: None,
        };
        let words = compare_and_set("ROW.CASNX", &table(), &request).unwrap();
        assert_eq!(
            words.shown(),
            "ROW.CASNX users:a RETURN 2 age gold WHEN 1 age 5 FIELDS 1 gold 1"
        );
        let request = IncrByRequest {
            table: "users".into(),
            key: "a".into(),
            field: "age".into(),
            amount: Some((-2i64).into()),
            options: Some(WriteOptions {
                show: Some(Show::default()),
                ..WriteOptions::default()
            }),
        };
        let words = incr("ROW.INCRBY", &table(), &request).unwrap();
        assert_eq!(words.shown(), "ROW.INCRBY users:a age -2 RETURN NONE");
        let mut request = DelRequest {
            table: "users".into(),
            key: "a".into(),
            options: Some(options),
        };
        request
            .options
            .as_mut()
            .unwrap()
            .request
            .as_mut()
            .unwrap()
            .client = vec![1];
        assert!(del(&table(), &request).is_err());
    }
}
