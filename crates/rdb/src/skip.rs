//! Parts of a dump that have no place here but can be stepped over: streams, module data.

use std::io::Read;

use super::source::Source;
use super::{Error, layout};

/// Steps over a value that has no place here.
pub fn value<R: Read>(source: &mut Source<R>, layout: u8, key: &[u8]) -> Result<(), Error> {
    match layout {
        layout::STREAM | layout::STREAM_2 | layout::STREAM_3 => stream(source, layout),
        layout::MODULE_2 => {
            source.length()?;
            module_items(source)
        }
        _ => {
            let key = key.to_vec();
            Err(Error::UnknownType { layout, key })
        }
    }
}

/// A stream: its entries packed in listpacks, its counters, its groups and their consumers.
fn stream<R: Read>(source: &mut Source<R>, layout: u8) -> Result<(), Error> {
    for _ in 0..source.length()? {
        source.skip_string()?; // the id the listpack begins at
        source.skip_string()?;
    }
    // entries, last id; since 7.0 first id, highest deleted id, entries ever added
    let counters = if layout == layout::STREAM { 3 } else { 8 };
    for _ in 0..counters {
        source.length()?;
    }
    for _ in 0..source.length()? {
        group(source, layout)?;
    }
    Ok(())
}

fn group<R: Read>(source: &mut Source<R>, layout: u8) -> Result<(), Error> {
    source.skip_string()?; // name
    // last delivered id; since 7.0 entries read
    for _ in 0..if layout == layout::STREAM { 2 } else { 3 } {
        source.length()?;
    }
    for _ in 0..source.length()? {
        source.skip(16 + 8)?; // a pending id, when it was delivered
        source.length()?; // how often
    }
    for _ in 0..source.length()? {
        source.skip_string()?; // a consumer: name, when seen; since 7.2 when active
        source.skip(if layout == layout::STREAM_3 { 16 } else { 8 })?;
        for _ in 0..source.length()? {
            source.skip(16)?;
        }
    }
    Ok(())
}

/// Data of a module, a sequence of marked items that ends with mark 0; behind its module's id.
pub fn module_items<R: Read>(source: &mut Source<R>) -> Result<(), Error> {
    loop {
        match source.length()? {
            0 => return Ok(()),
            1 | 2 => drop(source.length()?),
            3 => source.skip(4)?,
            4 => source.skip(8)?,
            5 => source.skip_string()?,
            _ => return Err(Error::Corrupt("module data")),
        }
    }
}
