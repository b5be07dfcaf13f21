//! Commands kept outside a read buffer: those of a batch on its way to another core, those MULTI
//! queued, the one a blocked session waits with.
//!
//! One buffer for the bytes of all, one list of spans: a command more costs no allocation.

use resp::{Args, Span};

/// Room that an idle batch may keep, in each of its parts.
const ROOM_BYTES_KEPT: usize = 64 * 1024;

#[derive(Default)]
pub struct CommandList {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// Where in `spans` each command ends.
    ends: Vec<u32>,
}

impl CommandList {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Size of all arguments.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// About what they are in an entry of the log.
    pub fn logged_bytes(&self) -> usize {
        self.bytes.len() + 2 * self.spans.len() + 2 * self.ends.len()
    }

    /// Empty again. Usual room is kept for the next commands, what an unusual one took is not.
    pub fn clear(&mut self) {
        clear_room(&mut self.bytes);
        clear_room(&mut self.spans);
        clear_room(&mut self.ends);
    }

    /// Keeps a copy of `args`.
    pub fn push(&mut self, args: &Args<'_>) {
        self.push_all(args.iter_from(0));
    }

    /// Keeps a command made of these arguments.
    pub fn push_all<'a>(&mut self, args: impl IntoIterator<Item = &'a [u8]>) {
        for arg in args {
            let start = self.bytes.len() as u32;
            self.bytes.extend_from_slice(arg);
            self.spans.push(Span {
                start,
                len: arg.len() as u32,
            });
        }
        self.ends.push(self.spans.len() as u32);
    }

    /// Command `i`; without arguments if there is none.
    #[inline]
    pub fn args(&self, i: usize) -> Args<'_> {
        let start = match i {
            0 => 0,
            _ => self.ends.get(i - 1).copied().unwrap_or(0) as usize,
        };
        let end = self.ends.get(i).copied().unwrap_or(0) as usize;
        Args::new(&self.bytes, self.spans.get(start..end).unwrap_or_default())
    }

    /// Whether another command of `size_bytes` may be kept (offsets are 32 bits).
    pub fn has_room(&self, size_bytes: usize) -> bool {
        self.bytes.len() + size_bytes < u32::MAX as usize
    }
}

/// Clears a vector, and gives its memory back if it is much.
pub fn clear_room<T>(vector: &mut Vec<T>) {
    vector.clear();
    vector.shrink_to(ROOM_BYTES_KEPT / size_of::<T>().max(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_command_leaves_no_memory_behind() {
        let mut kept = CommandList::default();
        kept.push_all(vec![&b"12345"[..]; 100_000]);
        assert_eq!(kept.args(0).len(), 100_000);
        kept.clear();
        assert!(kept.is_empty());
        assert!(kept.bytes.capacity() <= ROOM_BYTES_KEPT);
        assert!(kept.spans.capacity() * size_of::<Span>() <= ROOM_BYTES_KEPT);
    }
}
