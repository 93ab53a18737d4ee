//! Does a client keep its promises when its nodes follow a script? Goal: refusals, lies, silence
//! and deaths that a real node shows rarely. Method: nodes that speak through the fabric and act by
//! a closure.

mod answers;
mod fake_node;
mod greetings;
mod loads;
