//! Simulates how a reader sees memory that its owner is writing: the owner's writes become visible
//! word by word, and between any two words readers copy 8 or 64 bytes at a time, in any order.

use crate::defect::Defect;
use rackscan_fabric::sim::Random;
use rackscan_ramp::slot::{Place, SlotMemory};
use std::{cell::RefCell, collections::VecDeque, rc::Rc};

/// Bytes of every participant's slots: so few that slots are given up and used again.
pub(crate) const SLOT_BYTES: usize = 8 << 10;

#[derive(Debug)]
struct Words {
    visible: Vec<u8>,
    /// Written by the owner, and not visible to readers yet.
    coming: VecDeque<(usize, [u8; 8])>,
    defect: Option<Defect>,
}

/// The slot memory of one life of a participant. Clones are the same memory; readers may keep it
/// when its owner is gone.
#[derive(Clone, Debug)]
pub(crate) struct Slots(Rc<RefCell<Words>>);

impl Slots {
    pub(crate) fn new(defect: Option<Defect>) -> Self {
        Self(Rc::new(RefCell::new(Words { visible: vec![0; SLOT_BYTES], coming: VecDeque::new(), defect })))
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.0.borrow().coming.is_empty()
    }

    /// Makes some more words visible.
    pub(crate) fn settle(&self, words: usize) {
        let mut memory = self.0.borrow_mut();
        for _ in 0..words {
            let Some((offset, word)) = memory.coming.pop_front() else { return };
            memory.visible[offset..offset + 8].copy_from_slice(&word);
        }
    }
}

impl SlotMemory for Slots {
    fn bytes(&self) -> usize {
        SLOT_BYTES
    }

    fn write(&mut self, offset: usize, words: &[u8]) {
        let mut memory = self.0.borrow_mut();
        for (at, word) in (offset..).step_by(8).zip(words.chunks(8)) {
            memory.coming.push_back((at, word.try_into().expect("whole words")));
        }
    }

    fn store_word(&mut self, offset: usize, word: u64) {
        let mut memory = self.0.borrow_mut();
        // The second word of a slot is the one that makes it valid.
        let invalidates = offset % 64 == 8 && word == 0;
        if !(invalidates && memory.defect == Some(Defect::NoInvalidation)) {
            memory.coming.push_back((offset, word.to_le_bytes()));
        }
    }
}

/// A one-sided read on its way.
#[derive(Debug)]
pub(crate) struct Copy {
    memory: Slots,
    offset: usize,
    step: usize,
    /// Steps that are still to be copied, in this order from the end.
    left: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl Copy {
    pub(crate) fn begin(memory: &Slots, place: Place, random: &mut Random) -> Self {
        let length = usize::try_from(place.length_bytes).expect("a length");
        let step = if random.below(2) == 0 { 8 } else { 64 };
        let mut left: Vec<usize> = (0..length / step).collect();
        if random.below(2) == 0 {
            (1..left.len()).for_each(|at| left.swap(at, random.index(at + 1)));
        }
        let offset = usize::try_from(place.offset_bytes).expect("an offset");
        Self { memory: memory.clone(), offset, step, left, bytes: vec![0; length] }
    }

    /// Copies some more; whether that was all.
    pub(crate) fn go_on(&mut self, steps: usize) -> bool {
        let memory = self.memory.0.borrow();
        for _ in 0..steps {
            let Some(at) = self.left.pop().map(|step| step * self.step) else { break };
            let from = self.offset + at;
            self.bytes[at..at + self.step].copy_from_slice(&memory.visible[from..from + self.step]);
        }
        self.left.is_empty()
    }
}
