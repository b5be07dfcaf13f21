//! Which regions a store has, and what is half done about one.
//!
//! ```text
//!   metainfo   'r' i64(region)   state row                                   the region is here
//!              'i' i64(region)   1:u8  length:u32  folder  manifest          its rows are being replaced
//! ```
//!
//! While the second is there the region has no state row and its rows mean nothing: see
//! [`super::RowStore::install`].

use base::cluster::RegionId;

use super::layout::{self, i64_bytes};
use super::{Family, Manifest, RegionError, RowError, RowSource, State, Tier};

const INSTALL_TAG: u8 = b'i';
const VERSION: u8 = 1;

/// The regions in the store, in the order of their ids, with their states.
pub fn regions(source: &dyn RowSource) -> Result<Vec<(RegionId, State)>, RowError> {
    let (from, to) = layout::state_keys();
    let mut found = Vec::new();
    let mut failure = None;
    let mut row = |key: &[u8], value: &[u8]| {
        match layout::home_of_state_key(key).zip(State::parse(value)) {
            Some(region) => found.push(region),
            None => {
                let key = key.escape_ascii();
                failure = Some(format!("the state row {key} cannot be read"));
            }
        }
        failure.is_none()
    };
    source.scan(Family::Info, &from, &to, false, Tier::All, &mut row)?;
    match failure {
        None => Ok(found),
        Some(failure) => Err(RowError::Failed(failure)),
    }
}

/// The value of a region's state row.
pub fn state_row(source: &dyn RowSource, region: RegionId) -> Result<Option<Vec<u8>>, RowError> {
    let mut row = None;
    let key = layout::state_key(region);
    source.get(Family::Info, &key, Tier::All, &mut |value| {
        row = Some(value.to_vec());
    })?;
    Ok(row)
}

/// The state of a region, if it is here.
pub fn state_of(source: &dyn RowSource, region: RegionId) -> Result<Option<State>, RowError> {
    let Some(row) = state_row(source, region)? else {
        return Ok(None);
    };
    match State::parse(&row) {
        Some(state) => Ok(Some(state)),
        None => Err(RowError::Failed(format!(
            "the state row of region {region} cannot be read"
        ))),
    }
}

/// A region whose rows are being replaced by those of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installing {
    pub manifest: Manifest,
    /// Where its files are.
    pub dir: String,
}

impl Installing {
    pub fn key(region: RegionId) -> Vec<u8> {
        let mut key = vec![INSTALL_TAG];
        key.extend_from_slice(&i64_bytes(region as i64));
        key
    }

    /// First of all such keys, and the first behind them.
    pub fn keys() -> ([u8; 1], [u8; 1]) {
        ([INSTALL_TAG], [INSTALL_TAG + 1])
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&(self.dir.len() as u32).to_be_bytes());
        out.extend_from_slice(self.dir.as_bytes());
        out.extend_from_slice(&self.manifest.encode());
        out
    }

    pub fn decode(value: &[u8]) -> Result<Installing, RegionError> {
        let damaged = || RegionError::Failed("the note of an install cannot be read".into());
        let parts = || {
            let (&version, rest) = value.split_first()?;
            let (len, rest) = rest.split_first_chunk()?;
            let (dir, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
            let dir = std::str::from_utf8(dir).ok()?;
            (version == VERSION).then_some((dir, rest))
        };
        let (dir, manifest) = parts().ok_or_else(damaged)?;
        Ok(Installing {
            manifest: Manifest::decode(manifest).map_err(|_| damaged())?,
            dir: dir.into(),
        })
    }
}
