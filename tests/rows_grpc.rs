//! Rows over gRPC, on the running binary with SQLite behind it: every call, every status a single node gives, retries, deadlines,
//! and what is no call at all.

#[allow(dead_code)] // shared with other tests, which use the rest
mod node;

use std::process::Command;
use std::time::{Duration, Instant};

use node::{Folder, Node, call, free_port, try_call};
use rowapi::table_client::TableClient;
use rowapi::{
    CompareAndSetRequest, DelRequest, GetRequest, IncrByRequest, KickRequest, MGetRequest,
    RequestId, RowReply, ScanRequest, SetRequest, Show, Status, Value, WaitSqlRequest,
    WriteOptions,
};
use rowclient::{Changed, Client, Error, Write, Written};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

struct Site {
    node: Node,
    http: u16,
    _folder: Folder,
}

impl Site {
    fn new() -> Site {
        let (folder, port, http) = (Folder::new(), free_port(), free_port());
        let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
        command
            .args(["server", "--bind", "127.0.0.1", "--num-shards", "2"])
            .args([
                "--redis-port",
                &port.to_string(),
                "--block-cache-size",
                "32mb",
            ])
            .args(["--http-port", &http.to_string()])
            .arg("--data-dir")
            .arg(folder.0.join("data"));
        let site = Site {
            node: Node::of(command, port),
            http,
            _folder: folder,
        };
        let fields = "age:int64=18,gold:uint64=0,x:float64=0,name:string,raw:blob";
        let declare = format!("ROW.TABLE CREATE users FIELDS {fields}");
        call::<()>(&mut site.node.client(), &declare);
        site
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.http)
    }

    fn client(&self) -> Client {
        Client::new([self.address()]).unwrap()
    }

    fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address()));
        endpoint.unwrap().connect_lazy()
    }

    fn raw(&self) -> TableClient<Channel> {
        TableClient::new(self.channel())
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(work)
}

fn row(written: Written) -> rowclient::Row {
    match written {
        Written::Ok(row) => row,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_call() {
    let site = Site::new();
    run(async {
        let users = site.client().table("users");
        // Nothing there; then with defaults, typed.
        assert_eq!(users.get("alice").await.unwrap(), None);
        assert_eq!(users.set("alice", [("name", "Alice")]).await.unwrap(), 1);
        let alice = users.get("alice").await.unwrap().unwrap();
        assert_eq!(alice.version, 1);
        assert_eq!((alice.int("age"), alice.uint("gold")), (Some(18), Some(0)));
        assert_eq!(
            (alice.float("x"), alice.text("name")),
            (Some(0.0), Some("Alice"))
        );
        assert_eq!(alice.blob("raw"), Some(&b""[..]));
        let some = users.get_fields("alice", &["age"]).await.unwrap().unwrap();
        assert_eq!(some.fields.len(), 1);
        assert_eq!(users.get_if_changed("alice", 1).await.unwrap(), Changed::No);
        assert!(matches!(
            users.get_if_changed("alice", 7).await.unwrap(),
            Changed::Yes(_)
        ));
        assert_eq!(users.get_if_changed("bob", 7).await.unwrap(), Changed::Gone);

        // Everything that a field holds, without loss.
        let raw: Vec<u8> = (0..=255).collect();
        let all: [(&str, Value); 5] = [
            ("age", i64::MIN.into()),
            ("gold", u64::MAX.into()),
            ("x", 0.1.into()),
            ("name", "🎲 ' OR 1=1 --".into()),
            ("raw", raw.clone().into()),
        ];
        assert_eq!(users.set("edge", all).await.unwrap(), 1);
        users.wait_sql("edge", None).await.unwrap();
        users.kick("edge").await.unwrap();
        let edge = users.get("edge").await.unwrap().unwrap();
        assert_eq!(
            (edge.int("age"), edge.uint("gold")),
            (Some(i64::MIN), Some(u64::MAX))
        );
        assert_eq!(
            (edge.float("x"), edge.text("name")),
            (Some(0.1), Some("🎲 ' OR 1=1 --"))
        );
        assert_eq!(edge.blob("raw"), Some(&raw[..]));

        // Conditions.
        let made = users.set_nx("alice", [("age", 1)]).await.unwrap();
        let Written::Exist(current) = made else {
            panic!("{made:?}");
        };
        assert_eq!((current.version, current.int("age")), (1, Some(18)));
        assert!(matches!(
            users.set_nx("bob", [("age", 1)]).await.unwrap(),
            Written::Ok(_)
        ));
        let late = users
            .set_with("alice", [("age", 5)], Write::expecting(9))
            .await
            .unwrap();
        assert!(
            matches!(&late, Written::VersionMismatch(row) if row.version == 1),
            "{late:?}"
        );
        let none = users
            .set_with("carol", [("age", 5)], Write::of_existing())
            .await
            .unwrap();
        assert_eq!(none, Written::NotExist(0));
        let write = Write::expecting(1).showing_all();
        let shown = row(users.set_with("alice", [("age", 20)], write).await.unwrap());
        assert_eq!((shown.version, shown.fields.len()), (2, 5));
        let free = Write::default;
        let cas = users
            .compare_and_set("alice", [("age", 3)], [("age", 4)], free())
            .await
            .unwrap();
        assert!(
            matches!(&cas, Written::CasNotEqual(row) if row.int("age") == Some(20)),
            "{cas:?}"
        );
        let cas = users
            .compare_and_set("alice", [("age", 20)], [("age", 21)], free())
            .await;
        assert_eq!(row(cas.unwrap()).version, 3);
        let cas = users
            .compare_and_set("dave", [("age", 20)], [("age", 21)], free())
            .await;
        assert_eq!(cas.unwrap(), Written::NotExist(0));
        let cas = users
            .compare_and_set_nx("dave", [("age", 20)], [("age", 21)], free())
            .await;
        assert_eq!(row(cas.unwrap()).version, 1);

        // Numbers.
        assert_eq!(
            users
                .incr_by("alice", "gold", 10)
                .await
                .unwrap()
                .uint("gold"),
            Some(10)
        );
        assert_eq!(
            users
                .decr_by("alice", "gold", 3)
                .await
                .unwrap()
                .uint("gold"),
            Some(7)
        );
        assert_eq!(
            users.incr_by("alice", "x", 0.5).await.unwrap().float("x"),
            Some(0.5)
        );
        for (field, amount) in [("gold", (-8i64).into()), ("gold", Value::from(u64::MAX))] {
            let error = users.incr_by("alice", field, amount).await.unwrap_err();
            assert!(matches!(&error, Error::Refused(_)), "{error}");
        }
        assert_eq!(
            users.get("alice").await.unwrap().unwrap().uint("gold"),
            Some(7)
        );

        // Deleted: the count goes on.
        let gone = row(users.del("bob").await.unwrap());
        assert_eq!(gone.version, -2);
        assert_eq!(users.get("bob").await.unwrap(), None);
        assert_eq!(users.del("bob").await.unwrap(), Written::NotExist(-2));
        assert_eq!(users.set("bob", [("age", 2)]).await.unwrap(), 3);

        // Many.
        let many = users
            .mget(&["alice", "nobody", "bob", "alice"])
            .await
            .unwrap();
        let ages: Vec<_> = many.iter().map(|row| row.as_ref()?.int("age")).collect();
        assert_eq!(ages, [Some(21), None, Some(2), Some(21)]);
        assert_eq!(users.mget(&[]).await.unwrap(), []);

        // The database has it, and then the same through Redis' commands.
        let version = users.set("alice", [("age", 30)]).await.unwrap();
        assert_eq!(
            users.wait_sql("alice", Some(version)).await.unwrap(),
            version
        );
        users.kick("alice").await.unwrap();
        users.kick("never-there").await.unwrap();
        assert_eq!(
            users.get("alice").await.unwrap().unwrap().int("age"),
            Some(30)
        );
        let mut redis = site.node.client();
        assert_eq!(call::<String>(&mut redis, "HGET users:alice age"), "30");

        let mut rows = users.scan().pages_of(2).all().await.unwrap();
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        let keys: Vec<&str> = rows.iter().map(|row| row.key.as_str()).collect();
        assert_eq!(keys, ["alice", "bob", "dave", "edge"]);
        assert_eq!(rows[0].int("age"), Some(30));
        let few = users.scan().fields(&["age"]).all().await.unwrap();
        assert!(few.iter().all(|row| row.fields.len() == 1));
    });
    assert!(site.node.terminate());
}

fn set(key: &str, fields: &[(&str, Value)]) -> SetRequest {
    let fields = fields.iter();
    SetRequest {
        table: "users".into(),
        key: key.into(),
        fields: fields
            .map(|(name, value)| ((*name).into(), value.clone()))
            .collect(),
        options: None,
    }
}

fn get(table: &str, key: &str) -> GetRequest {
    GetRequest {
        table: table.into(),
        key: key.into(),
        ..GetRequest::default()
    }
}

async fn asked(client: &mut TableClient<Channel>, request: SetRequest) -> RowReply {
    client.set(request).await.unwrap().into_inner()
}

#[test]
fn a_request_is_done_once_however_often_it_is_sent() {
    let site = Site::new();
    run(async {
        let mut client = site.raw();
        let request = |number| IncrByRequest {
            table: "users".into(),
            key: "alice".into(),
            field: "gold".into(),
            amount: Some(5i64.into()),
            options: Some(WriteOptions {
                request: Some(RequestId {
                    client: vec![7; 16],
                    number,
                }),
                ..WriteOptions::default()
            }),
        };
        let first = client.incr_by(request(1)).await.unwrap().into_inner();
        let again = client.incr_by(request(1)).await.unwrap().into_inner();
        assert_eq!(first, again);
        let next = client.incr_by(request(2)).await.unwrap().into_inner();
        assert_eq!(next.fields["gold"], 10u64.into());
        assert_eq!(next.version, first.version + 1);
        // Also a request that was refused, and one that comes over another connection.
        let again = site.raw().incr_by(request(2)).await.unwrap().into_inner();
        assert_eq!(next, again);
        let mut wrong = request(3);
        wrong
            .options
            .as_mut()
            .unwrap()
            .request
            .as_mut()
            .unwrap()
            .client
            .pop();
        let reply = client.incr_by(wrong).await.unwrap().into_inner();
        assert_eq!(reply.status(), Status::Error);
        assert!(reply.error.contains("16 bytes"), "{}", reply.error);
    });
}

#[test]
fn bad_input_is_told_and_changes_nothing() {
    let site = Site::new();
    let long = "k".repeat(300);
    run(async {
        let mut client = site.raw();
        let seven: Value = 7i64.into();
        for (request, part) in [
            (set("a", &[("nope", seven.clone())]), "has no field 'nope'"),
            (set("a", &[("age", "old".into())]), "is int64"),
            (set("a", &[("age", 1.5.into())]), "is int64: got a float64"),
            (set("a", &[("gold", (-1i64).into())]), "is uint64"),
            (set("a", &[("x", f64::INFINITY.into())]), "finite"),
            (set("a", &[("name", "a\0b".into())]), "NUL"),
            (set("a", &[("name", vec![0xffu8].into())]), "utf-8"),
            (set("a", &[("age", Value { kind: None })]), "got nothing"),
            (set("", &[("age", seven.clone())]), "ERR"),
            (set("a\0b", &[("age", seven.clone())]), "ERR"),
            (set(&long, &[("age", seven.clone())]), "ERR"),
            (set("a", &[("raw", vec![0u8; 2 << 20].into())]), "ERR"),
        ] {
            let reply = asked(&mut client, request).await;
            assert_eq!(reply.status(), Status::Error, "{part}: {reply:?}");
            assert!(reply.error.contains(part), "{part}: {}", reply.error);
        }
        for table in ["nobody", "", "users:a", "' OR 1=1 --", "us\0ers"] {
            let reply = client.get(get(table, "a")).await.unwrap().into_inner();
            assert_eq!(reply.status(), Status::Error, "{table}");
            assert!(reply.error.contains("there is no table"), "{}", reply.error);
        }
        // Keys that look like SQL, or like more of a command, are keys.
        for key in [
            "' OR 1=1 --",
            "a\r\n*1\r\n$4\r\nPING\r\n",
            "🎲",
            ":",
            "a:b",
            "{x}",
        ] {
            let reply = asked(&mut client, set(key, &[("age", seven.clone())])).await;
            assert_eq!(reply.status(), Status::Ok, "{key:?}: {}", reply.error);
            let reply = client.get(get("users", key)).await.unwrap().into_inner();
            assert_eq!(reply.fields["age"], seven, "{key:?}");
        }
        assert_eq!(
            client
                .get(get("users", "a"))
                .await
                .unwrap()
                .into_inner()
                .status(),
            Status::NotExist
        );
        // A schema that is newer than the node's is not guessed at.
        let mut ahead = get("users", "a");
        ahead.schema_epoch = 99;
        let reply = client.get(ahead).await.unwrap().into_inner();
        assert_eq!(reply.status(), Status::Retry, "{}", reply.error);
        let keys = vec!["a".to_owned(); 1001];
        let many = MGetRequest {
            table: "users".into(),
            keys,
            ..MGetRequest::default()
        };
        let error = client.m_get(many).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        // Longer than a message may be.
        let huge = set("a", &[("raw", vec![0u8; 5 << 20].into())]);
        let error = client.set(huge).await.unwrap_err();
        assert_eq!(error.code(), Code::OutOfRange, "{error}");
        // The rest of the calls know tables as well.
        let name = || "nobody".to_owned();
        let scan = ScanRequest {
            table: name(),
            ..ScanRequest::default()
        };
        assert_eq!(
            client.scan(scan).await.unwrap().into_inner().status(),
            Status::Error
        );
        let del = DelRequest {
            table: name(),
            ..DelRequest::default()
        };
        assert_eq!(
            client.del(del).await.unwrap().into_inner().status(),
            Status::Error
        );
        let kick = KickRequest {
            table: name(),
            ..KickRequest::default()
        };
        assert_eq!(
            client.kick(kick).await.unwrap().into_inner().status(),
            Status::Error
        );
        let wait = WaitSqlRequest {
            table: name(),
            ..WaitSqlRequest::default()
        };
        assert_eq!(
            client.wait_sql(wait).await.unwrap().into_inner().status(),
            Status::Error
        );
        let cas = CompareAndSetRequest {
            table: name(),
            ..CompareAndSetRequest::default()
        };
        let reply = client.compare_and_set_nx(cas).await.unwrap().into_inner();
        assert_eq!(reply.status(), Status::Error);
    });
    let mut redis = site.node.client();
    assert_eq!(call::<i64>(&mut redis, "EXISTS users:a"), 0);
}

/// Sends bytes as they are.
#[derive(Default)]
struct Noise;

impl tonic::codec::Codec for Noise {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Noise;
    type Decoder = Noise;
    fn encoder(&mut self) -> Noise {
        Noise
    }
    fn decoder(&mut self) -> Noise {
        Noise
    }
}

impl tonic::codec::Encoder for Noise {
    type Item = Vec<u8>;
    type Error = tonic::Status;
    fn encode(
        &mut self,
        item: Vec<u8>,
        to: &mut tonic::codec::EncodeBuf<'_>,
    ) -> Result<(), tonic::Status> {
        bytes::BufMut::put_slice(to, &item);
        Ok(())
    }
}

impl tonic::codec::Decoder for Noise {
    type Item = ();
    type Error = tonic::Status;
    fn decode(
        &mut self,
        from: &mut tonic::codec::DecodeBuf<'_>,
    ) -> Result<Option<()>, tonic::Status> {
        let rest = bytes::Buf::remaining(from);
        bytes::Buf::advance(from, rest);
        Ok(Some(()))
    }
}

#[test]
fn what_is_no_message_is_an_error_and_nothing_else() {
    let site = Site::new();
    run(async {
        let mut grpc = tonic::client::Grpc::new(site.channel());
        let paths = [
            "Get",
            "Set",
            "CompareAndSet",
            "IncrBy",
            "MGet",
            "Scan",
            "WaitSql",
            "Nope",
        ];
        let mut seed = 0x9e37_79b9u32;
        for round in 0..200usize {
            let noise: Vec<u8> = (0..round)
                .map(|_| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (seed >> 24) as u8
                })
                .collect();
            // Not utf-8 where a string is.
            let noise = if round % 4 == 0 {
                [&[0x0a, 0x02, 0xff, 0xfe][..], &noise].concat()
            } else {
                noise
            };
            let path = format!("/neokv.table.v1.Table/{}", paths[round % paths.len()]);
            grpc.ready().await.unwrap();
            let mut request = Request::new(noise);
            request.set_timeout(Duration::from_secs(1));
            let path = path.parse().unwrap();
            // Some of it is a message; what it says is about no table there is.
            if let Err(error) = grpc.unary(request, path, Noise).await {
                let codes = [Code::Internal, Code::Unimplemented, Code::InvalidArgument];
                assert!(codes.contains(&error.code()), "{error}");
            }
        }
        assert_eq!(site.client().table("users").get("a").await.unwrap(), None);
    });
}

#[test]
fn deadlines_are_kept_and_hold_up_nobody() {
    let site = Site::new();
    run(async {
        let users = site.client().table("users");
        users.set("alice", [("age", 1)]).await.unwrap();
        // Nothing that is written is answered while CLIENT PAUSE lasts.
        let mut redis = site.node.client();
        call::<()>(&mut redis, "CLIENT PAUSE 1500 WRITE");
        let hurried = site
            .client()
            .with_timeout(Duration::from_millis(300))
            .table("users");
        let begin = Instant::now();
        let error = hurried.set("bob", [("age", 2)]).await.unwrap_err();
        assert!(matches!(error, Error::TimedOut(_)), "{error}");
        assert!(
            begin.elapsed() < Duration::from_millis(1000),
            "{:?}",
            begin.elapsed()
        );
        let mut raw = site.raw();
        let mut request = Request::new(set("bob", &[("age", 3i64.into())]));
        request.set_timeout(Duration::from_millis(200));
        // The server's word comes first, or the client's own.
        match raw.set(request).await {
            Ok(reply) => assert_eq!(reply.into_inner().status(), Status::Timeout),
            Err(status) => assert!(
                [Code::DeadlineExceeded, Code::Cancelled].contains(&status.code()),
                "{status}"
            ),
        }
        // Others are not held up by those who wait.
        let begin = Instant::now();
        users.get("alice").await.unwrap();
        assert!(
            begin.elapsed() < Duration::from_millis(700),
            "{:?}",
            begin.elapsed()
        );
        // With timeout it is done. What was given up may be done as well, and later.
        let version = users.set("alice", [("age", 4)]).await.unwrap();
        assert!(version >= 2);
        assert_eq!(
            users.get("alice").await.unwrap().unwrap().int("age"),
            Some(4)
        );
    });
}

#[test]
fn a_password_is_asked_for() {
    let site = Site::new();
    call::<()>(&mut site.node.client(), "CONFIG SET requirepass secret");
    run(async {
        let error = site.client().table("users").get("a").await.unwrap_err();
        assert!(
            matches!(&error, Error::Rpc(status) if status.code() == Code::Unauthenticated),
            "{error}"
        );
        let wrong = site.client().with_password("Secret").table("users");
        assert!(matches!(wrong.get("a").await.unwrap_err(), Error::Rpc(_)));
        let right = site.client().with_password("secret").table("users");
        let found = right.get("a").await.unwrap();
        assert_eq!(found, None);
    });
}

#[test]
fn users_may_do_what_their_rules_say() {
    let site = Site::new();
    let mut admin = site.node.client();
    call::<()>(&mut admin, "ACL SETUSER app on >pa ~users:a* +@row");
    call::<()>(&mut admin, "ACL SETUSER reader on >pr %R~users:* +@row");
    call::<()>(&mut admin, "CONFIG SET requirepass secret");
    run(async {
        let wrong = site.client().with_user("app", "nix").table("users");
        let error = wrong.get("a").await.unwrap_err();
        assert!(
            matches!(&error, Error::Rpc(status) if status.code() == Code::Unauthenticated),
            "{error}"
        );
        let app = site.client().with_user("app", "pa").table("users");
        app.set("alice", [("age", 4)]).await.unwrap();
        let told = app.set("bob", [("age", 4)]).await.unwrap_err().to_string();
        assert!(told.contains("NOPERM"), "{told}");
        let reader = site.client().with_user("reader", "pr").table("users");
        assert!(reader.get("alice").await.unwrap().is_some());
        assert!(reader.set("alice", [("age", 5)]).await.is_err());
    });
}

#[test]
fn many_at_once_and_no_client_to_be_seen() {
    let site = Site::new();
    run(async {
        let users = site.client().table("users");
        let tasks: Vec<_> = (0..200)
            .map(|n| {
                let users = users.clone();
                tokio::spawn(async move {
                    for _ in 0..5 {
                        users
                            .incr_by(&format!("k{}", n % 20), "gold", 1)
                            .await
                            .unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let keys: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let rows = users.mget(&keys).await.unwrap();
        assert!(
            rows.iter()
                .all(|row| row.as_ref().unwrap().uint("gold") == Some(50))
        );
    });
    let mut redis = site.node.client();
    let list: String = call(&mut redis, "CLIENT LIST");
    assert_eq!(list.lines().count(), 1, "{list}");
    try_call::<String>(&mut redis, "ROW.GET users:k1 SHOW").unwrap_err();
    let show = Show::default();
    assert!(!show.all);
}
