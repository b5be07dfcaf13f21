//! Reading payloads without copying: everything borrows from the payload.

use super::{
    CHECKSUM_BYTES, EntryError, HEADER_BYTES, KIND_COMMANDS, KIND_DIGEST, KIND_EXPIRE, KIND_ROWS,
    VERSION,
};

/// Whether a payload brings rows; nothing else of it is looked at.
pub fn is_rows(payload: &[u8]) -> bool {
    payload.get(1) == Some(&KIND_ROWS)
}

/// A payload that is known to be well formed.
#[derive(Debug, Clone)]
pub struct Decoded<'a> {
    pub stamp_ms: u64,
    pub seed: u64,
    pub body: Body<'a>,
}

#[derive(Debug, Clone)]
pub enum Body<'a> {
    Commands(Commands<'a>),
    Rows(&'a [u8]),
    Expire(Expirations<'a>),
    /// All replicas take a digest of their state here, known by this id, to be compared.
    Digest(u64),
}

/// The commands of an entry, in their order: an iterator.
#[derive(Debug, Clone)]
pub struct Commands<'a> {
    cursor: Cursor<'a>,
    left: u32,
}

/// One command; its name is argument 0.
#[derive(Debug, Clone)]
pub struct Command<'a> {
    pub db: u8,
    argc: u32,
    cursor: Cursor<'a>,
}

/// Keys to expire: an iterator.
#[derive(Debug, Clone)]
pub struct Expirations<'a> {
    cursor: Cursor<'a>,
    left: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired<'a> {
    pub db: u8,
    pub deadline_ms: u64,
    pub key: &'a [u8],
}

/// Checks all of `payload` and gives a view of it.
pub fn decode(payload: &[u8]) -> Result<Decoded<'_>, EntryError> {
    let decoded = decode_lazily(payload)?;
    if let Body::Commands(commands) = &decoded.body {
        let mut commands = commands.clone();
        while commands.read(|_, _| {})?.is_some() {}
    }
    Ok(decoded)
}

/// As [`decode`], but commands are checked by who reads them, one by one, with [`Commands::read`].
pub fn decode_lazily(payload: &[u8]) -> Result<Decoded<'_>, EntryError> {
    let Some((content, checksum)) = payload.split_last_chunk::<CHECKSUM_BYTES>() else {
        return Err(EntryError::Corrupt("too short"));
    };
    // The checksum is where it is in every version to come, so that a damaged version byte is not
    // taken for a newer program's.
    if crc32c::crc32c(content) != u32::from_le_bytes(*checksum) {
        return Err(EntryError::Corrupt("checksum does not match"));
    }
    // Spans are u32.
    if u32::try_from(content.len()).is_err() {
        return Err(EntryError::Corrupt("too long"));
    }
    let mut cursor = Cursor {
        payload: content,
        at: 0,
    };
    let version = cursor.byte()?;
    if version > VERSION {
        return Err(EntryError::NewerVersion(version));
    }
    if version == 0 {
        return Err(EntryError::Corrupt("no such version"));
    }
    let kind = cursor.byte()?;
    let stamp_ms = cursor.u64()?;
    let seed = cursor.u64()?;
    let body = match kind {
        KIND_COMMANDS => {
            let left = cursor.u32()?;
            Body::Commands(Commands { cursor, left })
        }
        KIND_ROWS => Body::Rows(content.get(HEADER_BYTES..).unwrap_or_default()),
        KIND_EXPIRE => {
            let left = cursor.u32()?;
            let mut walk = cursor.clone();
            for _ in 0..left {
                walk.expired()?;
            }
            walk.end()?;
            Body::Expire(Expirations { cursor, left })
        }
        KIND_DIGEST => {
            let id = cursor.u64()?;
            cursor.end()?;
            Body::Digest(id)
        }
        _ => return Err(EntryError::Corrupt("no such kind")),
    };
    Ok(Decoded {
        stamp_ms,
        seed,
        body,
    })
}

impl Commands<'_> {
    /// Reads the next command: its database; `each` is given (start, length) of every argument within
    /// the payload that was decoded. `None` behind the last one.
    #[inline]
    pub fn read(&mut self, mut each: impl FnMut(u32, u32)) -> Result<Option<u8>, EntryError> {
        let Some(left) = self.left.checked_sub(1) else {
            return self.cursor.end().map(|()| None);
        };
        self.left = left;
        let db = self.cursor.byte()?;
        let argc = self.cursor.var()?;
        if argc == 0 {
            return Err(EntryError::Corrupt("a command without a name"));
        }
        for _ in 0..argc {
            let (start, len) = self.cursor.span()?;
            each(start, len);
        }
        Ok(Some(db))
    }
}

impl<'a> Iterator for Commands<'a> {
    type Item = Command<'a>;

    fn next(&mut self) -> Option<Command<'a>> {
        self.left = self.left.checked_sub(1)?;
        self.cursor.command().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Commands<'_> {}

impl<'a> Command<'a> {
    /// Number of arguments, name included.
    #[inline]
    pub fn argc(&self) -> usize {
        self.argc as usize
    }

    /// (start, length) of every argument within the payload that was decoded.
    pub fn spans(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + use<'a> {
        let mut cursor = self.cursor.clone();
        // Checked by `decode`: the default is never used.
        (0..self.argc).map(move |_| cursor.span().unwrap_or_default())
    }

    pub fn args(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let payload = self.cursor.payload;
        self.spans().map(move |(start, len)| {
            payload
                .get(start as usize..(start + len) as usize)
                .unwrap_or_default()
        })
    }
}

impl<'a> Iterator for Expirations<'a> {
    type Item = Expired<'a>;

    fn next(&mut self) -> Option<Expired<'a>> {
        self.left = self.left.checked_sub(1)?;
        self.cursor.expired().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Expirations<'_> {}

const ENDS_EARLY: EntryError = EntryError::Corrupt("ends early");

#[derive(Debug, Clone)]
struct Cursor<'a> {
    payload: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn byte(&mut self) -> Result<u8, EntryError> {
        let byte = *self.payload.get(self.at).ok_or(ENDS_EARLY)?;
        self.at += 1;
        Ok(byte)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], EntryError> {
        let rest = self.payload.get(self.at..).ok_or(ENDS_EARLY)?;
        let bytes = rest.first_chunk::<N>().ok_or(ENDS_EARLY)?;
        self.at += N;
        Ok(*bytes)
    }

    fn u32(&mut self) -> Result<u32, EntryError> {
        self.fixed().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, EntryError> {
        self.fixed().map(u64::from_le_bytes)
    }

    #[inline]
    fn var(&mut self) -> Result<u32, EntryError> {
        let mut value = 0u32;
        for shift in (0..32).step_by(7) {
            let byte = self.byte()?;
            let bits = u32::from(byte & 0x7f);
            // The fifth byte has room for four bits; a last byte of zero is not the shortest form.
            if (shift == 28 && byte > 0x0f) || (shift > 0 && byte == 0) {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(EntryError::Corrupt("no such number"))
    }

    /// A length and that many bytes, skipped: where they are.
    #[inline]
    fn span(&mut self) -> Result<(u32, u32), EntryError> {
        let len = self.var()?;
        let start = self.at;
        if self.payload.len() - start < len as usize {
            return Err(ENDS_EARLY);
        }
        self.at += len as usize;
        Ok((start as u32, len))
    }

    fn command(&mut self) -> Result<Command<'a>, EntryError> {
        let db = self.byte()?;
        let argc = self.var()?;
        if argc == 0 {
            return Err(EntryError::Corrupt("a command without a name"));
        }
        let cursor = self.clone();
        for _ in 0..argc {
            self.span()?;
        }
        Ok(Command { db, argc, cursor })
    }

    fn expired(&mut self) -> Result<Expired<'a>, EntryError> {
        let db = self.byte()?;
        let deadline_ms = self.u64()?;
        let (start, len) = self.span()?;
        let key = self.payload.get(start as usize..(start + len) as usize);
        Ok(Expired {
            db,
            deadline_ms,
            key: key.unwrap_or_default(),
        })
    }

    fn end(&self) -> Result<(), EntryError> {
        match self.at == self.payload.len() {
            true => Ok(()),
            false => Err(EntryError::Corrupt("bytes behind its end")),
        }
    }
}
