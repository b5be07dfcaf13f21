//! The contract, for every kind of the list: a new kind is tested here without a change.
//!
//! A sample is made of parts as a dump would hand them out. Two values are the same if their digests are.

use rdb::{Packer, Source, Writer};
use xxhash_rust::xxh3::xxh3_64;

use super::super::digest::Digest;
use super::super::{Collection, InMemory, Kind, Part, Value, ValueRef, kinds};
use crate::Tuning;
use crate::dumped::{self, Building, Dumped, Room};
use crate::rows::layout::{self, Body, Metadata};
use crate::rows::{Changes, Family, Recorder};

/// Packed, indexed and in several chunks.
const SIZES: [usize; 4] = [1, 20, 200, 3000];
const GENERATION: u64 = 3 << 20;

#[derive(Debug, Default, PartialEq, Eq)]
struct Sum(u64);

impl Digest for Sum {
    fn add(&mut self, bytes: &[u8]) {
        self.0 ^= xxh3_64(bytes);
    }

    fn mix(&mut self, bytes: &[u8]) {
        self.add(bytes);
        self.0 = xxh3_64(&self.0.to_be_bytes());
    }

    fn add_digest(&mut self, other: &Self) {
        self.add(&other.0.to_be_bytes());
    }
}

fn sum(value: &ValueRef<'_>) -> Sum {
    let mut sum = Sum::default();
    value.digest(&mut sum);
    sum
}

/// Names and values of 8 bytes, which every kind takes.
fn parts(n: usize) -> Vec<([u8; 8], [u8; 8])> {
    let value = |i: usize| (i as f64).to_bits().to_be_bytes();
    (0..n)
        .map(|i| ((i as u64).to_be_bytes(), value(i)))
        .collect()
}

fn sample<T: Collection + Dumped>(n: usize) -> T {
    let mut made = T::default();
    for (name, value) in &parts(n) {
        made.add(Part { name, value }, &Tuning::default());
    }
    assert_eq!(made.len(), n);
    made
}

fn recorded(record: impl FnOnce(&mut Recorder<'_>)) -> Changes {
    let (mut changes, mut base) = (Changes::new(), Vec::new());
    record(&mut Recorder::new(&mut changes, &mut base));
    changes
}

fn in_memory<T: Collection + Dumped>() {
    let mut weight = 0;
    for n in SIZES {
        let made: T = sample(n);
        let value = made.as_value();
        assert_eq!((value.kind(), value.elements()), (T::KIND, Some(n)));
        assert_eq!(sum(&value.to_value().borrow()), sum(&value));
        assert!(!InMemory::encoding(&made).is_empty());
        assert!(InMemory::memory_usage(&made) > n);
        assert!(made.weight() > weight && made.allocations() > 0);
        weight = made.weight();
    }
    assert!(Value::empty(T::KIND).is_empty_collection());
}

fn through_rows<T: Collection + Dumped>() {
    for n in SIZES {
        let mut made: T = sample(n);
        made.set_generation(GENERATION);
        let mut row = Vec::new();
        layout::push_metadata_head(&mut row, T::KIND, None);
        made.as_value().push_body(&mut row);
        let metadata = Metadata::parse(&row).unwrap();
        let Body::Collection {
            generation,
            size,
            extra,
        } = metadata.body
        else {
            panic!("a string")
        };
        assert_eq!((metadata.kind, generation), (T::KIND, GENERATION));
        assert_eq!(size, n as u64);
        let changes = recorded(|rows| made.record(rows));

        let mut back = Value::of_metadata(T::KIND, generation, extra);
        let mut rows: Vec<_> = changes.iter().collect();
        rows.retain(|row| row.family == Family::Data);
        assert_eq!(rows.len(), n);
        rows.sort_by_key(|row| row.key);
        for row in &rows {
            assert!(back.add_row(row.key, row.value.unwrap(), &Tuning::default()));
        }
        assert_eq!(back.borrow().generation(), Some(GENERATION));
        assert_eq!(sum(&back.borrow()), sum(&made.as_value()));

        let has_order = changes.iter().any(|row| row.family == T::ORDER);
        assert!(has_order, "no row in the family of its order");
        if T::COMES_WHOLE {
            assert!(T::is_extra(b""));
            let gone = rows[0].key;
            back.change_row(gone, None, &Tuning::default());
            assert_eq!(back.borrow().elements(), Some(n - 1));
        }
    }
}

fn imported_as_recorded<T: Collection + Dumped>() {
    for n in SIZES {
        let mut extra = Vec::new();
        let imported = recorded(|rows| {
            for (index, (name, value)) in (0..).zip(&parts(n)) {
                T::KIND.import(Part { name, value }, index, rows, &mut extra);
            }
        });
        let made: T = sample(n);
        let (mut expected, changes) = (Vec::new(), recorded(|rows| made.record(rows)));
        made.push_extra(&mut expected);
        assert_eq!(extra, expected);
        let sorted = |changes: &Changes| {
            let rows = changes.iter();
            let mut rows: Vec<_> = rows
                .map(|row| (row.family, row.key.to_vec(), row.value.map(<[u8]>::to_vec)))
                .collect();
            rows.sort();
            rows
        };
        assert_eq!(sorted(&imported), sorted(&changes));
    }
}

fn through_a_dump<T: Collection + Dumped>() {
    assert!(T::has_layout(T::LAYOUT));
    for n in SIZES {
        let made: T = sample(n);
        let (mut packer, mut dump) = (Packer::default(), Vec::new());
        let mut writer = Writer {
            packer: Some(&mut packer),
            out: &mut dump,
        };
        dumped::write(&made.as_value(), &mut writer);
        let kind = made.as_value().kind();
        assert_eq!(dumped::kind_of(dumped::layout_of(kind)), Some(kind));
        let tuning = Tuning::default();
        let mut building = Building::new(kind, &tuning);
        let mut each = |part: Part<'_>| {
            building.add(part);
            Ok(())
        };
        let (mut source, mut room) = (Source::new(&dump[..]), Room::default());
        dumped::read(&mut source, kind, T::LAYOUT, &mut room, &mut each).unwrap();
        let back = building.finish().unwrap();
        assert_eq!(sum(&back.borrow()), sum(&made.as_value()));
    }
}

macro_rules! tests {
    ([(String $($string:tt)*) $(($Kind:ident $folder:ident $($kind:tt)*))*]) => {$(
        mod $folder {
            use crate::$Kind;

            #[test]
            fn in_memory() {
                super::in_memory::<$Kind>();
            }

            #[test]
            fn through_rows() {
                super::through_rows::<$Kind>();
            }

            #[test]
            fn imported_as_recorded() {
                super::imported_as_recorded::<$Kind>();
            }

            #[test]
            fn through_a_dump() {
                super::through_a_dump::<$Kind>();
            }
        }
    )*};
}
kinds!([tests]);

#[test]
fn names_numbers_and_layouts_are_the_kinds_own() {
    for kind in Kind::ALL {
        assert_eq!(Kind::from_code(kind.code()), Some(*kind));
        assert!(kind.code() < 16, "four bits of a metadata row tell it");
        let same_name = Kind::ALL.iter().filter(|it| it.name() == kind.name());
        assert_eq!(same_name.count(), 1);
    }
    assert_eq!(Kind::from_code(0), None);
    for layout in 0..=u8::MAX {
        fn has<T: Dumped>(layout: u8) -> usize {
            usize::from(T::has_layout(layout))
        }
        let of = |kind: &Kind| crate::kind::each_kind!(kind, Kind: Kind::String => 0, T => has::<T>(layout));
        let kinds: usize = Kind::ALL.iter().map(of).sum();
        assert!(kinds <= 1, "layout {layout} is of {kinds} kinds");
    }
}
