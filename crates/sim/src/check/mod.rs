//! What must hold whatever happens, one file each.
//!
//! Some look on while the simulation runs ([`agree`], [`terms`], [`serving`],
//! [`descriptors`]); the others look at
//! the history of the clients afterwards ([`linear`], [`kept`], [`pools`]), or at where everything came to be ([`placed`]).

pub mod agree;
pub mod descriptors;
pub mod kept;
pub mod linear;
pub mod placed;
pub mod pools;
pub mod rows;
pub mod serving;
pub mod terms;
pub mod written;

/// What does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    pub checker: &'static str,
    pub what: String,
    /// The moment of the history at which it can be known, if that is not now.
    pub moment: Option<u64>,
}

impl Broken {
    pub fn new(checker: &'static str, what: String) -> Broken {
        Broken {
            checker,
            what,
            moment: None,
        }
    }
}
