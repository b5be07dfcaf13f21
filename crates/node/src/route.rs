//! Which regions a command needs.

use command::{CommandSpec, Keys, KeysError};
use resp::Args;

use crate::{Map, Place};

/// Where a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// It names no key.
    Anywhere,
    One(Place),
    /// Several regions; they are in the list given to [`route`], ascending.
    Several,
    All,
    /// SCAN: the region is in the cursor.
    Cursor,
}

/// Finds the regions of a command's keys. `regions` is room for them.
#[inline]
pub fn route(map: &Map, spec: &CommandSpec, args: &Args<'_>, regions: &mut Vec<Place>) -> Route {
    match spec.keys {
        Keys::Everything => return Route::All,
        Keys::Cursor => return Route::Cursor,
        keys if map.is_single() => {
            let all = matches!(keys, Keys::Sort { .. }) && keys.touches_everything(args);
            return if all { Route::All } else { Route::One(0) };
        }
        _ => {}
    }
    match spec.keys {
        Keys::Range { first, last, .. } if last == first as isize => {
            Route::One(map.region_of(args.at(first)))
        }
        Keys::None => Route::Anywhere,
        Keys::Everything => Route::All,
        Keys::Cursor => Route::Cursor,
        keys => {
            if keys.touches_everything(args) {
                return Route::All;
            }
            regions.clear();
            let found = keys.positions(args, |at| regions.push(map.region_of(args.at(at))));
            if found == Err(KeysError) {
                // Refused by the command itself, which touches no key then.
                return Route::Anywhere;
            }
            regions.sort_unstable();
            regions.dedup();
            match regions[..] {
                [] => Route::Anywhere,
                [one] => Route::One(one),
                _ => Route::Several,
            }
        }
    }
}

/// The regions of a command's keys, ascending.
pub fn regions_of(map: &Map, spec: &CommandSpec, args: &Args<'_>) -> Vec<Place> {
    let mut regions = Vec::new();
    match route(map, spec, args, &mut regions) {
        Route::One(one) => regions = vec![one],
        Route::All | Route::Cursor => regions = (0..map.regions()).collect(),
        Route::Anywhere => regions.clear(),
        Route::Several => {}
    }
    regions
}
