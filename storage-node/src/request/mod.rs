//! Serves each kind of request, in one file per kind.

pub(crate) mod append;
pub(crate) mod cache;
pub(crate) mod catalog;
pub(crate) mod copy_of_log;
pub(crate) mod drop;
pub(crate) mod echo;
pub(crate) mod fetch;
pub(crate) mod hold;
pub(crate) mod keep;
pub(crate) mod keep_log;
pub(crate) mod keep_map;
pub(crate) mod participant;
pub(crate) mod posts;
pub(crate) mod process;
pub(crate) mod publish;
mod pull;
pub(crate) mod raw;
pub(crate) mod reserve_parity;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod transact;
pub(crate) mod verify;

use rackscan_format::message::Answer;

use crate::{
    bridge::Core,
    task::{Place, Progress, Work},
};

struct Answered(Option<Answer>);

/// The work that an answer needs which is ready at once.
fn answered(answer: Answer) -> Box<dyn Work> {
    Box::new(Answered(Some(answer)))
}

impl Work for Answered {
    fn advance(&mut self, _core: &mut Core, _place: Place) -> Progress {
        self.0.take().map_or(Progress::Working, |answer| Progress::Finished(Ok(answer)))
    }
}
