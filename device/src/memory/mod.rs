//! Whose memory do transfers use?
//!
//! Pool buffers are private memory with ordinary slices; external memory may be changed by others
//! at any time and has no slices.

mod buddy;
mod external;
mod pool;
mod slab;

pub use external::ExternalMemory;
pub use pool::{Buffer, BufferPool};
