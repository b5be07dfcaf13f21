//! A target whose keys are all in one slot: each gets a hash tag on its way there and loses it on its way
//! back, so that transcripts that know nothing of slots run on a cluster.

use std::io;
use std::time::Instant;

use base::Slot;
use base::slot::slot_of;
use resp::{Args, Parsed, RequestLimits, RequestParser, Span};
use server::Commands;

use super::target::{Live, Request, TIMEOUT, Target};
use super::wire::Value;

const TAG: &[u8] = b"{~}";

pub struct Tagged {
    inner: Live,
    commands: Commands,
    /// Whether clients that wait here wait where their keys are, too.
    waits_there: Box<dyn FnMut() -> bool>,
}

impl Tagged {
    pub fn new(inner: Live) -> Tagged {
        Tagged {
            inner,
            commands: server::commands(),
            waits_there: Box::new(|| true),
        }
    }

    /// At a node that asks another.
    pub fn forwarding(inner: Live, waits_there: impl FnMut() -> bool + 'static) -> Tagged {
        Tagged {
            waits_there: Box::new(waits_there),
            ..Tagged::new(inner)
        }
    }

    pub fn slot() -> Slot {
        slot_of(TAG)
    }

    fn tag(&self, argv: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut tagged = argv.to_vec();
        let buffer = argv.concat();
        let mut start = 0;
        let mut spans = Vec::new();
        for arg in argv {
            let len = arg.len() as u32;
            spans.push(Span { start, len });
            start += len;
        }
        let args = Args::new(&buffer, &spans);
        let mut put = |at: usize| {
            if let Some(word) = tagged.get_mut(at) {
                word.splice(0..0, TAG.iter().copied());
            }
        };
        let Ok((_, row)) = self.commands.specs.table.resolve(&args) else {
            return tagged;
        };
        let _ = row.keys.positions(&args, &mut put);
        match row.name {
            "keys" => put(1),
            "scan" => (2..argv.len())
                .filter(|&at| args.is(at, "MATCH"))
                .for_each(|at| put(at + 1)),
            "debug" if args.is(1, "OBJECT") || args.is(1, "LISTPACK") => put(2),
            _ => {}
        }
        tagged
    }
}

fn untag(value: Value) -> Value {
    let bytes = |bytes: Vec<u8>| {
        let mut out = Vec::with_capacity(bytes.len());
        let mut rest = &bytes[..];
        while let Some((&first, behind)) = rest.split_first() {
            match rest.strip_prefix(TAG) {
                Some(behind) => rest = behind,
                None => {
                    out.push(first);
                    rest = behind;
                }
            }
        }
        out
    };
    let all = |items: Vec<Value>| items.into_iter().map(untag).collect();
    match value {
        Value::Simple(text) => Value::Simple(bytes(text)),
        Value::Error(text) => Value::Error(bytes(text)),
        Value::Bulk(text) => Value::Bulk(bytes(text)),
        Value::Verbatim(text) => Value::Verbatim(bytes(text)),
        Value::Array(items) => Value::Array(all(items)),
        Value::Set(items) => Value::Set(all(items)),
        Value::Push(items) => Value::Push(all(items)),
        Value::Map(pairs) => {
            let pairs = pairs.into_iter();
            Value::Map(pairs.map(|(a, b)| (untag(a), untag(b))).collect())
        }
        other => other,
    }
}

impl Target for Tagged {
    fn send(&mut self, client: usize, request: Request<'_>) -> io::Result<()> {
        match request {
            Request::Command(argv) => {
                let argv = self.tag(argv);
                self.inner.send(client, Request::Command(&argv))
            }
            Request::Raw(bytes) => {
                let mut rest = bytes;
                let mut parser = RequestParser::new();
                let limits = RequestLimits::default();
                while let Ok(Parsed::Command { consumed }) = parser.parse(rest, &limits) {
                    let argv: Vec<Vec<u8>> =
                        parser.args(rest).iter_from(0).map(<[u8]>::to_vec).collect();
                    self.inner
                        .send(client, Request::Command(&self.tag(&argv)))?;
                    rest = &rest[consumed..];
                    parser.reset();
                }
                self.inner.send(client, Request::Raw(rest))
            }
        }
    }

    fn receive(&mut self, client: usize) -> io::Result<Value> {
        self.inner.receive(client).map(untag)
    }

    fn protocol(&mut self, client: usize, version: u8) -> io::Result<()> {
        self.inner.protocol(client, version)
    }

    fn close(&mut self, client: usize) {
        self.inner.close(client);
    }

    fn advance(&mut self, ms: u64) {
        self.inner.advance(ms);
    }

    fn before_block(&mut self, client: usize) -> io::Result<()> {
        self.inner.before_block(client)
    }

    fn await_blocked(&mut self, client: usize) -> io::Result<()> {
        self.inner.await_blocked(client)?;
        let deadline = Instant::now() + TIMEOUT;
        while !(self.waits_there)() {
            if Instant::now() > deadline {
                return Err(io::Error::other("client does not block at the leader"));
            }
            self.inner.advance(2);
        }
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.inner.reset()
    }
}
