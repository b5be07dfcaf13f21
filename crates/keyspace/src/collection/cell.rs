//! One element of a big hash, set or sorted set: a block of memory behind a pointer of one word.
//!
//! ```text
//!   head (none, the value's length, the score) │ key length: u32 │ key │ value, if any
//! ```
//!
//! This is what the collections put into [`Table`]: the only unsafe code of the collections. A cell
//! is owned by its table; [`Handle`] is a second pointer to it for the order of a sorted set.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::memory::table::{Position, Table, Thin};
use crate::weight;

/// What stands before the key.
pub(crate) trait Head: Copy {
    /// Bytes that follow the key.
    fn tail(self) -> usize;
}

/// Sets: nothing but the key.
impl Head for () {
    fn tail(self) -> usize {
        0
    }
}

/// Hashes: the length of the value.
impl Head for u32 {
    fn tail(self) -> usize {
        self as usize
    }
}

/// Sorted sets: the score.
impl Head for f64 {
    fn tail(self) -> usize {
        0
    }
}

pub(crate) struct Cell<H: Head>(NonNull<u8>, PhantomData<H>);

/// A shared look at a cell.
#[derive(Clone, Copy)]
pub(crate) struct CellRef<'a, H: Head>(NonNull<u8>, PhantomData<(&'a [u8], H)>);

/// A second pointer to a cell.
#[derive(Clone, Copy)]
pub(crate) struct Handle(NonNull<u8>);

// SAFETY: a cell owns its block alone, heads are plain numbers.
unsafe impl<H: Head> Send for Cell<H> {}
// SAFETY: a handle lies in the same collection as its cell (see `Cell::handle`) and moves with it.
unsafe impl Send for Handle {}

const ALIGN: usize = 8;

fn layout<H: Head>(key: usize, tail: usize) -> Layout {
    let size = size_of::<H>() + 4 + key + tail;
    match Layout::from_size_align(size, ALIGN) {
        Ok(layout) => layout,
        Err(_) => unreachable!("elements are below 4 GiB"),
    }
}

impl<H: Head> Cell<H> {
    /// A cell of a key and of what follows it, whose length `head` tells.
    pub(crate) fn new(head: H, key: &[u8], tail: &[u8]) -> Self {
        assert!(key.len() <= u32::MAX as usize && tail.len() == head.tail());
        let layout = layout::<H>(key.len(), tail.len());
        // SAFETY: the size is at least 4.
        let Some(block) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        // SAFETY: the block has room for head, length, key and tail one after the other, the head is
        // aligned because the block is, the length is written without asking for alignment.
        unsafe {
            block.cast::<H>().write(head);
            let at = block.add(size_of::<H>());
            at.cast::<u32>().write_unaligned(key.len() as u32);
            let at = at.add(4).as_ptr();
            at.copy_from_nonoverlapping(key.as_ptr(), key.len());
            at.add(key.len())
                .copy_from_nonoverlapping(tail.as_ptr(), tail.len());
        }
        Cell(block, PhantomData)
    }

    pub(crate) fn look(&self) -> CellRef<'_, H> {
        CellRef(self.0, PhantomData)
    }

    /// Changes the head of a cell in a table. The new head tells the same tail.
    pub(crate) fn set_head(table: &mut Table<Cell<H>>, position: Position, head: H) {
        if let Some(raw) = table.raw(position) {
            // SAFETY: the table owns the cell and is borrowed alone, so nobody looks at it.
            unsafe { raw.cast::<H>().write(head) };
        }
    }

    /// Replaces what follows the key of a cell in a table, in place if the lengths are the same.
    pub(crate) fn set_tail(table: &mut Table<Cell<H>>, position: Position, head: H, tail: &[u8]) {
        let Some(cell) = table.at(position) else {
            return;
        };
        if cell.head().tail() == tail.len() && head.tail() == tail.len() {
            let at = size_of::<H>() + 4 + cell.key().len();
            if let Some(raw) = table.raw(position) {
                // SAFETY: as in `set_head`; the tail begins there and has this length.
                unsafe {
                    raw.add(at)
                        .as_ptr()
                        .copy_from_nonoverlapping(tail.as_ptr(), tail.len());
                }
            }
        } else {
            let cell = Cell::new(head, cell.key(), tail);
            table.replace(position, cell);
        }
    }
}

impl<H: Head> Clone for Cell<H> {
    fn clone(&self) -> Self {
        self.look().to_cell()
    }
}

impl<H: Head> Drop for Cell<H> {
    fn drop(&mut self) {
        let cell = self.look();
        let layout = layout::<H>(cell.key_len(), cell.head().tail());
        // SAFETY: allocated in `new` with this layout, and owned by the cell.
        unsafe { dealloc(self.0.as_ptr(), layout) }
    }
}

impl<'a, H: Head> CellRef<'a, H> {
    /// A second pointer to the cell.
    ///
    /// # Safety
    /// The handle is not used after the cell is dropped, nor moved to another thread without it.
    pub(crate) unsafe fn handle(self) -> Handle {
        Handle(self.0)
    }

    #[inline]
    pub(crate) fn head(self) -> H {
        // SAFETY: a cell begins with its head.
        unsafe { self.0.cast::<H>().read() }
    }

    #[inline]
    fn key_len(self) -> usize {
        // SAFETY: the length follows the head.
        unsafe { self.0.add(size_of::<H>()).cast::<u32>().read_unaligned() as usize }
    }

    #[inline]
    pub(crate) fn key(self) -> &'a [u8] {
        // SAFETY: the key follows its length; the cell is borrowed for 'a.
        unsafe {
            std::slice::from_raw_parts(self.0.add(size_of::<H>() + 4).as_ptr(), self.key_len())
        }
    }

    #[inline]
    pub(crate) fn tail(self) -> &'a [u8] {
        // SAFETY: the tail follows the key and has the length that the head tells.
        unsafe {
            let at = self.0.add(size_of::<H>() + 4 + self.key_len());
            std::slice::from_raw_parts(at.as_ptr(), self.head().tail())
        }
    }

    pub(crate) fn to_cell(self) -> Cell<H> {
        Cell::new(self.head(), self.key(), self.tail())
    }

    /// Bytes of the block.
    pub(crate) fn memory_usage(self) -> usize {
        super::packed::size_class(layout::<H>(self.key_len(), self.head().tail()).size())
    }
}

impl Handle {
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        CellRef::<'_, f64>(self.0, PhantomData).key()
    }

    /// Whether both point to the same cell.
    #[inline]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

// SAFETY: blocks are aligned to 8 and heap addresses are below 2^48; the key is never written again.
unsafe impl<H: Head> Thin for Cell<H> {
    type Ref<'a> = CellRef<'a, H>;

    fn into_raw(self) -> NonNull<u8> {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Cell(raw, PhantomData)
    }

    #[inline]
    unsafe fn borrow<'a>(raw: NonNull<u8>) -> CellRef<'a, H> {
        CellRef(raw, PhantomData)
    }

    #[inline]
    fn key<'a>(element: Self::Ref<'a>) -> &'a [u8] {
        element.key()
    }

    #[inline]
    fn weight(element: Self::Ref<'_>) -> usize {
        weight::ELEMENT + element.key_len() + element.head().tail()
    }
}

/// A deep copy.
pub(crate) fn clone_table<H: Head>(table: &Table<Cell<H>>) -> Table<Cell<H>> {
    let mut copy = table.empty();
    for cell in table.iter() {
        copy.insert(copy.hash(cell.key()), cell.to_cell());
    }
    copy
}

/// Bytes of a table and of all cells in it.
pub(crate) fn table_memory<H: Head>(table: &Table<Cell<H>>) -> usize {
    let cells: usize = table.iter().map(CellRef::memory_usage).sum();
    size_of::<Table<Cell<H>>>() + table.memory_usage() + cells
}
