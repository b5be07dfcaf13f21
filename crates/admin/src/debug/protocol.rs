//! DEBUG PROTOCOL: one reply of each type, for the tests of client libraries.

use base::Refusal;
use resp::{Args, Protocol, Reply};

pub fn reply(args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let resp3 = reply.protocol() == Protocol::Resp3;
    match args.at(2).to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.int(12345),
        // Redis' test value; it is not meant to be exact.
        b"double" => reply.double(3141.0 / 1000.0),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|n| reply.int(n));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|n| reply.int(n));
        }
        b"map" => {
            reply.map(3);
            for n in 0..3 {
                reply.int(n);
                reply.boolean(n == 1);
            }
        }
        b"attrib" => {
            if resp3 {
                reply.raw(b"|1\r\n");
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.int(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" => {
            if !resp3 {
                return Err(Refusal::new("ERR RESP2 is not supported by this command"));
            }
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.int(42);
        }
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        b"verbatim" => reply.verbatim("This is a verbatim\nstring"),
        b"bignum" => {
            let text = "1234567999999999999999999999999999999";
            if resp3 {
                reply.raw(format!("({text}\r\n").as_bytes());
            } else {
                reply.bulk(text.as_bytes());
            }
        }
        _ => {
            return Err(Refusal::new(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}
