//! etcd: puts and linearizable gets over gRPC, which is HTTP/2 with a five-byte frame around protobuf.
//!
//! Some clients share one HTTP/2 connection, as etcd's own benchmark has it; connections go round the endpoints.
//! The messages are the fields of etcd's `rpc.proto` that this tool uses; unknown ones are skipped by protobuf.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, Request};
use prost::Message;
use tokio::net::TcpStream;

use crate::Settings;
use crate::phase::{Client, Failed};

#[derive(Clone, PartialEq, Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `serializable` (7) stays unset: linearizable.
#[derive(Clone, PartialEq, Message)]
struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RangeResponse {
    #[prost(int64, tag = "4")]
    count: i64,
}

/// Room for answers that the server may send before it hears that we took them.
const WINDOW: u32 = 1 << 20;

/// Connections of a thread, made when their first client comes.
pub struct Shared {
    addresses: Vec<String>,
    /// How many, a multiple of the endpoints.
    wanted: usize,
    connections: RefCell<Vec<SendRequest<Bytes>>>,
}

pub struct Caller {
    sender: SendRequest<Bytes>,
    shared: Rc<Shared>,
    place: usize,
}

async fn dial(address: &str) -> Result<SendRequest<Bytes>, Failed> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| format!("{address}: {error}"))?;
    stream
        .set_nodelay(true)
        .map_err(|error| error.to_string())?;
    let shaken = h2::client::Builder::new()
        .initial_connection_window_size(WINDOW)
        .initial_window_size(WINDOW)
        .handshake(stream)
        .await;
    let (sender, connection) = shaken.map_err(|error| format!("{address}: {error}"))?;
    tokio::task::spawn_local(connection);
    Ok(sender)
}

impl Caller {
    /// One call; its single answer.
    async fn call(&mut self, path: &'static str, message: &impl Message) -> Result<Bytes, Failed> {
        let answered = self.try_call(path, message).await;
        if answered.is_err() {
            // Whatever it was, the next call begins on a new connection.
            if let Ok(sender) = dial(&self.shared.addresses[self.place]).await {
                self.sender = sender;
            }
        }
        answered
    }

    async fn try_call(
        &mut self,
        path: &'static str,
        message: &impl Message,
    ) -> Result<Bytes, Failed> {
        let failed = |error: h2::Error| error.to_string();
        let sender = self.sender.clone();
        let mut sender = sender.ready().await.map_err(failed)?;
        let request = Request::post(format!(
            "http://{}{path}",
            self.shared.addresses[self.place]
        ))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .map_err(|error| error.to_string())?;
        let (response, mut body) = sender.send_request(request, false).map_err(failed)?;
        body.send_data(frame(message), true).map_err(failed)?;
        let response = response.await.map_err(failed)?;
        if response.headers().contains_key("grpc-status") {
            status(response.headers())?;
        }
        let mut body = response.into_body();
        let mut whole = BytesMut::new();
        while let Some(part) = body.data().await {
            let part = part.map_err(failed)?;
            body.flow_control()
                .release_capacity(part.len())
                .map_err(failed)?;
            whole.extend_from_slice(&part);
        }
        if let Some(trailers) = body.trailers().await.map_err(failed)? {
            status(&trailers)?;
        }
        let whole = whole.freeze();
        if whole.len() < 5 {
            return Err(format!("an answer of {} bytes", whole.len()));
        }
        Ok(whole.slice(5..))
    }
}

/// Not compressed, the length, the message.
fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(5 + length);
    bytes.put_u8(0);
    bytes.put_u32(length as u32);
    bytes.put(message.encode_to_vec().as_slice());
    bytes.freeze()
}

fn status(headers: &HeaderMap) -> Result<(), Failed> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    match text("grpc-status") {
        "0" => Ok(()),
        code => Err(format!("gRPC status {code}: {}", text("grpc-message"))),
    }
}

impl Client for Caller {
    type Shared = Shared;

    async fn share(settings: &Settings, clients: usize) -> Result<Shared, Failed> {
        let wanted = clients.div_ceil(settings.streams());
        Ok(Shared {
            wanted: wanted.next_multiple_of(settings.addresses.len()),
            addresses: settings.addresses.clone(),
            connections: RefCell::default(),
        })
    }

    async fn connect(shared: &Rc<Shared>, n: usize) -> Result<Self, Failed> {
        let endpoints = shared.addresses.len();
        let connection = n % shared.wanted;
        let place = connection % endpoints;
        while shared.connections.borrow().len() <= connection {
            let next = shared.connections.borrow().len();
            let sender = dial(&shared.addresses[next % endpoints]).await?;
            shared.connections.borrow_mut().push(sender);
        }
        let sender = shared.connections.borrow()[connection].clone();
        Ok(Self {
            sender,
            shared: Rc::clone(shared),
            place,
        })
    }

    async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failed> {
        let request = PutRequest {
            key: key.to_vec(),
            value: value.to_vec(),
        };
        self.call("/etcdserverpb.KV/Put", &request).await.map(drop)
    }

    async fn get(&mut self, key: &[u8]) -> Result<(), Failed> {
        let request = RangeRequest { key: key.to_vec() };
        let answer = self.call("/etcdserverpb.KV/Range", &request).await?;
        let answer = RangeResponse::decode(answer).map_err(|error| error.to_string())?;
        match answer.count {
            1 => Ok(()),
            count => Err(format!("{count} keys: fill first")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_answers() {
        let request = PutRequest {
            key: b"k".to_vec(),
            value: b"v".to_vec(),
        };
        assert_eq!(frame(&request).as_ref(), b"\0\0\0\0\x06\x0a\x01k\x12\x01v");
        // header { revision: 9 }, kvs { key: "k" }, count 1
        let answer = b"\x0a\x02\x18\x09\x12\x03\x0a\x01k\x20\x01";
        assert_eq!(RangeResponse::decode(&answer[..]).unwrap().count, 1);
    }
}
