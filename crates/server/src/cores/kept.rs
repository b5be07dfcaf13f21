//! Commands kept outside a read buffer: those of a batch on its way to another core, those MULTI
//! queued, the one a blocked session waits with.
//!
//! One buffer for the bytes of all, one list of spans: a command more costs no allocation.

use resp::{Args, Span};

#[derive(Default)]
pub struct Kept {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// Where in `spans` each command ends.
    ends: Vec<u32>,
}

impl Kept {
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

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.ends.clear();
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
