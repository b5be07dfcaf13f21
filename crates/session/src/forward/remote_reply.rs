//! Replies of other nodes, which come as bytes of the Redis protocol: those that say where a command has to go.

use base::NotRun;
use command::family::row::{NOT_LOADED, SCHEMA_BEHIND};
use node::CHANGING;
use resp::Reply;
use runtime::cluster::CHOOSING;

/// Why the other node has not run the command, if it has not.
#[inline]
pub fn not_run(reply: &[u8]) -> Option<NotRun> {
    match reply {
        [b'-', b'T', ..] => {
            let text = reply.strip_prefix(b"-")?.strip_suffix(b"\r\n")?;
            let is = |line: &&str| text == line.as_bytes();
            let changing = [CHOOSING, CHANGING].into_iter().find(is);
            let unready = [NOT_LOADED, SCHEMA_BEHIND].into_iter().find(is);
            changing
                .map(NotRun::LeaderChanging)
                .or(unready.map(NotRun::Unready))
        }
        [b'-', b'M', ..] => {
            let line = reply
                .strip_prefix(b"-MOVED ")?
                .split(|&b| b == b'\r')
                .next()?;
            let (slot, address) = std::str::from_utf8(line).ok()?.split_once(' ')?;
            Some(NotRun::moved(slot.parse().ok()?, address))
        }
        _ => None,
    }
}

/// Writes a reply of another node, or one that was made of several nodes' replies.
pub fn write_remote(out: &mut Reply, reply: &[u8]) {
    if let Some(why) = not_run(reply) {
        out.note_not_run(out.len(), why);
    }
    out.raw(reply);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_moment_cures_is_kept_from_the_client() {
        let is = |text: &str, expected| {
            let reply = format!("-{text}\r\n").into_bytes();
            assert_eq!(not_run(&reply), expected, "{text}");
        };
        for text in [CHOOSING, CHANGING] {
            is(text, Some(NotRun::LeaderChanging(text)));
        }
        for text in [NOT_LOADED, SCHEMA_BEHIND] {
            is(text, Some(NotRun::Unready(text)));
        }
        is("MOVED 7 1.2.3.4:5", Some(NotRun::moved(7, "1.2.3.4:5")));
        is("MOVED x 1.2.3.4:5", None);
        is(runtime::cluster::no_leader().text(), None);
        is("TRYAGAIN the cache of tables is full", None);
        is("TRYAGAIN table 'a' is closed", None);
        is("TRYAGAIN a region does not answer", None);
    }
}
