//! Cores, sessions, router, cross-core messages. (To come.)
