//! The request parser under any split and any damage.

use proptest::collection::vec;
use proptest::prelude::*;
use resp::{Parsed, ProtocolError, RequestLimits, RequestParser};

type Command = Vec<Vec<u8>>;

fn encode(command: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", command.len()).into_bytes();
    for arg in command {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// An inline line that means `command`: every word quoted, every byte escaped.
fn encode_inline(command: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for arg in command {
        out.push(b'"');
        for byte in arg {
            out.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
        }
        out.extend_from_slice(b"\" ");
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// A session in miniature: bytes come in pieces, commands go out.
fn run(pieces: &[&[u8]]) -> Result<Vec<Command>, ProtocolError> {
    let mut parser = RequestParser::new();
    let limits = RequestLimits::default();
    let (mut buffer, mut commands) = (Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        let mut done = 0;
        loop {
            let rest = &buffer[done..];
            match parser.parse(rest, &limits)? {
                Parsed::Command { consumed } => {
                    assert!(consumed > 0 && consumed <= rest.len());
                    let args = parser.args(rest);
                    commands.push(args.iter_from(0).map(<[u8]>::to_vec).collect());
                    done += consumed;
                }
                Parsed::Nothing { consumed } => {
                    assert!(consumed > 0 && consumed <= rest.len());
                    done += consumed;
                }
                Parsed::Incomplete { needed } => {
                    assert!(needed > 0);
                    break;
                }
            }
        }
        buffer.drain(..done);
    }
    Ok(commands)
}

fn command() -> impl Strategy<Value = Command> {
    vec(vec(any::<u8>(), 0..120), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn split_anywhere_parses_the_same(commands in vec((command(), any::<bool>()), 1..4)) {
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for (command, inline) in commands {
            bytes.extend(if inline { encode_inline(&command) } else { encode(&command) });
            bytes.extend_from_slice(if inline { b"\r\n" } else { b"*0\r\n" });
            expected.push(command);
        }
        prop_assert_eq!(run(&[&bytes]).unwrap(), expected.clone());
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(run(&single).unwrap(), expected.clone());
        for at in 0..bytes.len() {
            let (head, tail) = bytes.split_at(at);
            prop_assert_eq!(&run(&[head, tail]).unwrap(), &expected);
        }
    }

    #[test]
    fn damage_never_panics_and_splits_agree(command in command(), new in any::<u8>()) {
        let bytes = encode(&command);
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] = new;
            let whole = run(&[&bad]);
            let pieces: Vec<&[u8]> = bad.chunks(1).collect();
            prop_assert_eq!(run(&pieces), whole);
        }
    }

    #[test]
    fn noise_never_panics(bytes in vec(prop_oneof![
        Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'1'), Just(b'0'), Just(b'-'),
        Just(b'"'), Just(b'\\'), Just(b'x'), any::<u8>()], 0..200)) {
        let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(run(&pieces), run(&[&bytes]));
    }
}

fn refusal(bytes: &[u8], limits: &RequestLimits) -> String {
    match RequestParser::new().parse(bytes, limits) {
        Err(ProtocolError(text)) => text,
        Ok(parsed) => panic!("{parsed:?} from {}", bytes.escape_ascii()),
    }
}

/// The texts and the bytes that cause them as seen from redis-server 7.0.15.
#[test]
fn refusals() {
    let limits = RequestLimits::default();
    let long = vec![b'1'; 70_000];
    let after = |head: &[u8]| [head, &long].concat();
    for (bytes, text) in [
        (b"*2147483648\r\n".to_vec(), "invalid multibulk length"),
        (b"*\r\n".to_vec(), "invalid multibulk length"),
        (b"*1 \r\n".to_vec(), "invalid multibulk length"),
        (b"*01\r\n".to_vec(), "invalid multibulk length"),
        (b"*1\n$4\r\nPING\r\n".to_vec(), "invalid multibulk length"),
        (b"*1\r\nfoo\r\n".to_vec(), "expected '$', got 'f'"),
        (b"*1\r\n$-1\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$abc\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$536870913\r\n".to_vec(), "invalid bulk length"),
        (after(b"*"), "too big mbulk count string"),
        (after(b"*1\r\n$"), "too big bulk count string"),
        (after(b"x"), "too big inline request"),
        (b"set \"a\r\n".to_vec(), "unbalanced quotes in request"),
    ] {
        assert_eq!(refusal(&bytes, &limits), text);
    }
    let limits = RequestLimits::unauthenticated();
    let text = refusal(b"*11\r\n", &limits);
    assert_eq!(text, "unauthenticated multibulk length");
    let text = refusal(b"*1\r\n$16385\r\n", &limits);
    assert_eq!(text, "unauthenticated bulk length");
}

#[test]
fn loose_line_ends_are_skipped_unseen() {
    let commands = run(&[b"*1\rX$4\rXPINGXX*-5\r\nping\n  \r\n"]).unwrap();
    assert_eq!(commands, [[b"PING".to_vec()], [b"ping".to_vec()]]);
}

#[test]
fn a_big_bulk_names_what_it_needs() {
    let mut parser = RequestParser::new();
    let limits = RequestLimits::default();
    let mut bytes = b"*2\r\n$4\r\nECHO\r\n$1000000\r\nabc".to_vec();
    let parsed = parser.parse(&bytes, &limits).unwrap();
    assert_eq!(parsed, Parsed::Incomplete { needed: 999_999 });
    bytes.resize(bytes.len() + 999_999, b'x');
    let parsed = parser.parse(&bytes, &limits).unwrap();
    assert_eq!(
        parsed,
        Parsed::Command {
            consumed: bytes.len()
        }
    );
    assert_eq!(parser.args(&bytes).at(1).len(), 1_000_000);
}
