//! What the programs of this crate share: `load` and `bursts`, which ask, and read what the asked spend.

pub mod cpu;
