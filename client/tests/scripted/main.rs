//! Tests a client whose nodes follow a script. Goal: refusals, wrong answers, silence and deaths
//! that a real node shows rarely. Method: nodes that use the fabric like real ones and act by a
//! closure.

mod answers;
mod fake_node;
mod greetings;
mod loads;
