//! Which dump a data directory begins with, if any: decided before it is opened.
//!
//! | the directory | `--import FILE` | `dbfilename` is in it | what happens |
//! |---|---|---|---|
//! | new | given | | FILE is imported |
//! | new | | yes | that is imported, as Redis would load it |
//! | new | | | it starts empty |
//! | half an import | | | begun again, from the file it was begun from |
//! | has data | given | | refused, unless the data came from this very file |
//! | has data | | | it starts; no dump is read |

use std::path::{Path, PathBuf};

use rocks::{DataDir, Import};
use server::Settings;

use crate::engine;

/// Imports what is to be imported; when this returns, the directory has all of it or none.
pub fn run(settings: &Settings, data: &DataDir) -> Result<(), String> {
    let Some(path) = wanted(settings, data)? else {
        return Ok(());
    };
    let import = Import::of(&path).map_err(|error| unreadable(&path, &error))?;
    data.begin_import(&import)
        .map_err(|error| error.to_string())?;
    let done = engine::open_rows(settings, data).and_then(|rows| {
        server::import(settings, &*rows, &import.source)
        // Here the rows are closed.
    });
    match done {
        Ok(()) => data.finish_import().map_err(|error| error.to_string()),
        Err(why) => Err(match data.undo_import() {
            Ok(()) => format!("{why}. Nothing was left in {}", settings.dir.display()),
            Err(error) => format!("{why}. Half of it could not be removed: {error}"),
        }),
    }
}

/// The dump to import now.
fn wanted(settings: &Settings, data: &DataDir) -> Result<Option<PathBuf>, String> {
    let asked = settings.import.as_deref();
    if !data.is_new() {
        return match asked {
            Some(asked) => refuse_unless_done(settings, data, asked).map(|()| None),
            None => Ok(None),
        };
    }
    let unfinished = data
        .unfinished_import()
        .map_err(|error| error.to_string())?
        .map(|import| import.source);
    if let (Some(source), None) = (&unfinished, asked)
        && !source.exists()
    {
        return Err(format!(
            "the import of {} into {} was interrupted and the file is gone; put it back, or remove \
             IMPORTING, rows and log from the folder to start empty",
            source.display(),
            settings.dir.display()
        ));
    }
    let beside = settings.dir.join(&settings.dbfilename);
    Ok(asked
        .map(PathBuf::from)
        .or(unfinished)
        .or_else(|| beside.is_file().then_some(beside)))
}

/// A flag that stays in a script must not keep the node from starting again.
fn refuse_unless_done(settings: &Settings, data: &DataDir, asked: &Path) -> Result<(), String> {
    // The mark of an import that was whole when it was interrupted becomes that of a finished one.
    data.prepare().map_err(|error| error.to_string())?;
    let done = data.imported().map_err(|error| error.to_string())?;
    let dir = settings.dir.display();
    let name = asked.display();
    let Some(done) = done.filter(|done| is_same_file(&done.source, asked)) else {
        return Err(format!(
            "--import {name}: the data directory {dir} has data already, and an import needs a new \
             one. Leave --import out, or give another --data-dir"
        ));
    };
    match Import::of(asked) {
        Ok(now) if now != done => Err(format!(
            "--import {name}: it was imported into {dir} before, and has changed since. Leave \
             --import out to go on with the data, or give another --data-dir to import it anew"
        )),
        _ => Ok(()),
    }
}

fn is_same_file(done: &Path, asked: &Path) -> bool {
    let asked = std::fs::canonicalize(asked)
        .or_else(|_| std::path::absolute(asked))
        .unwrap_or_else(|_| asked.into());
    done == asked
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("cannot import {}: {error}", path.display())
}
