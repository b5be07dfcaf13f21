//! A row written down: all its fields (*image*), or those of one change (*delta*).
//!
//! ```text
//!   format=1 | version, zigzag varint | count | { field id | kind tag | value } * count, ids ascending
//! ```
//!
//! The version is +1 per change from 1. A negative one means "deleted": such an image has no fields, and the
//! count goes on from its absolute value when the row is created again. Version 0 is a row that SQL had before it was ours.

use crate::schema::Table;
use crate::value::Value;
use crate::wire::{Corrupt, Reader, Writer};

const FORMAT: u8 = 1;
/// Bytes around the contents of a field, at most.
const AROUND: usize = 14;

/// All of a row. Fields that were never set are not there.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Image {
    pub version: i64,
    fields: Fields,
}

/// The fields one change sets, and the version the row has then. Negative: the change is a deletion.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Delta {
    pub version: i64,
    fields: Fields,
}

/// Ids ascending, each once.
#[derive(Debug, Clone, PartialEq, Default)]
struct Fields(Vec<(u16, Value)>);

impl Fields {
    fn get(&self, id: u16) -> Option<&Value> {
        let at = self.0.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    fn set(&mut self, id: u16, value: Value) {
        match self.0.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => {
                if let Some(slot) = self.0.get_mut(at) {
                    slot.1 = value;
                }
            }
            Err(at) => self.0.insert(at, (id, value)),
        }
    }

    fn encode(&self, version: i64) -> Vec<u8> {
        let mut to = Writer::new(FORMAT);
        self.write(version, &mut to);
        to.done()
    }

    fn write(&self, version: i64, to: &mut Writer) {
        to.int(version);
        to.fields(&self.0);
    }

    fn decode(bytes: &[u8]) -> Result<(i64, Fields), Corrupt> {
        let mut from = Reader::new(bytes, FORMAT)?;
        let version = from.int()?;
        let mut fields: Vec<(u16, Value)> = Vec::new();
        for _ in 0..from.uint()? {
            let id = from.small()?;
            if fields.last().is_some_and(|(before, _)| *before >= id) {
                return Err(Corrupt("field ids out of order"));
            }
            fields.push((id, from.value()?));
        }
        from.end()?;
        if version < 0 && !fields.is_empty() {
            return Err(Corrupt("a deleted row with fields"));
        }
        Ok((version, Fields(fields)))
    }

    fn size(&self) -> usize {
        12 + Image::size_of(&self.0)
    }
}

impl Image {
    /// A row as SQL has it: one value per field of the table, in their order.
    pub fn of_values(table: &Table, version: i64, values: Vec<Value>) -> Image {
        let mut image = Image {
            version,
            fields: Fields::default(),
        };
        if version >= 0 {
            for (field, value) in table.fields.iter().zip(values) {
                image.fields.set(field.id, value);
            }
        }
        image
    }

    pub fn deleted(version: i64) -> Image {
        Image {
            version: -version.saturating_abs(),
            fields: Fields::default(),
        }
    }

    pub fn is_deleted(&self) -> bool {
        self.version < 0
    }

    /// The value of a field, if the row has set it. For what is shown take [`Image::values`].
    pub fn get(&self, id: u16) -> Option<&Value> {
        self.fields.get(id)
    }

    /// One value per field of the table, in their order: defaults for what is unset, nothing of dropped fields.
    pub fn values(&self, table: &Table) -> Vec<Value> {
        let value = |field: &crate::Field| {
            let set = self.fields.get(field.id);
            // Ids are not used twice, so a value has the kind of its field; if ever not, the default is right at least in kind.
            set.filter(|value| value.kind() == field.kind)
                .unwrap_or(&field.default)
                .clone()
        };
        table.fields.iter().map(value).collect()
    }

    /// The row after the change. Applies to any state: a deletion empties, a re-creation begins empty.
    pub fn apply(&mut self, delta: Delta) {
        if delta.version < 0 || self.version < 0 {
            self.fields = Fields::default();
        }
        self.version = delta.version;
        if delta.version >= 0 {
            for (id, value) in delta.fields.0 {
                self.fields.set(id, value);
            }
        }
    }

    /// The row after values were set, at this version: what [`Image::apply`] of such a delta does. The last of a field counts.
    pub(crate) fn set(&mut self, version: i64, fields: Vec<(u16, Value)>) {
        if self.version < 0 {
            self.fields = Fields::default();
        }
        self.version = version;
        for (id, value) in fields {
            self.fields.set(id, value);
        }
    }

    /// Forgets values of fields the table no longer has; says whether there were any.
    pub fn forget_dropped(&mut self, table: &Table) -> bool {
        let before = self.fields.0.len();
        let kept = |(id, _): &(u16, Value)| table.field_by_id(*id).is_some();
        self.fields.0.retain(kept);
        self.fields.0.len() != before
    }

    /// An upper bound of what these values add to [`Image::size`].
    pub(crate) fn size_of(fields: &[(u16, Value)]) -> usize {
        fields.iter().map(|(_, value)| value.size() + AROUND).sum()
    }

    pub fn encode(&self) -> Vec<u8> {
        self.fields.encode(self.version)
    }

    /// As [`Image::encode`], behind what is there.
    pub(crate) fn write(&self, to: &mut Writer) {
        to.byte(FORMAT);
        self.fields.write(self.version, to);
    }

    pub fn decode(bytes: &[u8]) -> Result<Image, Corrupt> {
        let (version, fields) = Fields::decode(bytes)?;
        Ok(Image { version, fields })
    }

    /// At least the length of the encoded form: what the limit of a row is compared with.
    pub fn size(&self) -> usize {
        self.fields.size()
    }
}

impl Delta {
    pub fn new(version: i64) -> Delta {
        Delta {
            version,
            fields: Fields::default(),
        }
    }

    pub fn set(&mut self, id: u16, value: Value) {
        self.fields.set(id, value);
    }

    pub fn fields(&self) -> &[(u16, Value)] {
        &self.fields.0
    }

    pub fn encode(&self) -> Vec<u8> {
        self.fields.encode(self.version)
    }

    pub fn decode(bytes: &[u8]) -> Result<Delta, Corrupt> {
        let (version, fields) = Fields::decode(bytes)?;
        Ok(Delta { version, fields })
    }
}
