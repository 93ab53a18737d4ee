//! `rackscan load`
