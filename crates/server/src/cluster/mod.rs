//! A node among others.
pub struct Cluster {}
