//! Tests that stripes get onto the right disks, whatever the network and the disks do. Method:
//! nodes and a writer run alternately in one thread, over the simulated network and simulated
//! disks; the contents of the disks are compared with a plain computation.

mod cluster;
mod defects;
mod held;
mod hostile;
mod losses;
mod ways;
