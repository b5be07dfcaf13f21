//! `/metrics`: what `INFO` tells, as Prometheus reads it.
//!
//! Everything here is read from atomics that others leave behind; nobody is woken or waited for. Numbers that regions keep (keys,
//! hits) are those of the last second.

mod node;
mod redis;
mod tables;
mod text;

use runtime::Shared;
use text::Page;

pub fn text(shared: &Shared) -> String {
    let mut page = Page::default();
    node::add(&mut page, shared);
    redis::add(&mut page, shared);
    tables::add(&mut page, shared);
    page.text()
}
