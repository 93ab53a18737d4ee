//! Memory for transfers: pool buffers, and external memory that another crate has mapped.
//!
//! Pool buffers are private memory with ordinary slices. A peer may change external memory at
//! any time, so it has no slices.

mod buddy;
mod error;
mod external;
mod pool;
mod slab;

pub use error::{PoolError, TakeError};
pub use external::ExternalMemory;
pub use pool::{Buffer, BufferPool};
