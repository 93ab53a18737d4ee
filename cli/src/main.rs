//! The rackscan command.

fn main() {}
