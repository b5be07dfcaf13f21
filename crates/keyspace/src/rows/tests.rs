//! Durable keyspaces over a map.
