//! Power cuts in processes of their own, in the middle of what must be whole or not at all.

mod power;
mod regions;
mod rows;
