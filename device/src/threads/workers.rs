//! Who performs transfers: a fixed number of threads, a thread for each request, or the thread that
//! submits them.
//!
//! Invariants
//! - An accepted job is always performed, even when its submitter is dropped; the job owns its
//!   memory meanwhile.
//! - When [`Workers::finish`] returns, no thread accesses a device or memory any more.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use rustix::io::Errno;

use super::completion_queue::{CompletionQueue, Ended};
use super::system_call::perform;
use crate::device::Device;
use crate::error::RingError;
use crate::limits::{IO_THREAD_STACK_BYTES, IO_THREADS_MAX};
use crate::pin::pin_current_thread;
use crate::transfer::Transfer;

/// A transfer for a worker thread.
#[derive(Debug)]
pub struct Job {
    pub(super) device: Arc<Device>,
    pub(super) transfer: Transfer,
}

/// Threads that perform jobs.
pub trait Workers: fmt::Debug {
    /// Passes a job to a thread, or returns it with the errno of the failure.
    fn start(&mut self, job: Job) -> Result<(), (Job, Errno)>;

    /// Waits until every job has been performed. Called once, at the end.
    fn finish(&mut self);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change under these locks is one assignment or one push, so a panic leaves the values
    // consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work(done: &CompletionQueue, Job { device, mut transfer }: Job) {
    let outcome = perform(&device, &mut transfer);
    // Dropped before the completion is visible: the receiver of the last completion may expect that
    // the device is closed.
    drop(device);
    done.push(Ended { transfer, outcome });
}

/// A fixed number of threads that take jobs from a queue.
#[derive(Debug)]
pub struct FixedThreads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Bounded by the depth of the interface.
    queue: Mutex<Queue>,
    changed: Condvar,
    done: Arc<CompletionQueue>,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    over: bool,
}

impl FixedThreads {
    /// Creates the threads and pins them to `cores` in turn.
    pub(super) fn new(
        count: usize,
        cores: &[usize],
        name: &str,
        done: &Arc<CompletionQueue>,
    ) -> Result<Self, RingError> {
        if count == 0 || count > IO_THREADS_MAX {
            return Err(RingError::BadThreads { threads: count });
        }
        let shared =
            Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new(), done: Arc::clone(done) });
        let (ready, is_ready) = mpsc::channel();
        let mut workers = Self { shared: Arc::clone(&shared), threads: Vec::with_capacity(count) };
        for number in 0..count {
            let (shared, ready) = (Arc::clone(&shared), ready.clone());
            let core = cores.get(number % cores.len().max(1)).copied();
            let run = move || {
                let pinned = core.map_or(Ok(()), pin_current_thread);
                let goes_on = pinned.is_ok();
                // The creator waits for one answer per thread.
                let _ = ready.send(pinned);
                if goes_on {
                    shared.run();
                }
            };
            let made = builder(name, number).spawn(run);
            workers.threads.push(made.map_err(|error| not_made(&error)).inspect_err(|_| workers.end())?);
        }
        for _ in 0..count {
            if let Ok(Err(refused)) = is_ready.recv() {
                workers.finish();
                return Err(refused.into());
            }
        }
        Ok(workers)
    }

    fn end(&self) {
        locked(&self.shared.queue).over = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn run(&self) {
        let mut queue = locked(&self.queue);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                work(&self.done, job);
                queue = locked(&self.queue);
            } else if queue.over {
                return;
            } else {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Workers for FixedThreads {
    fn start(&mut self, job: Job) -> Result<(), (Job, Errno)> {
        locked(&self.shared.queue).jobs.push_back(job);
        self.shared.changed.notify_one();
        Ok(())
    }

    fn finish(&mut self) {
        self.end();
        for thread in self.threads.drain(..) {
            // A panic was already reported on standard error.
            let _ = thread.join();
        }
    }
}

/// A thread for each job.
#[derive(Debug)]
pub struct FreshThreads {
    cores: Vec<usize>,
    name: String,
    made: usize,
    running: Arc<Running>,
    done: Arc<CompletionQueue>,
}

#[derive(Debug, Default)]
struct Running {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Running {
    fn add(&self) {
        *locked(&self.count) += 1;
    }

    fn remove(&self) {
        *locked(&self.count) -= 1;
        self.changed.notify_all();
    }
}

impl FreshThreads {
    /// Threads will be pinned to `cores` in turn; this checks that each core may be used.
    pub(super) fn new(cores: &[usize], name: &str, done: &Arc<CompletionQueue>) -> Result<Self, RingError> {
        let tried = cores.to_vec();
        let trial = builder(name, 0).spawn(move || tried.into_iter().try_for_each(pin_current_thread));
        // The thread does not panic; if it did, the first job would fail as well.
        trial.map_err(|error| not_made(&error))?.join().unwrap_or(Ok(()))?;
        let (running, done) = (Arc::default(), Arc::clone(done));
        Ok(Self { cores: cores.to_vec(), name: name.to_owned(), made: 0, running, done })
    }
}

impl Workers for FreshThreads {
    fn start(&mut self, job: Job) -> Result<(), (Job, Errno)> {
        let core = self.cores.get(self.made % self.cores.len().max(1)).copied();
        let number = self.made;
        self.made = self.made.wrapping_add(1);
        // The job is in shared memory, because a thread that cannot be created drops its closure
        // with everything in it.
        let job = Arc::new(Mutex::new(Some(job)));
        let (job_there, running, done) =
            (Arc::clone(&job), Arc::clone(&self.running), Arc::clone(&self.done));
        running.add();
        let run = move || {
            if let Some(core) = core {
                // The core was usable when the workers were created. If it is not any more, the
                // thread runs on the cores of its creator.
                let _moved = pin_current_thread(core);
            }
            let job = locked(&job_there).take();
            if let Some(job) = job {
                work(&done, job);
            }
            drop(done);
            running.remove();
        };
        let Err(error) = builder(&self.name, number).spawn(run) else { return Ok(()) };
        self.running.remove();
        let back = locked(&job).take();
        back.map_or(Ok(()), |job| Err((job, errno_of(&error))))
    }

    fn finish(&mut self) {
        let mut count = locked(&self.running.count);
        while *count > 0 {
            count = self.running.changed.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// No thread: the submitting thread performs each job before `start` returns.
#[derive(Debug)]
pub struct CallingThread {
    done: Arc<CompletionQueue>,
}

impl CallingThread {
    pub(super) fn new(done: &Arc<CompletionQueue>) -> Self {
        Self { done: Arc::clone(done) }
    }
}

impl Workers for CallingThread {
    fn start(&mut self, job: Job) -> Result<(), (Job, Errno)> {
        work(&self.done, job);
        Ok(())
    }

    fn finish(&mut self) {}
}

fn builder(name: &str, number: usize) -> std::thread::Builder {
    std::thread::Builder::new().name(format!("{name}.{number}")).stack_size(IO_THREAD_STACK_BYTES)
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::AGAIN)
}

fn not_made(error: &std::io::Error) -> RingError {
    RingError::Os { action: "create a thread that reads devices", source: errno_of(error) }
}
